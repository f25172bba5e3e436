//! What a session has of its server: the store, and what its client may take.

use std::{sync::atomic::AtomicBool, time::Duration};

use picaflor::Store;

/// What clients may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Most connections at one time; each has a thread and some 200 KiB, and while it puts, a part of the store's
    /// memory: of a large object a cluster. Default 256.
    pub connections: usize,
    /// How long a client may take to send the rest of a frame or of an object, or to take what it asked for, without a
    /// byte moving. One that asks for nothing may be silent for ever. Default 30 s.
    pub patience: Duration,
    /// How long [`Server::stop`](crate::Server::stop) waits for answers that are under way. Default 10 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, patience: Duration::from_secs(30), drain: Duration::from_secs(10) }
    }
}

impl Limits {
    /// Sets the most connections at one time.
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// Sets how long a client may stand still.
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }
}

pub(crate) struct Served {
    pub(crate) store: Store,
    pub(crate) limits: Limits,
    /// Sessions end after the answer that is under way.
    pub(crate) stopping: AtomicBool,
}

impl Served {
    pub(crate) fn new(store: Store, limits: Limits) -> Self {
        Self { store, limits, stopping: AtomicBool::new(false) }
    }
}
