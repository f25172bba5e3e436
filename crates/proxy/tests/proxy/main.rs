//! The whole proxy against real origins: nginx, and a small server on a raw socket for what nginx will not do.
//! The client is curl where a user's view matters, and a plain socket where every byte does.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod cache;
mod certs;
mod collapse;
mod connection;
mod esi;
mod extended;
mod forward;
mod front;
mod half;
mod http2;
mod http3;
mod interim;
mod kit;
mod limits;
mod mirrors;
mod nginx;
mod origin_http2;
mod origin_tls;
mod packaging;
mod purge;
mod ranges;
mod readers;
mod redirects;
mod reload;
mod rules;
mod scrape;
mod slices;
mod sweep;
mod tls;
mod trust;
mod upgrade;
mod users;
