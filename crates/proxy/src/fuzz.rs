//! What must hold whatever a client, an origin or a configuration file says. `scripts/fuzz` looks for bytes that break
//! this, guided by coverage; what it kept lies in `fuzz/corpus` and is replayed here as a test.

mod arriving;
mod heads;
mod whole;

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::{
    config::{Config, Low},
    esi::markup,
    front::{self, Beginning},
    head::{self, Head, Note, Stored},
    key,
    range::{self, Plan},
    reference::Reference,
    rules::{
        Asked, Failure,
        admit::{Exchange, admit},
        directives::{self, RequestDirectives, ResponseDirectives},
        validate, vary,
    },
};

/// One target: its name, and what must not panic.
pub type Target = (&'static str, fn(&[u8]));

/// The targets.
pub const TARGETS: &[Target] = &[
    ("head", heads::head),
    ("proxy", whole::proxy),
    ("front", front),
    ("answer", answer),
    ("arriving", arriving::arriving),
    ("stored", stored),
    ("config", config),
    ("esi", esi),
];

/// A moment after everything that a response can have to do with.
const NOW: u64 = 1_800_000_000_000;

static CONFIG: LazyLock<Config> = LazyLock::new(|| resolved("").expect("the defaults"));

/// A configuration whose store is nowhere, so that only its text matters.
fn resolved(text: &str) -> Result<Config, crate::ConfigError> {
    let mut low = Low::parse("fuzz.toml", text)?;
    low.store.path = Some(std::env::temp_dir().join("picaflor-fuzz-nowhere"));
    low.resolve()
}

/// Lines of fields up to an empty one, and what follows it.
fn fields(bytes: &[u8]) -> (HeaderMap, &[u8]) {
    let mut found = HeaderMap::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            found.append(name, value);
        }
    }
    (found, rest)
}

/// What a front's connection begins with: it is the same whatever comes behind it, and nothing less is as much.
fn front(bytes: &[u8]) {
    let found = front::header(bytes);
    match found {
        Beginning::Partial => assert!(bytes.len() < front::LONGEST),
        Beginning::Bad => assert_eq!(front::header(&[bytes, b"\n"].concat()), Beginning::Bad),
        Beginning::Header(len, _) => {
            assert!(len <= bytes.len().min(front::LONGEST));
            assert_eq!(front::header(&bytes[..len]), found);
            assert!((0..len).all(|less| front::header(&bytes[..less]) == Beginning::Partial));
        }
    }
}

/// A request's fields, an empty line, the fields of the answer to it.
fn answer(bytes: &[u8]) {
    let (request, rest) = fields(bytes);
    let (response, body) = fields(rest);
    let asked = Asked::of(&request);
    let status = body.first_chunk().map_or(200, |bytes| 200 + u16::from_le_bytes(*bytes) % 400);
    let status = StatusCode::from_u16(status).expect("200 to 599");
    for for_origin in [false, true] {
        let exchange = Exchange {
            method: &Method::GET,
            request: &request,
            status,
            response: &response,
            sent: NOW - 1500,
            received: NOW,
            for_origin,
        };
        let admitted = admit(&exchange, &CONFIG.cache);
        let directives = ResponseDirectives::parse(&response, for_origin);
        if directives.private || (directives.no_store && !directives.must_understand) {
            assert!(admitted.is_err(), "{response:?}");
        }
        if let Ok(policy) = admitted {
            assert!(vary::names(&response, for_origin).is_some());
            kept(&response, status, policy, &asked);
        }
    }
    forbidden(&response);
    let same = validate::confirms(&response, &response);
    assert!(same || response.get(header::ETAG).is_none_or(|etag| !etag.is_empty()));
    let mut stored = request.clone();
    validate::freshen(&mut stored, &response);
    validate::validators(&response, &mut stored);
    let _ = validate::not_modified(&request, status, &response, NOW);
    let _ = validate::if_range(&request, &response);
    conditions(&request, body.len() as u64);
}

/// What is stored is what was admitted.
fn kept(response: &HeaderMap, status: StatusCode, policy: crate::rules::Policy, asked: &Asked) {
    let bytes =
        head::encode(status, response, &Note { policy: &policy, received: NOW, seq: 0, tags: &[] }, head::Body::Here);
    let Stored::Response(found) = head::decode(&bytes) else { panic!("{response:?} cannot be read again") };
    assert_eq!((found.status, found.policy, found.received), (status, policy, NOW));
    let mut sent = response.clone();
    sent.remove(header::CONTENT_LENGTH);
    sent.remove(header::AGE);
    assert_eq!(Head::fields(&bytes), sent);
    let mut lines = [httparse::EMPTY_HEADER; 300];
    let whole = [Head::wire(&bytes), b"\r\n"].concat();
    let mut parsed = httparse::Response::new(&mut lines);
    let is_head = sent.len() > 300 || parsed.parse(&whole).is_ok_and(|status| status.is_complete());
    assert!(is_head, "what a hit sends is no head: {whole:?}");
    for now in [0, NOW, NOW + 60_000, u64::MAX] {
        let _ = policy.reuse(asked, now);
        let _ = policy.survives(asked, Failure::Disconnected, &CONFIG.cache, now);
    }
}

/// A directive that forbids counts, whatever stands before it.
fn forbidden(response: &HeaderMap) {
    let mut more = response.clone();
    more.append(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    assert!(ResponseDirectives::parse(&more, false).no_store);
    let Some(first) = response.get(header::CACHE_CONTROL) else { return };
    let line = [first.as_bytes(), b", private, max-age=1"].concat();
    more.insert(header::CACHE_CONTROL, HeaderValue::from_bytes(&line).expect("it was one before"));
    let found = ResponseDirectives::parse(&more, false);
    assert!(found.private, "{line:?}");
    if !quotes_are_closed(first.as_bytes()) {
        return;
    }
    assert!(found.max_age.is_some_and(|millis| millis <= 1000), "{line:?}");
    more.insert(header::CACHE_CONTROL, HeaderValue::from_bytes(&line).expect("it was one before"));
    assert!(
        RequestDirectives::parse(directives::lines(&more, &header::CACHE_CONTROL))
            .max_age
            .is_some_and(|millis| millis <= 1000),
        "{line:?}"
    );
}

fn quotes_are_closed(line: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for &byte in line {
        (quoted, escaped) = match byte {
            _ if escaped => (quoted, false),
            b'\\' if quoted => (quoted, true),
            b'"' => (!quoted, false),
            _ => (quoted, false),
        };
    }
    !quoted
}

/// Fields of a request whose values are small languages.
fn conditions(request: &HeaderMap, len: u64) {
    for value in request.get_all(header::RANGE) {
        match range::plan(value.as_bytes(), len) {
            Plan::One(part) => assert!(part.start < part.end && part.end <= len),
            Plan::Several(parts) => assert!(parts.iter().all(|part| part.start < part.end && part.end <= len)),
            Plan::Whole | Plan::Nothing => {}
        }
    }
    for value in request.get_all(header::LOCATION) {
        if let Some(named) = Reference::parse(value.as_bytes()) {
            let against = named.against((b"/a/b", Some(b"q")));
            // Behind a scheme there may be anything, behind a host nothing.
            let is_relative = named.scheme.is_none() && named.authority.is_none();
            assert!(!is_relative || against.starts_with(b"/"), "{value:?}");
        }
    }
    for value in request.get_all(header::REFERER) {
        let _ = key::neighbour(key::Side::Forward, b"a.example", value.as_bytes());
        if let Ok(text) = value.to_str()
            && let Ok(keys) = key::of_url(text)
        {
            assert!(keys.iter().all(|key| key.len() <= key::MAX));
        }
        assert!(directives::split_list(value.to_str().unwrap_or("")).all(|part| !part.is_empty()));
    }
}

/// What is stored beside a body.
fn stored(bytes: &[u8]) {
    let fields = Head::fields(bytes);
    match head::decode(bytes) {
        Stored::Response(found) => {
            for now in [0, NOW, found.policy.birth, u64::MAX] {
                let _ = found.policy.reuse(&Asked::of(&fields), now);
                let _ = found.policy.survives(&Asked::default(), Failure::ServerError, &CONFIG.cache, now);
                assert!(found.policy.age(now) <= now);
            }
            let body = match (found.slicing, bytes[1]) {
                (Some(slicing), _) => head::Body::Sliced(slicing),
                (None, 3) => head::Body::Of(found.generation),
                (None, _) => head::Body::Here,
            };
            let tags: Vec<u64> = Head::tags(bytes).collect();
            let note = Note { policy: &found.policy, received: found.received, seq: found.seq, tags: &tags };
            let again = head::encode(found.status, &fields, &note, body);
            let Stored::Response(same) = head::decode(&again) else { panic!("it cannot be read again") };
            assert_eq!((same.status, same.policy, same.received), (found.status, found.policy, found.received));
            assert!(same.seq == found.seq && same.slicing == found.slicing && Head::tags(&again).eq(tags));
        }
        Stored::Vary(index) => {
            let again = head::encode_index(&index).expect("it was short enough");
            let Stored::Vary(same) = head::decode(&again) else { panic!("it cannot be read again") };
            assert_eq!(same, index);
        }
        Stored::Unreadable => {}
    }
}

/// Where the pieces of a page end, a line's end, its markup. What is read of it does not depend on the former.
fn esi(bytes: &[u8]) {
    let at = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
    let (steps, page) = bytes.split_at(at);
    let sum = |at: &mut usize, step: &u8| {
        *at += usize::from(*step);
        Some(*at)
    };
    let cuts: Vec<_> = steps.iter().scan(0, sum).collect();
    match (markup::read(page, &[]), markup::read(page, &cuts)) {
        (Err(_), Err(_)) => {}
        (whole, cut) => assert_eq!(whole, cut),
    }
}

/// A configuration file: a named error, or a configuration that is a file again.
fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match resolved(text) {
        Ok(config) => {
            let shown = config.to_toml();
            match resolved(&shown) {
                Ok(again) => assert_eq!(again.to_toml(), shown),
                Err(why) => panic!("{why}\n{shown}"),
            }
        }
        Err(why) => assert!(!why.place.is_empty() && !why.why.is_empty(), "{why:?}"),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpora_find_nothing() {
        super::replay::all(super::TARGETS);
    }
}
