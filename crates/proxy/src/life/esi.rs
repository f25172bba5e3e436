//! Pages that are put together of fragments (`rule.esi`), each of which is asked for as a client would ask for it: by
//! its own rules, out of the store, together with others that want it.
//!
//! 1. The page is asked for without the client's conditions and ranges: those would be of the template.
//! 2. If the response is such a page, its template is read as it comes, and what is between the fragments is passed on.
//! 3. A fragment is on the page's host, or, in front of origins, on one that the operator named; so what is on a page
//!    reaches nothing that its client could not reach. Another host gets no credentials.
//! 4. What is in `esi:attempt` is held back to its end, so that `esi:except` can take its place.
//! 5. A fragment that cannot be had, where nothing on the page says what then, is the end of the page: 502 as long as
//!    nothing has been sent, a body that breaks off after that.
//!
//! [`DEEPEST`] and [`MOST`] bound what one request has the origins asked for.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header, request::Parts};
use tokio::sync::mpsc;

use super::ask::Ask;
use crate::{
    body::Kind,
    clock::unix_millis,
    conn::Conn,
    esi::{
        assembled::Assembled,
        markup::{Event, Include, Markup},
        page,
    },
    proxy::Worker,
    reason::{Broken, Bypass, OriginFailure},
    respond::{Answer, failed, unchanged},
    rules::validate,
};

/// Pages in one another.
const DEEPEST: u32 = 4;
/// Fragments of one request, those in fragments included.
const MOST: u32 = 256;
/// Bytes that are held back for `esi:attempt`.
const LONGEST_ATTEMPT: usize = 1 << 20;

/// What all fragments of a request have in common.
pub(super) struct Client {
    conn: Arc<Conn>,
    /// What the client sent, without what is of the page alone.
    headers: HeaderMap,
    asked: AtomicU32,
}

impl Client {
    pub(super) fn new(conn: &Arc<Conn>, headers: &HeaderMap) -> Arc<Self> {
        let mut headers = headers.clone();
        validate::remove_conditions(&mut headers);
        headers.remove(header::ACCEPT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        Arc::new(Self { conn: conn.clone(), headers, asked: AtomicU32::new(0) })
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers a GET or HEAD for what may be a page.
pub(super) fn serve(mut ask: Ask, why: Option<Bypass>, client: Arc<Client>, depth: u32) -> Boxed<Answer> {
    Box::pin(async move {
        let conditions = ask.headers.clone();
        validate::remove_conditions(Arc::make_mut(&mut ask.headers));
        let again = ask.clone();
        let mut answer = ask.without_body(why).await;
        if !page::take(&mut answer.parts, again.target.side.is_for_origin(), unix_millis()) {
            unchanged(&mut answer, &conditions, unix_millis());
            return answer;
        }
        if answer.detail.is_empty() {
            answer.detail = "esi";
        }
        if again.method == Method::HEAD {
            return answer;
        }
        let template = std::mem::replace(&mut answer.kind, Kind::Empty);
        let worker = again.worker.clone();
        let page = |made| Page { ask: again, client, depth, made, held: Vec::new() }.assemble(template);
        let mut body = Assembled::new(page);
        if body.begin().await.is_err() {
            worker.counters.no_answer(OriginFailure::Esi.into());
            return failed(OriginFailure::Esi.into());
        }
        answer.kind = Kind::Assembled(Box::new(body));
        answer
    })
}

/// A page that is being assembled.
struct Page {
    ask: Ask,
    client: Arc<Client>,
    depth: u32,
    made: mpsc::Sender<Bytes>,
    /// What is in the attempts that are open; `None` is one that failed.
    held: Vec<Option<BytesMut>>,
}

/// What is open of a page.
#[derive(Clone, Copy)]
enum Part {
    Attempt,
    /// Whether it counts.
    Except(bool),
}

/// Why a fragment is not there.
enum NoFragment {
    /// Nothing of it is on the page.
    Before,
    /// A part of it is.
    Within,
    /// The client has gone.
    Gone,
}

impl Page {
    async fn assemble(mut self, mut template: Kind) -> Result<(), Broken> {
        let (worker, mut markup, mut open) = (self.ask.worker.clone(), Markup::default(), Vec::new());
        // What became of the last attempt.
        let mut is_done = false;
        loop {
            let mut events = Vec::new();
            let piece = next(&mut template, &worker).await.transpose()?;
            let read = match &piece {
                Some(bytes) => markup.add(bytes, &mut events),
                None => std::mem::take(&mut markup).finish(&mut events),
            };
            for event in events {
                self.event(event, &mut open, &mut is_done).await?;
            }
            if let Err(why) = read {
                return Err(self.broken(&why.to_string()));
            }
            if piece.is_none() {
                return Ok(());
            }
        }
    }

    async fn event(&mut self, event: Event, open: &mut Vec<Part>, is_done: &mut bool) -> Result<(), Broken> {
        match event {
            Event::AttemptBegins => {
                open.push(Part::Attempt);
                // One in what does not count does not count either.
                let counts = self.counts(&open[..open.len() - 1]);
                self.held.push(counts.then(BytesMut::new));
            }
            Event::AttemptEnds => {
                open.pop();
                let held = self.held.pop().flatten();
                *is_done = held.is_some();
                if let Some(held) = held {
                    self.put(held.freeze()).await?;
                }
            }
            Event::ExceptBegins => open.push(Part::Except(!*is_done)),
            Event::ExceptEnds => drop(open.pop()),
            _ if !self.counts(open) => {}
            Event::Text(bytes) => self.put(bytes).await?,
            Event::Include(include) => self.include(&include).await?,
        }
        Ok(())
    }

    fn counts(&self, open: &[Part]) -> bool {
        self.held.iter().all(Option::is_some) && !open.iter().any(|part| matches!(part, Part::Except(false)))
    }

    /// Onto the page, or into the attempt that is open.
    async fn put(&mut self, bytes: Bytes) -> Result<(), Broken> {
        match self.held.last_mut() {
            // A client that has gone takes nothing: the work ends with its body.
            None => self.made.send(bytes).await.map_err(|_| Broken::Abandoned),
            Some(None) => Ok(()),
            Some(Some(held)) if held.len() + bytes.len() <= LONGEST_ATTEMPT => {
                held.extend_from_slice(&bytes);
                Ok(())
            }
            Some(held) => {
                *held = None;
                Ok(())
            }
        }
    }

    async fn include(&mut self, include: &Include) -> Result<(), Broken> {
        for reference in [Some(&include.src), include.alt.as_ref()].into_iter().flatten() {
            match self.fragment(reference).await {
                Ok(()) => return Ok(()),
                Err(NoFragment::Before) => {}
                Err(NoFragment::Gone) => return Err(Broken::Abandoned),
                Err(NoFragment::Within) => return self.without(&include.src, false),
            }
        }
        self.without(&include.src, include.may_fail)
    }

    fn without(&mut self, src: &str, may_fail: bool) -> Result<(), Broken> {
        match self.held.last_mut() {
            _ if may_fail => Ok(()),
            Some(attempt) => {
                *attempt = None;
                Ok(())
            }
            None => Err(self.broken(&format!("its fragment {src:?} is not to be had"))),
        }
    }

    fn broken(&self, why: &str) -> Broken {
        let url = String::from_utf8_lossy(&self.ask.target.key);
        eprintln!("picaflor: {url:?}: the page is not assembled to its end: {why}");
        Broken::Esi
    }

    async fn fragment(&mut self, reference: &str) -> Result<(), NoFragment> {
        let worker = self.ask.worker.clone();
        if self.depth == DEEPEST || self.client.asked.fetch_add(1, Relaxed) >= MOST {
            return Err(NoFragment::Before);
        }
        let mut answer = self.ask_for(reference).ok_or(NoFragment::Before)?.await;
        if !matches!(answer.parts.status, StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION)
            || !page::is_plain(&answer.parts.headers)
        {
            return Err(NoFragment::Before);
        }
        let mut any = false;
        while let Some(piece) = next(&mut answer.kind, &worker).await {
            let piece = piece.map_err(|_| if any { NoFragment::Within } else { NoFragment::Before })?;
            any |= !piece.is_empty();
            self.put(piece).await.map_err(|_| NoFragment::Gone)?;
        }
        Ok(())
    }

    /// `None` if it is not on a host that the page may name.
    fn ask_for(&self, reference: &str) -> Option<Boxed<Answer>> {
        let (worker, proxy) = (&self.ask.worker, &self.ask.worker.proxy);
        let target = self.ask.target.named(reference, &proxy.origins)?.ruled(&proxy.rules).ok()?;
        let mut parts = parts();
        parts.headers = self.client.headers.clone();
        if target.host() != self.ask.target.host() {
            parts.headers.remove(header::AUTHORIZATION);
            parts.headers.remove(header::COOKIE);
        }
        let is_page = target.action.esi;
        let why = target.action.bypass.then_some(Bypass::Rule);
        let ask = Ask::new(worker, &self.client.conn, target, Arc::new(|_, _| {}), parts);
        Some(if is_page {
            serve(ask, why, self.client.clone(), self.depth + 1)
        } else {
            Box::pin(async move { ask.without_body(why).await })
        })
    }
}

fn parts() -> Parts {
    Request::new(()).into_parts().0
}

async fn next(kind: &mut Kind, worker: &Arc<Worker>) -> Option<Result<Bytes, Broken>> {
    poll_fn(|cx| kind.poll_data(cx, &worker.counters)).await
}
