//! What can go wrong between a client and the store, named.

use std::{io, path::PathBuf};

use crate::{kind::Kind, wire::VERSION};

/// The result of a client's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server answers at this path.
    #[error("no server at {}: {source}; start one with `picaflor share`", path.display())]
    NoServer {
        /// The socket.
        path: PathBuf,
        /// What connecting said.
        source: io::Error,
    },
    /// The connection broke, or the server did not answer in time. What was asked for may have been done or not; by a
    /// server that did not answer in time, it may still be done after later calls.
    #[error("the server at {} went away: {source}", path.display())]
    Lost {
        /// The socket.
        path: PathBuf,
        /// What reading or writing said.
        source: io::Error,
    },
    /// The server takes no more clients now, or not this one.
    #[error("the server at {} refused the connection: {why}", path.display())]
    Declined {
        /// The socket.
        path: PathBuf,
        /// Its reason.
        why: &'static str,
    },
    /// The server speaks another version of the protocol.
    #[error("the server speaks version {0} of the protocol, this client {VERSION}; use the same build on both sides")]
    Version(u32),
    /// The server sent what does not fit.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The store said no, in its own words.
    #[error("{text}")]
    Store {
        /// What kind of no.
        kind: Kind,
        /// The store's words.
        text: String,
    },
}
