//! `Vary` (RFC 9111 4.1): which request fields select a stored response, and how their values are compared.

use http::{HeaderMap, header};

/// The names in `Vary`, lower case, sorted, each once. `None` is `Vary: *`.
///
/// What we set ourselves for an origin behind us is not what the client said: scheme and host are in the key, and a
/// response for one client's address is for no other.
pub(crate) fn names(response: &HeaderMap, for_origin: bool) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for line in response.get_all(header::VARY) {
        // A line that is not text names fields we cannot compare.
        let text = line.to_str().ok()?;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "*" {
                return None;
            }
            match name.to_ascii_lowercase() {
                name if name == "host" => {}
                name if for_origin && matches!(name.as_str(), "x-forwarded-host" | "x-forwarded-proto") => {}
                name if for_origin && matches!(name.as_str(), "x-forwarded-for" | "forwarded") => return None,
                name => names.push(name),
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The value of the field `name` that selects: its lines joined, spaces around commas removed; lower case
/// where the field is defined to be case-insensitive. An absent field is distinct from an empty one.
pub(crate) fn selecting<'a>(name: &str, lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut value = Vec::new();
    for (n, part) in lines.flat_map(|line| line.split(|b| *b == b',')).enumerate() {
        value.push(if n == 0 { b'=' } else { b',' });
        value.extend_from_slice(part.trim_ascii());
    }
    if matches!(name, "accept-encoding" | "accept-language") {
        value.make_ascii_lowercase();
    }
    value
}

/// [`selecting`] for each of `names`, out of a parsed head.
pub(crate) fn values(names: &[String], request: &HeaderMap) -> Vec<Vec<u8>> {
    names
        .iter()
        .map(|name| selecting(name, request.get_all(name.as_str()).iter().map(http::HeaderValue::as_bytes)))
        .collect()
}
