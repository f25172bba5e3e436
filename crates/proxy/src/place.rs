//! What connections are to: an origin, and whether it is spoken to by TLS.

use http::uri::Authority;

/// See above.
pub(crate) type Place = (Authority, bool);

/// The port of a URL that names none.
pub(crate) fn own_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}
