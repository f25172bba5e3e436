//! What connections are to: an origin, and whether it is spoken to by TLS.

use http::uri::Authority;

/// See above.
pub(crate) type Place = (Authority, bool);
