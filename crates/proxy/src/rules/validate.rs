//! Conditions: what we ask the origin (RFC 9111 4.3.1), what a 304 changes (4.3.4), and what a client's own
//! conditions mean for a stored response (4.3.2, RFC 9110 13).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    admit::{date, parse_date},
    directives::{self, lines, split_list},
};

/// Fields that clients use to ask conditionally, and that we replace with our own.
pub(crate) const CONDITIONS: [HeaderName; 6] = [
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
    header::IF_MATCH,
    header::IF_UNMODIFIED_SINCE,
];

/// Takes a client's conditions and ranges out of a request.
pub(crate) fn remove_conditions(headers: &mut HeaderMap) {
    for name in CONDITIONS {
        headers.remove(name);
    }
}

/// Whether a request has a precondition, which a cache does not judge (RFC 9111 4.3.2) unless it acts for the origin.
pub(crate) fn has_precondition(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_MATCH) || request.contains_key(header::IF_UNMODIFIED_SINCE)
}

/// Whether a precondition does not hold, so that 412 is the answer (RFC 9110 13.2.2): `If-Match`, by strong comparison,
/// decides where it is there, `If-Unmodified-Since` otherwise.
pub(crate) fn precondition_failed(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> bool {
    if status != StatusCode::OK {
        return false;
    }
    if request.contains_key(header::IF_MATCH) {
        let own = stored.get(header::ETAG).map(HeaderValue::as_bytes).filter(|etag| etag.starts_with(b"\""));
        return !request.get_all(header::IF_MATCH).iter().any(|line| {
            line.to_str().is_ok_and(|line| split_list(line).any(|tag| tag == "*" || own == Some(tag.as_bytes())))
        });
    }
    match (date(request, header::IF_UNMODIFIED_SINCE), date(stored, header::LAST_MODIFIED)) {
        (Some(since), Some(modified)) => modified > since,
        _ => false,
    }
}

/// Adds the conditions that make the origin confirm the stored response; false when it has no validator.
pub(crate) fn validators(stored: &HeaderMap, request: &mut HeaderMap) -> bool {
    let mut any = false;
    if let Some(etag) = stored.get(header::ETAG) {
        request.insert(header::IF_NONE_MATCH, etag.clone());
        any = true;
    }
    if let Some(modified) = stored.get(header::LAST_MODIFIED) {
        request.insert(header::IF_MODIFIED_SINCE, modified.clone());
        any = true;
    }
    any
}

/// Whether a 304 speaks of the stored response (4.3.4): its strong validator, if it has one, must be the same.
pub(crate) fn confirms(stored: &HeaderMap, not_modified: &HeaderMap) -> bool {
    match (not_modified.get(header::ETAG), stored.get(header::ETAG)) {
        (Some(new), Some(old)) => weak(new.as_bytes()) == weak(old.as_bytes()),
        (Some(new), None) => new.as_bytes().starts_with(b"W/"),
        (None, _) => match (not_modified.get(header::LAST_MODIFIED), stored.get(header::LAST_MODIFIED)) {
            (Some(new), Some(old)) => new == old,
            _ => true,
        },
    }
}

/// Puts the fields of a 304 in place of the stored ones (3.2), except those that describe the body we keep.
pub(crate) fn freshen(stored: &mut HeaderMap, not_modified: &HeaderMap) {
    for name in not_modified.keys() {
        let about_body = [
            header::CONTENT_LENGTH,
            header::CONTENT_ENCODING,
            header::CONTENT_RANGE,
            header::TRANSFER_ENCODING,
            header::VIA,
        ];
        if about_body.contains(name) || matches!(name.as_str(), "content-md5" | "content-digest") {
            continue;
        }
        stored.remove(name);
        for value in not_modified.get_all(name) {
            stored.append(name.clone(), value.clone());
        }
    }
    // An age or a date that the 304 does not repeat is that of the old response.
    for name in [header::AGE, header::DATE] {
        if !not_modified.contains_key(&name) {
            stored.remove(name);
        }
    }
}

fn weak(etag: &[u8]) -> &[u8] {
    etag.strip_prefix(b"W/").unwrap_or(etag)
}

/// Whether the client already has this response, so that 304 is the answer (RFC 9110 13.2.2): `If-None-Match`
/// decides where it is there, `If-Modified-Since` otherwise.
pub(crate) fn not_modified(request: &HeaderMap, status: StatusCode, stored: &HeaderMap, received: u64) -> bool {
    let since = request.get(header::IF_MODIFIED_SINCE).map(HeaderValue::as_bytes);
    status == StatusCode::OK
        && Validators::of(stored).are_known(lines(request, &header::IF_NONE_MATCH), since, received)
}

/// Whether `If-Range` lets the range count (RFC 9110 13.1.5).
pub(crate) fn if_range(request: &HeaderMap, stored: &HeaderMap) -> bool {
    Validators::of(stored).let_range(request.get(header::IF_RANGE).map(HeaderValue::as_bytes))
}

/// What a client can tell a stored response by: values of its fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Validators<'a> {
    pub(crate) etag: Option<&'a [u8]>,
    pub(crate) modified: Option<&'a [u8]>,
    pub(crate) date: Option<&'a [u8]>,
}

impl<'a> Validators<'a> {
    fn of(stored: &'a HeaderMap) -> Self {
        let value = |name| stored.get(name).map(HeaderValue::as_bytes);
        Self { etag: value(header::ETAG), modified: value(header::LAST_MODIFIED), date: value(header::DATE) }
    }

    /// Whether a client with these lines of `If-None-Match`, or, without any, this `If-Modified-Since`, has what was
    /// received then.
    pub(crate) fn are_known<'b>(
        &self,
        none_match: impl Iterator<Item = &'b [u8]>,
        modified_since: Option<&[u8]>,
        received: u64,
    ) -> bool {
        let mut lines = none_match.peekable();
        if lines.peek().is_some() {
            let own = self.etag.map(weak);
            let is_own = |tag: &str| tag == "*" || own.is_some_and(|own| own == weak(tag.as_bytes()));
            return lines.filter_map(directives::text).any(|line| split_list(line).any(is_own));
        }
        let Some(since) = modified_since.and_then(parse_date) else { return false };
        let modified = self.modified.and_then(parse_date).or_else(|| self.date.and_then(parse_date));
        modified.unwrap_or(received) <= since
    }

    /// Whether this `If-Range` lets the range count: strong comparison.
    pub(crate) fn let_range(&self, condition: Option<&[u8]>) -> bool {
        let Some(condition) = condition else { return true };
        if condition.starts_with(b"\"") {
            return self.etag == Some(condition);
        }
        !condition.starts_with(b"W/") && self.modified == Some(condition) && self.is_strong_date()
    }

    /// A date is a strong validator only when it is a minute older than the response (RFC 9110 8.8.2.2).
    fn is_strong_date(&self) -> bool {
        match (self.modified.and_then(parse_date), self.date.and_then(parse_date)) {
            (Some(modified), Some(date)) => date >= modified + 60_000,
            _ => false,
        }
    }
}

/// The strong validator of a stored response, and the field that has it: what `If-Range` may be asked with
/// (RFC 9110 13.1.5). A date counts only without an entity tag.
pub(crate) fn strong(stored: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
    match (stored.get(header::ETAG), stored.get(header::LAST_MODIFIED)) {
        (Some(etag), _) => etag.as_bytes().starts_with(b"\"").then(|| (header::ETAG, etag.clone())),
        (None, Some(modified)) => {
            Validators::of(stored).is_strong_date().then(|| (header::LAST_MODIFIED, modified.clone()))
        }
        (None, None) => None,
    }
}

/// The fields of a stored response that a 304 to the client repeats (RFC 9110 15.4.5).
pub(crate) fn kept_in_304(name: &[u8]) -> bool {
    !matches!(name, b"content-type" | b"content-length" | b"content-encoding" | b"content-range")
}

/// `value` as a header value; the texts we make ourselves always are.
pub(crate) fn text(value: impl AsRef<str>) -> HeaderValue {
    HeaderValue::from_str(value.as_ref()).unwrap_or_else(|_| HeaderValue::from_static(""))
}
