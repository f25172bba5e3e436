//! A caching proxy before one origin: `proxy LISTEN ORIGIN STORE [durable]`, for instance
//! `proxy 127.0.0.1:8080 127.0.0.1:80 cache.store`. A request with the method `PURGE` deletes a response, with the
//! header `X-Purge: soft` it makes it stale. `durable`: what was answered as a miss survives any crash from then on,
//! instead of from a second later on.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use picaflor_pingora::{
    Picaflor,
    picaflor::{Durability, Options},
};
use pingora_cache::{
    CacheKey, CacheMetaDefaults, CachePhase, PurgeAction, RespCacheable,
    cache_control::CacheControl,
    filters::resp_cacheable,
    lock::{CacheKeyLockImpl, CacheLock},
};
use pingora_core::{Result, prelude::HttpPeer, server::Server, services::background::background_service};
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

/// Only what the origin gives an age is cached.
const DEFAULTS: CacheMetaDefaults = CacheMetaDefaults::new(|_| None, 0, 0);

/// Of many that miss at once, one fetches.
static LOCK: LazyLock<Box<CacheKeyLockImpl>> = LazyLock::new(|| CacheLock::new_boxed(Duration::from_secs(10)));

struct Cached {
    origin: String,
    storage: &'static Picaflor,
}

#[async_trait]
impl ProxyHttp for Cached {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.origin.as_str(), false, String::new())))
    }

    fn request_cache_filter(&self, session: &mut Session, _: &mut ()) -> Result<()> {
        session.cache.enable(self.storage, None, None, Some(&**LOCK), None);
        session.cache.set_max_file_size_bytes(self.storage.max_file_size());
        Ok(())
    }

    fn cache_key_callback(&self, session: &Session, _: &mut ()) -> Result<CacheKey> {
        // Of one origin, the path is all that tells responses apart.
        Ok(CacheKey::new(session.req_header().raw_path(), ""))
    }

    fn response_cache_filter(&self, session: &Session, head: &ResponseHeader, _: &mut ()) -> Result<RespCacheable> {
        let control = CacheControl::from_resp_headers(head);
        let is_authorized = session.req_header().headers.contains_key("authorization");
        Ok(resp_cacheable(control.as_ref(), head.clone(), is_authorized, &DEFAULTS))
    }

    fn is_purge(&self, session: &Session, _: &()) -> bool {
        session.req_header().method.as_str() == "PURGE"
    }

    fn purge_action(&self, session: &Session, _: &()) -> PurgeAction {
        let is_soft = session.req_header().headers.get("x-purge").is_some_and(|kind| kind == "soft");
        if is_soft { PurgeAction::Expire } else { PurgeAction::Delete }
    }

    async fn response_filter(&self, session: &mut Session, head: &mut ResponseHeader, _: &mut ()) -> Result<()> {
        let phase = session.cache.phase();
        let name = if phase == CachePhase::Hit { "hit" } else { phase.as_str() };
        head.insert_header("x-cache", name)
    }
}

fn main() -> Result<()> {
    env_logger::init();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [listen, origin, store, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: proxy LISTEN ORIGIN STORE [durable]");
        std::process::exit(2);
    };
    let mut options = Options::new(store).capacity(256 << 20).memory(64 << 20);
    if !rest.is_empty() {
        options = options.durability(Durability::EveryPut);
    }
    let storage = Picaflor::open(options)?;

    let mut server = Server::new(None)?;
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, Cached { origin: origin.clone(), storage });
    proxy.add_tcp(listen);
    server.add_service(proxy);
    // What was cached last is durable when the server ends.
    server.add_service(background_service("picaflor", storage));
    server.run_forever()
}
