//! A caching HTTP proxy, reverse and forward, with and without TLS, on a picaflor store.
//!
//! [`Config`] says what it does, [`Server::start`] does it. Where to read:
//!
//! | what | where |
//! |---|---|
//! | starting and stopping; what workers share meanwhile; a new configuration | `server`; `proxy`; `reload` |
//! | a request's way through the proxy | `life` (slow path), `fast` (memory hits, under hyper) |
//! | a connection's way through the proxy | `listen`, `serve`, `http2`, `http3`, `streams` |
//! | whether a response may be stored, reused, served stale | `rules` |
//! | one fetch for many clients | `fills`, `fill`, `reader`, `fetch`, `life/collapse` |
//! | a stored body that breaks off while it is sent | `rest` |
//! | what is written into the store, and invalidated | `key`, `head`, `keep`, `purge` |
//! | what clients may | `target`, `dial::Guard`, `admin`, `users`, `access` |
//! | how much they may, how slowly | `connections`, `turns`, `pace` |
//! | connections to origins | `dial`, `pool`, `origin` |
//! | tunnels: CONNECT; WebSocket and other protocols | `life/connect`; `life/upgrade`, `upgrade`; `tunnel` |
//! | large bodies that the kernel sends without copying | `mirrors` |
//! | memory, as the kernel counts it | `resident` |
//! | what stands in front of us, and what it says counts | `front` |
//! | TLS to clients; to origins; certificates; a connection | `tls`; `origin_tls`; `certs`; `stream` |
//!
//! Every refusal and bypass has a name, in `reason`, and the name is in `Cache-Status`, the metrics and the log.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod admin;
mod body;
mod certs;
mod clock;
pub mod config;
mod conn;
mod connections;
mod device;
mod dial;
mod duty;
mod esi;
mod explain;
mod fast;
mod fetch;
mod fill;
mod filling;
mod fills;
mod follow;
mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handed;
mod head;
mod http2;
mod http3;
mod keep;
mod key;
mod life;
mod lifecycle;
mod listen;
mod log;
mod lookup;
mod metrics;
mod mirrors;
mod multiplexed;
mod object;
mod objects;
mod origin;
mod origin_http1;
mod origin_tls;
mod outgoing;
mod pace;
mod passed;
mod payload;
mod pieces;
mod place;
mod pool;
mod proxy;
mod purge;
mod range;
mod reader;
mod reason;
mod redirect;
mod reference;
mod reload;
mod replace;
mod resident;
mod respond;
mod rest;
mod rules;
mod ruleset;
mod serve;
mod server;
mod silent;
mod slice;
mod sliced;
mod slices;
mod stream;
mod streams;
mod target;
mod tls;
mod tunnel;
mod turns;
mod unshared;
mod upgrade;
mod upload;
mod users;
mod verdict;
mod wild;
mod wire;

pub use config::{Config, ConfigError, Low};
pub use lifecycle::StartError;
pub use reload::ReloadError;
pub use server::Server;
