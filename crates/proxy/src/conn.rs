//! What the parts that share one client connection tell each other: the socket wrapper (`fast`), the service that
//! hyper calls (`life`), the bodies that hyper sends (`body`), and the worker's sweep for connections that stand
//! still (`listen`). All of it is flags; the connection belongs to one thread.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::config::Config;

/// Whose requests a connection carries, and what counts of what they say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    /// Whether it may go through us to elsewhere.
    pub(crate) may_forward: bool,
    /// It is a front: what it says of its own clients is kept.
    pub(crate) is_front: bool,
    /// It is connected by TLS, to us or to the front before us.
    pub(crate) is_encrypted: bool,
}

impl Client {
    /// The other end of a connection.
    pub(crate) fn peer(address: IpAddr, config: &Config) -> Self {
        let is_front = config.front.trusted.iter().any(|net| net.contains(&address));
        // A front asks for others: whether these may is not known.
        let may_forward = !is_front && config.forward.clients.iter().any(|net| net.contains(&address));
        Self { address, may_forward, is_front, is_encrypted: false }
    }
}

/// What a connection is doing, as far as time limits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between requests.
    Idle = 0,
    /// A request head has begun.
    Head = 1,
    /// The request is being answered; nothing is stuck in the socket.
    Busy = 2,
    /// The client does not take what we have for it.
    Sending = 3,
    /// TLS has begun, and no request can.
    Handshake = 4,
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Its address, or the one that a front named.
    pub(crate) client: IpAddr,
    /// Whether it may go through us to elsewhere.
    pub(crate) may_forward: bool,
    /// What it says of its own clients is kept.
    pub(crate) is_front: bool,
    /// By TLS: to us, or, as a front says, to that.
    pub(crate) is_encrypted: bool,
    phase: AtomicU8,
    since: AtomicU32,
    response_done: AtomicBool,
    is_last: AtomicBool,
    /// Bytes that the socket has taken.
    taken: AtomicU64,
    /// For how many seconds there has always been more for it, and what it had taken before them.
    full: AtomicU32,
    taken_before: AtomicU64,
    /// Of HTTP/2.
    streams: Streams,
}

/// Those that are open, and those of them that may have to be ended: since when each waits for its client, 0 where it
/// does not.
#[derive(Debug, Default)]
struct Streams {
    open: AtomicU32,
    waiting: Mutex<Vec<(Arc<AtomicU32>, AbortHandle)>>,
}

impl Conn {
    pub(crate) fn new(client: &Client, tick: u32) -> Self {
        Self {
            client: client.address,
            may_forward: client.may_forward,
            is_front: client.is_front,
            is_encrypted: client.is_encrypted,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU32::new(tick),
            response_done: AtomicBool::new(true),
            is_last: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            full: AtomicU32::new(0),
            taken_before: AtomicU64::new(0),
            streams: Streams::default(),
        }
    }

    /// Enters a phase at the worker's tick (seconds).
    #[inline]
    pub(crate) fn enter(&self, phase: Phase, tick: u32) {
        self.phase.store(phase as u8, Relaxed);
        self.since.store(tick, Relaxed);
    }

    /// Enters a phase unless it is in it already: its beginning counts, not its latest moment.
    pub(crate) fn enter_once(&self, phase: Phase, tick: u32) {
        if self.phase.load(Relaxed) != phase as u8 {
            self.enter(phase, tick);
        }
    }

    /// The phase and the tick of its beginning, or of its latest progress.
    pub(crate) fn phase(&self) -> (Phase, u32) {
        let phase = match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Sending,
            _ => Phase::Handshake,
        };
        (phase, self.since.load(Relaxed))
    }

    /// The socket has taken so many bytes.
    #[inline]
    pub(crate) fn take(&self, bytes: usize) {
        self.taken.store(self.taken.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
    }

    /// Asked once a second: whether for `window` seconds there has been more for the client than it took, and that was
    /// less than `rate` bytes a second.
    pub(crate) fn is_slow(&self, rate: u64, window: u32) -> bool {
        let (taken, full) = (self.taken.load(Relaxed), self.full.load(Relaxed) + 1);
        let is_full = self.phase().0 == Phase::Sending;
        if is_full && full < window {
            self.full.store(full, Relaxed);
            return false;
        }
        let before = self.taken_before.swap(taken, Relaxed);
        self.full.store(0, Relaxed);
        is_full && taken.wrapping_sub(before) < rate.saturating_mul(u64::from(full))
    }

    /// A stream of HTTP/2 begins.
    pub(crate) fn open_stream(&self, tick: u32) {
        self.streams.open.fetch_add(1, Relaxed);
        if self.phase().0 != Phase::Sending {
            self.enter(Phase::Busy, tick);
        }
    }

    /// It has ended.
    pub(crate) fn close_stream(&self, tick: u32) {
        if self.streams.open.fetch_sub(1, Relaxed) == 1 {
            // Nothing is kept of tasks that are over.
            *self.streams.waiting.lock() = Vec::new();
            if self.phase().0 != Phase::Sending {
                self.enter(Phase::Idle, tick);
            }
        }
    }

    /// Nothing is stuck in the socket: what it does is what its streams do.
    pub(crate) fn enter_streams(&self, tick: u32) {
        let is_open = self.streams.open.load(Relaxed) > 0;
        self.enter(if is_open { Phase::Busy } else { Phase::Idle }, tick);
    }

    /// The task of a stream, and since when it waits for its client.
    pub(crate) fn remember_stream(&self, since: Arc<AtomicU32>, task: AbortHandle) {
        let mut waiting = self.streams.waiting.lock();
        if waiting.len() > 2 * self.streams.open.load(Relaxed) as usize {
            waiting.retain(|(_, task)| !task.is_finished());
        }
        waiting.push((since, task));
    }

    /// The streams whose client has given no room for longer than `limit`.
    pub(crate) fn stalled(&self, now: u32, limit: u32) -> Vec<AbortHandle> {
        if self.streams.open.load(Relaxed) == 0 {
            return Vec::new();
        }
        let is_stalled = |since: &AtomicU32| {
            let since = since.load(Relaxed);
            since > 0 && now.saturating_sub(since) > limit
        };
        let waiting = self.streams.waiting.lock();
        let stalled = waiting.iter().filter(|(since, task)| is_stalled(since) && !task.is_finished());
        stalled.map(|(_, task)| task.clone()).collect()
    }

    /// A request goes to hyper.
    pub(crate) fn begin_response(&self) {
        self.response_done.store(false, Relaxed);
    }

    /// Its response body has been handed over or given up.
    pub(crate) fn end_response(&self) {
        self.response_done.store(true, Relaxed);
    }

    /// Whether hyper has nothing of ours left to send, once it has flushed.
    pub(crate) fn response_done(&self) -> bool {
        self.response_done.load(Relaxed)
    }

    /// The heads of later requests will not be looked at.
    pub(crate) fn make_last(&self) {
        self.is_last.store(true, Relaxed);
    }

    /// Whether the connection is to end with this response, so that every head is looked at.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Relaxed)
    }
}
