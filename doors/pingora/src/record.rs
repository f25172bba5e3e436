//! What an object is to the store: its key, and its metadata.
//!
//! Invariants: a key of the store follows from a compact cache key alone, so a purge finds what a fill put; the user's
//! tag is not a part of it, as for every storage of Pingora's. Each fill has a number of its own, by which a note on
//! newer headers knows the body that it belongs to.

use bytes::Bytes;
use pingora_cache::{CacheMeta, key::CacheHashKey};
use pingora_error::{Error, ErrorType::InternalError, Result};

/// First byte of the key of a response, and of a note on one.
const RESPONSE: u8 = b'r';
const NOTE: u8 = b'n';

/// The key of a response: a letter, the primary hash, and that of the variant if there is one.
pub(crate) fn response_key(key: &impl CacheHashKey) -> Bytes {
    let mut bytes = vec![RESPONSE];
    bytes.extend_from_slice(&key.primary_bin());
    bytes.extend_from_slice(key.variance_bin().as_ref().map_or(&[], |variance| variance));
    bytes.into()
}

/// The key of the note on the response with this key.
pub(crate) fn note_key(response: &[u8]) -> Vec<u8> {
    let mut bytes = response.to_vec();
    bytes[0] = NOTE;
    bytes
}

/// Number of the fill, length of the internal part, internal part, headers.
pub(crate) fn encode(fill: u64, meta: &CacheMeta) -> Result<Bytes> {
    let (internal, headers) = meta.serialize()?;
    let mut bytes = Vec::with_capacity(12 + internal.len() + headers.len());
    bytes.extend_from_slice(&fill.to_le_bytes());
    bytes.extend_from_slice(&(internal.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&internal);
    bytes.extend_from_slice(&headers);
    Ok(bytes.into())
}

/// The other way.
pub(crate) fn decode(bytes: &[u8]) -> Result<(u64, CacheMeta)> {
    let cut = || Error::explain(InternalError, "the metadata of a cached response is cut off");
    let (fill, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut)?;
    let (internal, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (internal, headers) = rest.split_at_checked(u32::from_le_bytes(*internal) as usize).ok_or_else(cut)?;
    Ok((u64::from_le_bytes(*fill), CacheMeta::deserialize(internal, headers)?))
}
