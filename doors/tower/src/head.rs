//! What lies beside a body: status, headers, and the policy that says for which requests, and how long, it is good.

use http::{HeaderMap, StatusCode};
use http_cache_semantics::CachePolicy;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Head {
    #[serde(with = "http_serde::status_code")]
    pub(crate) status: StatusCode,
    #[serde(with = "http_serde::header_map")]
    pub(crate) headers: HeaderMap,
    pub(crate) policy: CachePolicy,
}

/// Metadata of an object may not be longer.
const LONGEST: usize = 64 << 10;

impl Head {
    /// None if it cannot be kept.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        rmp_serde::to_vec_named(self).ok().filter(|bytes| bytes.len() < LONGEST)
    }

    /// None of what another version wrote: that is a miss.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(bytes).ok()
    }
}
