//! One object of many that are put in one call.

use crate::{PutOptions, base::options::PLAIN};

/// An object of [`Store::put_many`](crate::Store::put_many).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Put<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// As of [`Store::put_with`](crate::Store::put_with).
    pub options: &'a PutOptions,
}

impl<'a> Put<'a> {
    /// What [`Store::put`](crate::Store::put) puts.
    pub fn new(key: &'a [u8], body: &'a [u8]) -> Self {
        Self::with(key, body, &PLAIN)
    }

    /// What [`Store::put_with`](crate::Store::put_with) puts.
    pub fn with(key: &'a [u8], body: &'a [u8], options: &'a PutOptions) -> Self {
        Self { key, body, options }
    }
}
