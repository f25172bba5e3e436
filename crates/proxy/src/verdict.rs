//! What came of asking the origin, for all requests that wait for it.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::{
    lookup::Hit,
    reason::{NoAnswer, NotStored},
    rules::Policy,
    slices::Slicing,
};

/// A response head that several requests may answer with.
#[derive(Debug)]
pub(crate) struct FillHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) policy: Policy,
    pub(crate) received: u64,
    pub(crate) len: Option<u64>,
    /// Where it is being stored: the key of the URL, or of the variant.
    pub(crate) key: Vec<u8>,
    /// `Vary` and the values of the request that was sent.
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<Vec<u8>>,
    /// It is not stored, and only for the requests that wait for it.
    pub(crate) is_error: bool,
    /// The body does not come with it: it is in slices.
    pub(crate) slicing: Option<Slicing>,
}

/// What came of asking the origin.
#[derive(Clone)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Waiting,
    /// A storable response, its body arriving.
    Streaming(Arc<FillHead>),
    /// A storable response, whose body is to be had in slices.
    Sliced(Arc<FillHead>),
    /// Of a slice: there is another version of the object.
    Changed,
    /// The stored response is confirmed; its fields with those of the 304 in place. With a reason, the 304 is for the
    /// first request alone.
    Confirmed(Hit, Arc<HeaderMap>, Option<NotStored>),
    /// It was stored while this began: look again.
    Stored,
    /// A response for the first request alone.
    Alone(NotStored),
    /// 500, 502, 503 or 504, for the first request alone if nothing stale may be served.
    ServerError,
    /// No response.
    Failed(NoAnswer),
}
