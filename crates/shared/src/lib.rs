//! One store for several processes of a machine: the one that has it open serves the others over a Unix socket.
//!
//! ```no_run
//! use picaflor::{Options, Store};
//! use picaflor_shared::{Client, Limits, serve};
//!
//! // One process:
//! let store = Store::open(Options::new("cache.store").capacity(1 << 30))?;
//! let server = serve(store, "cache.sock", Limits::default())?;
//!
//! // Any other of the same user:
//! let client = Client::connect("cache.sock")?;
//! client.put(b"key", b"body")?;
//! assert_eq!(client.get(b"key")?.as_deref(), Some(&b"body"[..]));
//! # server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `wire.rs` is the protocol, frame by frame, and knows neither side. A server is a thread that accepts (`server.rs`)
//! and one for each connection (`session.rs`): a get that reads the device does so on its own thread, as in the engine.
//! A client keeps connections and takes one for a call (`client.rs`, `connection.rs`).
//!
//! Invariants: nothing that a peer sends makes the server allocate more than a frame, or do more than end that peer's
//! connection; an object is in the store when its last frame has come, not before; nothing waits for a slow client but
//! the thread that serves it.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod client;
mod connection;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod kind;
mod served;
mod server;
mod session;
mod wire;

pub use client::{Client, Incoming, Listing, Outgoing, is_socket};
pub use error::{Error, Result};
pub use kind::Kind;
pub use served::Limits;
pub use server::{Server, Socket, serve};
pub use wire::{Entry, Head, VERSION};
