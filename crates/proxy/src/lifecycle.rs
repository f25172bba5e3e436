//! What starting and stopping are to those that take part in it.

use std::{io, net::SocketAddr, time::Duration};

/// What can go wrong at start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}{help}", help = mend(.1))]
    Listen(SocketAddr, io::Error),
    /// The store does not open.
    #[error("{0}")]
    Store(String),
    /// The store does not take a setting of the configuration.
    #[error("{0}")]
    Setting(String),
    /// The store does not open because what it holds is damaged.
    #[error("{0}")]
    Damaged(String),
    /// A file of ours cannot be written or read.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What would help where an address cannot be listened on.
fn mend(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::AddrInUse => "; stop the program that has it, or listen on another port",
        io::ErrorKind::AddrNotAvailable => "; listen on an address that this machine has, or on 0.0.0.0 for all",
        io::ErrorKind::PermissionDenied => "; listen on a port from 1024 on, or give the program CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

/// How far it is to stop: listening first, so that no client whose idle connection closes gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Not,
    Listening,
    All,
}

/// How long connections that were let in last have for their first request, and those that were not told of the stop
/// for one more.
pub(crate) const LAST_REQUESTS: Duration = Duration::from_millis(100);
