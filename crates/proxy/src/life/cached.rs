//! GET and HEAD without a body: the store first, then a fetch, or past both.

use http::Method;

use super::{ask::Ask, slices};
use crate::{
    lookup::{self, Found, Hit},
    reason::Bypass,
    respond::Answer,
    rules::Reuse,
    sliced::NoSlice,
};

impl Ask {
    /// GET and HEAD without a body.
    pub(super) async fn without_body(&self, bypass: Option<Bypass>) -> Answer {
        match bypass {
            // Boxed, as all that few requests do: those that do not have no room for it.
            Some(why) => Box::pin(self.pass_empty(why)).await,
            None if self.target.action.slice.is_some() => Box::pin(self.in_slices()).await,
            None => self.cached().await,
        }
    }

    /// GET and HEAD, of what may be in slices: another version is begun with as long as the client has heard nothing.
    async fn in_slices(&self) -> Answer {
        let mut why = NoSlice::Changed;
        for _ in 0..slices::VERSIONS {
            let mut answer = self.cached().await;
            match slices::begin(&mut answer).await {
                Ok(()) => return answer,
                Err(NoSlice::Changed) => {}
                Err(other) => {
                    why = other;
                    break;
                }
            }
        }
        self.without_slices(why).await
    }

    /// GET and HEAD: the store first.
    async fn cached(&self) -> Answer {
        let found = lookup::find(self.worker.proxy.stored(), &self.target.key, &self.headers).await;
        match found {
            Found::Hit(hit) if !self.has_body(&hit) => self.forward(hit.key, None, "uri-miss").await,
            Found::Hit(hit) => match hit.head.policy.reuse(&self.asked, self.now) {
                Reuse::Fresh => self.fresh(&hit),
                Reuse::StaleAccepted => self.stale(&hit, "max-stale"),
                Reuse::StaleWhileRevalidate => {
                    self.revalidate_behind(&hit);
                    self.stale(&hit, "stale-while-revalidate")
                }
                Reuse::ValidateStale => self.forward(hit.key.clone(), Some(hit), "stale").await,
                Reuse::ValidateRequest => self.forward(hit.key.clone(), Some(hit), "request").await,
            },
            Found::Nothing { variant: true, key } => self.forward(key, None, "vary-miss").await,
            Found::Nothing { variant: false, key } => self.forward(key, None, "uri-miss").await,
        }
    }

    async fn forward(&self, key: Vec<u8>, stale: Option<Hit>, fwd: &'static str) -> Answer {
        if self.asked.directives.only_if_cached {
            return self.only_if_cached();
        }
        if self.asked.directives.no_store {
            return Box::pin(self.pass_empty(Bypass::RequestNoStore)).await;
        }
        if self.method == Method::HEAD {
            return Box::pin(self.pass_head(stale, fwd)).await;
        }
        self.fetch(key, stale, fwd).await
    }
}
