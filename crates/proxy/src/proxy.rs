//! The proxy while it runs: what all workers share, and what each has of its own.

use picaflor::Store;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use http::HeaderValue;
use tokio::sync::watch;

use crate::{
    clock::Clock,
    config::Config,
    connections::Connections,
    fills::Fills,
    log::{Buffer, Line, Log},
    metrics::Counters,
    mirrors::Mirrors,
    origin::Pools,
    origin_tls::OriginTls,
    purge::sequence::Purges,
    reload::{Reload, ReloadError},
    ruleset::Rules,
    silent::Silent,
    target::Origins,
    tls::Tls,
    turns::Turns,
    unshared::Unshared,
    users::Accounts,
};

/// What all workers share.
pub(crate) struct Proxy {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) origins: Origins,
    pub(crate) connections: Arc<Connections>,
    pub(crate) silent: Arc<Silent>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) fills: Fills,
    pub(crate) mirrors: Arc<Mirrors>,
    pub(crate) purges: Arc<Purges>,
    pub(crate) log: Log,
    pub(crate) counters: Vec<Arc<Counters>>,
    /// Our line in `Via`, and our name in it.
    pub(crate) via: HeaderValue,
    pub(crate) pseudonym: String,
    /// Our own addresses.
    pub(crate) own: Arc<[SocketAddr]>,
    /// Of these, the admin listener's.
    pub(crate) admin: SocketAddr,
    pub(crate) token: String,
    pub(crate) started: Instant,
    pub(crate) unshared: Unshared,
    /// Where clients may come by TLS.
    pub(crate) tls: Option<Tls>,
    /// Where HTTP/3 is spoken, as answers name it.
    pub(crate) by_http3: Option<HeaderValue>,
    pub(crate) origin_tls: Arc<OriginTls>,
    pub(crate) reload: Reload,
    pub(crate) rules: Rules,
    pub(crate) accounts: Accounts,
    /// A stop has begun.
    pub(crate) stopping: AtomicBool,
}

impl Proxy {
    /// Where responses are looked for, and what of it is invalid.
    pub(crate) fn stored(&self) -> (&Store, &Purges) {
        (&self.store, &self.purges)
    }

    /// Takes what is new in the configuration, or nothing of it.
    pub(crate) fn reload(&self) -> Result<String, ReloadError> {
        let trusted = (&*self.origin_tls, &self.accounts);
        self.reload.take(&self.config, self.tls.as_ref(), trusted, &self.rules, &self.store)
    }

    /// Whether a connection is to end with the next answer.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

/// What one thread has of its own.
pub(crate) struct Worker {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pools: Pools,
    pub(crate) clock: Clock,
    /// Whether tunnels are to end.
    pub(crate) cut: watch::Sender<bool>,
    lines: Buffer,
}

impl Worker {
    pub(crate) fn new(proxy: Arc<Proxy>, counters: Arc<Counters>) -> Self {
        let shared = (&proxy.silent, &proxy.turns);
        let pools = Pools::new(
            &proxy.config.limits,
            &proxy.own,
            (Origins::new(&proxy.config.origin), &proxy.origin_tls),
            shared,
        );
        let clock = Clock::default();
        clock.set();
        Self { proxy, counters, pools, clock, cut: watch::Sender::new(false), lines: Buffer::default() }
    }

    pub(crate) fn log(&self, line: &Line<'_>) {
        self.counters.log_dropped.add(self.proxy.log.line(&self.lines, line));
    }

    /// Whether fetches that this worker began are still running.
    pub(crate) fn fills_running(&self) -> bool {
        self.counters.fills.get() != self.counters.fills_ended.get()
    }

    pub(crate) fn flush_log(&self) {
        self.counters.log_dropped.add(self.proxy.log.flush(&self.lines));
    }
}
