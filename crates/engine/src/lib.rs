//! A crash-safe store for web objects: small, many, immutable things with keys.
#![forbid(unsafe_code)]

mod error;
mod options;

pub use error::{Error, Miss, Refusal, Result};
pub use options::{
    Admission, Daemons, Departure, Durability, EvictionListener, Expiry, Mode, Options, Place, PutOptions,
};
