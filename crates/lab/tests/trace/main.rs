//! Traces, from the outside: every format, real logs, and bytes of all sorts.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod formats;
mod real;
