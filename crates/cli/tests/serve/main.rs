//! `picaflor serve` as a process: killed, on a device that fails or rots, in front of an origin that goes away.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod damaged;
mod durable;
mod failing;
mod handed;
mod kit;
mod listed;
mod memory;
mod slices;
mod tls;
mod top;
