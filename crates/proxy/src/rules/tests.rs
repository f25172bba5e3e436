//! The rules, row by row. Times: a response is received at [`NOW`], ages and lifetimes are in seconds.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{
    Asked, Failure, Policy, Reuse,
    admit::{Exchange, admit},
    directives::{RequestDirectives, ResponseDirectives},
    invalidates, is_unsafe, validate, vary,
};
use crate::{
    config::{CacheConfig, Low, Size},
    reason::NotStored,
};

const NOW: u64 = 1_700_000_000_000;
/// NOW, and an hour and a day before it.
const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
const HOUR_AGO: &str = "Tue, 14 Nov 2023 21:13:20 GMT";
const DAY_AGO: &str = "Mon, 13 Nov 2023 22:13:20 GMT";
const MINUTE_ON: &str = "Tue, 14 Nov 2023 22:14:20 GMT";

fn head(lines: &[&str]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        map.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn config() -> CacheConfig {
    let mut low = Low::default();
    low.store.capacity = Some(Size(1 << 30));
    low.resolve().unwrap().cache
}

fn stored(status: u16, request: &[&str], response: &[&str]) -> Result<Policy, NotStored> {
    admitted(status, &head(request), &head(response))
}

fn admitted(status: u16, request: &HeaderMap, response: &HeaderMap) -> Result<Policy, NotStored> {
    let exchange = Exchange {
        method: &Method::GET,
        request,
        status: StatusCode::from_u16(status).unwrap(),
        response,
        sent: NOW,
        received: NOW,
        for_origin: true,
    };
    admit(&exchange, &config())
}

/// Lifetime in seconds.
fn lifetime(status: u16, response: &[&str]) -> Option<u64> {
    stored(status, &[], response).ok().map(|policy| policy.lifetime / 1000)
}

#[test]
fn what_is_not_stored_and_why() {
    let fresh = "cache-control: max-age=60";
    let rows: &[(u16, &[&str], &[&str], NotStored)] = &[
        (200, &[], &["cache-control: max-age=60, no-store"], NotStored::NoStore),
        (200, &[], &["cache-control: max-age=60", "cache-control: NO-STORE"], NotStored::NoStore),
        (200, &[], &["cache-control: private, max-age=60"], NotStored::Private),
        (200, &[], &["cache-control: private=\"x, y\", max-age=60"], NotStored::Private),
        (200, &["authorization: x"], &[fresh], NotStored::Authorization),
        (200, &[], &[fresh, "vary: *"], NotStored::VaryStar),
        (200, &[], &[fresh, "vary: a, *"], NotStored::VaryStar),
        (200, &[], &[fresh, "set-cookie: a=b"], NotStored::SetCookie),
        (206, &[], &[fresh], NotStored::Partial),
        (304, &[], &[fresh], NotStored::Status),
        (200, &[], &[], NotStored::NoFreshness),
        (200, &[], &["cache-control: max-age=0"], NotStored::NoFreshness),
        (200, &[], &["cache-control: max-age=60", "age: 60"], NotStored::NoFreshness),
        (200, &[], &["cache-control: no-cache"], NotStored::NoFreshness),
        (299, &[], &["cache-control: must-understand, max-age=60"], NotStored::Status),
        (500, &[], &[], NotStored::NoFreshness),
        (302, &[], &["last-modified: Mon, 13 Nov 2023 22:13:20 GMT"], NotStored::NoFreshness),
    ];
    for (status, request, response, why) in rows {
        assert_eq!(stored(*status, request, response), Err(*why), "{status} {request:?} {response:?}");
    }
}

#[test]
fn what_forbids_counts_in_a_line_that_is_not_well_formed() {
    let rows: &[(&[u8], NotStored)] = &[
        (b"max-age=60; no-store", NotStored::NoStore),
        (b"max-age=60 no-store", NotStored::NoStore),
        (b"no-store;max-age=60", NotStored::NoStore),
        (b"max-age=60, ext=\"a, no-store", NotStored::NoStore),
        (b"max-age=60, ext=\"a\\\", no-store", NotStored::NoStore),
        (b"max-age=60, no-store\xff", NotStored::NoStore),
        (b"max-age=60, \xa0no-store", NotStored::NoStore),
        (b"max-age=60, private=\"set-cookie", NotStored::Private),
        (b"public; private, max-age=60", NotStored::Private),
        (b"max-age=60, \"private", NotStored::Private),
        (b"max-age=60\tPRIVATE", NotStored::Private),
    ];
    for (line, why) in rows {
        let mut response = HeaderMap::new();
        response.append("etag", HeaderValue::from_static("\"a\""));
        response.append("cache-control", HeaderValue::from_bytes(line).unwrap());
        assert_eq!(admitted(200, &HeaderMap::new(), &response), Err(*why), "{}", line.escape_ascii());
    }
    let invalid = ["cdn-cache-control: max-age=60, no-store, &&&&", "cache-control: max-age=60"];
    assert_eq!(stored(200, &[], &invalid), Err(NotStored::NoStore), "of a field that counts for nothing, too");
    for fine in ["x-private, no-storeroom, max-age=60", "a=\"no-store, private\", max-age=60", "a=private, max-age=60"]
    {
        assert_eq!(lifetime(200, &[&format!("cache-control: {fine}")]), Some(60), "{fine}");
    }
}

#[test]
fn what_is_stored_although() {
    let rows: &[(u16, &[&str], &[&str])] = &[
        (200, &["authorization: x"], &["cache-control: public, max-age=60"]),
        (200, &["authorization: x"], &["cache-control: s-maxage=60"]),
        (200, &["authorization: x"], &["cache-control: must-revalidate, max-age=60"]),
        (200, &[], &["cache-control: no-store, must-understand, max-age=60"]),
        (200, &[], &["cache-control: public, max-age=60", "set-cookie: a=b"]),
        (200, &[], &["cache-control: no-cache", "etag: \"a\""]),
        (200, &[], &["etag: \"a\""]),
        (200, &[], &["cache-control: max-age=0, stale-while-revalidate=60"]),
        (503, &[], &["cache-control: max-age=60"]),
        (299, &[], &["cache-control: max-age=60"]),
        (302, &[], &["cache-control: public, max-age=60"]),
        (404, &[], &[]),
    ];
    for (status, request, response) in rows {
        assert!(stored(*status, request, response).is_ok(), "{status} {request:?} {response:?}");
    }
}

#[test]
fn how_long_it_is_fresh() {
    let rows: &[(u16, &[&str], Option<u64>)] = &[
        (200, &["cache-control: max-age=60"], Some(60)),
        (200, &["cache-control: max-age=60, s-maxage=30"], Some(30)),
        (200, &["cache-control: s-maxage=90, max-age=60"], Some(90)),
        (200, &["cache-control: MAX-AGE=\"60\""], Some(60)),
        (200, &["cache-control: max-age=60, max-age=30"], Some(30)),
        (200, &["cache-control: max-age=60", "expires: 0"], Some(60)),
        (200, &["cache-control: max-age=99999999999999999999"], Some(1 << 31)),
        (200, &["cache-control: max-age=-1", "etag: \"a\""], Some(0)),
        (200, &["cache-control: max-age=6.5", "etag: \"a\""], Some(0)),
        (200, &["cache-control: a=\"max-age=5\", max-age=60"], Some(60)),
        (200, &[&format!("date: {DATE}"), &format!("expires: {MINUTE_ON}")], Some(60)),
        (200, &[&format!("date: {HOUR_AGO}"), &format!("expires: {MINUTE_ON}")], Some(3660)),
        (200, &["expires: 0", "etag: \"a\""], Some(0)),
        (200, &[&format!("date: {DATE}"), "expires: tue, 14 nov 2023 22:14:20 gmt"], Some(60)),
        (200, &[&format!("date: {DATE}"), "expires: TUE, 14 NOV 2023 22:14:20 GMT"], Some(60)),
        (200, &[&format!("date: {DATE}"), "expires: tuesday, 14-nov-23 22:14:20 GMT"], Some(60)),
        (200, &[&format!("date: {DATE}"), "expires: TUE NOV 14 22:14:20 2023"], Some(60)),
        (200, &[&format!("date: {DATE}"), "expires: Tue, 14 Nov 2023 22:13:60 GMT"], Some(39)),
        (200, &[&format!("date: {DATE}"), "expires: Tue, 14 Nov 2023 22:14:20 CET", "etag: \"a\""], Some(0)),
        (200, &[&format!("date: {DATE}"), "expires: Tue, 14 Nov 2023 22:60:20 GMT", "etag: \"a\""], Some(0)),
        (200, &[&format!("date: {DATE}"), &format!("last-modified: {DAY_AGO}")], Some(8640)),
        (404, &[], Some(10)),
        (404, &["cache-control: max-age=60"], Some(60)),
        (200, &["cdn-cache-control: max-age=5", "cache-control: max-age=60"], Some(5)),
        (200, &["cdn-cache-control: max-age=5", "cache-control: no-store"], Some(5)),
        (200, &["cdn-cache-control: foo, max-age=5;x=y", "cache-control: no-store"], Some(5)),
        (200, &["cdn-cache-control: max-age=5", "cdn-cache-control: max-age=7"], Some(7)),
        (200, &["cdn-cache-control: max-age=5, &&&&", "cache-control: max-age=60"], Some(60)),
        (200, &["cdn-cache-control: max-age=\"5\"", "cache-control: max-age=60"], Some(60)),
        (200, &["cdn-cache-control: MAX-AGE=5", "cache-control: max-age=60"], Some(60)),
        (200, &["cdn-cache-control: max-age =5", "cache-control: max-age=60"], Some(60)),
    ];
    for (status, response, seconds) in rows {
        assert_eq!(lifetime(*status, response), *seconds, "{status} {response:?}");
    }
}

#[test]
fn age_counts_what_came_before_us() {
    let age = |lines: &[&str]| {
        stored(200, &[], &[&["cache-control: max-age=99999"], lines].concat()).map(|policy| policy.age(NOW) / 1000)
    };
    assert_eq!(age(&[]), Ok(0));
    assert_eq!(age(&["age: 30"]), Ok(30));
    assert_eq!(age(&["age: 30, 40"]), Ok(30));
    assert_eq!(age(&["age: -30"]), Ok(0));
    assert_eq!(age(&["age: x"]), Ok(0));
    assert_eq!(age(&[&format!("date: {HOUR_AGO}")]), Ok(3600));
    assert_eq!(age(&[&format!("date: {MINUTE_ON}")]), Ok(0), "a clock that is ahead is no age");
}

fn policy(seconds: u64) -> Policy {
    Policy {
        birth: NOW,
        lifetime: seconds * 1000,
        no_cache: false,
        must_revalidate: false,
        stale_while_revalidate: 0,
        stale_if_error: None,
    }
}

#[test]
fn how_a_stored_response_may_be_used() {
    let plain = policy(60);
    let strict = Policy { must_revalidate: true, ..plain };
    let relaxed = Policy { stale_while_revalidate: 30_000, ..plain };
    let guarded = Policy { no_cache: true, ..plain };
    let rows: &[(Policy, u64, &[&str], Reuse)] = &[
        (plain, 0, &[], Reuse::Fresh),
        (plain, 59, &[], Reuse::Fresh),
        (plain, 60, &[], Reuse::ValidateStale),
        (guarded, 0, &[], Reuse::ValidateStale),
        (plain, 0, &["cache-control: no-cache"], Reuse::ValidateRequest),
        (plain, 0, &["pragma: no-cache"], Reuse::ValidateRequest),
        (plain, 0, &["pragma: no-cache", "cache-control: max-age=50"], Reuse::Fresh),
        (plain, 5, &["cache-control: max-age=4"], Reuse::ValidateRequest),
        (plain, 5, &["cache-control: max-age=5"], Reuse::Fresh),
        (plain, 0, &["cache-control: max-age=0"], Reuse::ValidateRequest),
        (plain, 30, &["cache-control: min-fresh=30"], Reuse::Fresh),
        (plain, 31, &["cache-control: min-fresh=30"], Reuse::ValidateRequest),
        (plain, 70, &["cache-control: max-stale"], Reuse::StaleAccepted),
        (plain, 70, &["cache-control: max-stale=10"], Reuse::StaleAccepted),
        (plain, 71, &["cache-control: max-stale=10"], Reuse::ValidateStale),
        (strict, 70, &["cache-control: max-stale"], Reuse::ValidateStale),
        (relaxed, 89, &[], Reuse::StaleWhileRevalidate),
        (relaxed, 90, &[], Reuse::ValidateStale),
        (Policy { must_revalidate: true, ..relaxed }, 70, &[], Reuse::ValidateStale),
    ];
    for (policy, age, request, reuse) in rows {
        let asked = Asked::of(&head(request));
        assert_eq!(policy.reuse(&asked, NOW + age * 1000), *reuse, "{policy:?} at {age} {request:?}");
    }
}

#[test]
fn what_outlives_its_origin() {
    let plain = policy(60);
    let explicit = Policy { stale_if_error: Some(7_200_000), ..plain };
    let rows: &[(Policy, u64, &[&str], Failure, bool)] = &[
        (plain, 61, &[], Failure::Disconnected, true),
        (plain, 60 + 3600, &[], Failure::Disconnected, false),
        (plain, 61, &[], Failure::ServerError, false),
        (plain, 61, &["cache-control: stale-if-error=10"], Failure::ServerError, true),
        (plain, 71, &["cache-control: stale-if-error=10"], Failure::ServerError, false),
        (explicit, 60 + 7199, &[], Failure::ServerError, true),
        (explicit, 60 + 7199, &[], Failure::Disconnected, true),
        (Policy { must_revalidate: true, ..explicit }, 61, &[], Failure::Disconnected, false),
        (plain, 61, &["cache-control: no-cache"], Failure::Disconnected, false),
    ];
    for (policy, age, request, failure, survives) in rows {
        let asked = Asked::of(&head(request));
        let now = NOW + age * 1000;
        assert_eq!(policy.survives(&asked, *failure, &config(), now), *survives, "{policy:?} {age} {request:?}");
    }
}

#[test]
fn a_clients_own_conditions() {
    let fields = head(&["etag: \"a\"", &format!("last-modified: {DAY_AGO}"), &format!("date: {DATE}")]);
    let rows: &[(&[&str], bool)] = &[
        (&["if-none-match: \"a\""], true),
        (&["if-none-match: W/\"a\""], true),
        (&["if-none-match: \"b\", \"a\""], true),
        (&["if-none-match: \"b\"", "if-none-match: \"a\""], true),
        (&["if-none-match: *"], true),
        (&["if-none-match: \"b\""], false),
        (&["if-none-match: \"a,b\""], false),
        (&["if-none-match: \"b\"", &format!("if-modified-since: {DATE}")], false),
        (&[&format!("if-modified-since: {DAY_AGO}")], true),
        (&[&format!("if-modified-since: {DATE}")], true),
        (&["if-modified-since: Sun, 12 Nov 2023 22:13:20 GMT"], false),
        (&["if-modified-since: yesterday"], false),
        (&[], false),
    ];
    for (request, holds) in rows {
        assert_eq!(validate::not_modified(&head(request), StatusCode::OK, &fields, NOW), *holds, "{request:?}");
    }
    assert!(!validate::not_modified(&head(&["if-none-match: *"]), StatusCode::NOT_FOUND, &fields, NOW));
}

#[test]
fn a_range_counts_only_for_the_same_response() {
    let fields = head(&["etag: \"a\"", &format!("last-modified: {DAY_AGO}"), &format!("date: {DATE}")]);
    let young = head(&[&format!("last-modified: {DATE}"), &format!("date: {DATE}")]);
    let check = |line: &str, fields: &HeaderMap| validate::if_range(&head(&[line]), fields);
    assert!(check("if-range: \"a\"", &fields));
    assert!(!check("if-range: W/\"a\"", &fields));
    assert!(!check("if-range: \"b\"", &fields));
    assert!(check(&format!("if-range: {DAY_AGO}"), &fields));
    assert!(!check(&format!("if-range: {DATE}"), &fields));
    assert!(!check(&format!("if-range: {DATE}"), &young), "a date of the same minute is a weak validator");
    assert!(validate::if_range(&HeaderMap::new(), &fields));
}

#[test]
fn only_a_strong_validator_says_that_two_parts_are_of_one_body() {
    let (old, young) = (format!("last-modified: {DAY_AGO}"), format!("last-modified: {DATE}"));
    let date = format!("date: {DATE}");
    let strong = |lines: &[&str]| {
        validate::strong(&head(lines)).map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
    };
    let is = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(strong(&["etag: \"a\"", &old, &date]), is("etag", "\"a\""));
    assert_eq!(strong(&["etag: W/\"a\"", &old, &date]), None, "with an entity tag the date does not count");
    assert_eq!(strong(&["etag: a", &date]), None, "that is none");
    assert_eq!(strong(&[&old, &date]), is("last-modified", DAY_AGO));
    assert_eq!(strong(&[&young, &date]), None, "changed in the minute in which it was sent");
    assert_eq!(strong(&[&old]), None);
    assert_eq!(strong(&[]), None);
}

#[test]
fn a_304_must_speak_of_what_is_stored() {
    let old = head(&["etag: \"a\"", "x: 1", "content-length: 5", "age: 9"]);
    assert!(validate::confirms(&old, &head(&["etag: \"a\""])));
    assert!(validate::confirms(&old, &head(&["etag: W/\"a\""])));
    assert!(!validate::confirms(&old, &head(&["etag: \"b\""])));
    assert!(validate::confirms(&old, &head(&[])));
    let mut fields = old.clone();
    validate::freshen(&mut fields, &head(&["x: 2", "x: 3", "y: 4", "content-length: 0", "content-encoding: br"]));
    assert_eq!(fields, head(&["etag: \"a\"", "x: 2", "x: 3", "content-length: 5", "y: 4"]));
}

#[test]
fn vary_names_and_values() {
    assert_eq!(vary::names(&head(&["vary: B, a", "vary: b, Host"]), false), Some(vec!["a".into(), "b".into()]));
    assert_eq!(vary::names(&head(&["vary: a, *"]), false), None);
    assert_eq!(vary::names(&head(&[]), false), Some(vec![]));
    let ours = head(&["vary: X-Forwarded-Proto, a, x-forwarded-host"]);
    assert_eq!(vary::names(&ours, true), Some(vec!["a".into()]));
    assert_eq!(vary::names(&ours, false).map(|names| names.len()), Some(3), "a forward client's own");
    assert_eq!(vary::names(&head(&["vary: x-forwarded-for"]), true), None);
    assert_eq!(vary::names(&head(&["vary: Forwarded"]), true), None);
    let value = |lines: &[&str]| vary::values(&["accept-encoding".into()], &head(lines));
    assert_eq!(value(&["accept-encoding: gzip,  BR"]), value(&["accept-encoding: gzip", "accept-encoding: br"]));
    assert_ne!(value(&["accept-encoding: gzip"]), value(&[]));
    assert_ne!(value(&["accept-encoding: "]), value(&[]), "empty is not absent");
}

#[test]
fn what_invalidates() {
    for (method, status, does) in [
        ("POST", 200, true),
        ("PUT", 204, true),
        ("DELETE", 302, true),
        ("M-SEARCH", 200, true),
        ("POST", 404, false),
        ("POST", 500, false),
        ("GET", 200, false),
        ("HEAD", 200, false),
        ("OPTIONS", 200, false),
    ] {
        let (name, code) = (Method::from_bytes(method.as_bytes()).unwrap(), StatusCode::from_u16(status).unwrap());
        assert_eq!(is_unsafe(&name) && invalidates(code), does, "{method} {status}");
    }
}

#[test]
fn odd_directives_do_not_confuse() {
    let request = RequestDirectives::parse([&b",, max-stale , =, \"no-store\", x=\"no-cache\""[..]].into_iter());
    assert_eq!(request, RequestDirectives { max_stale: Some(u64::MAX), ..RequestDirectives::default() });
    let response = ResponseDirectives::parse(&head(&["cache-control: ext=\"a\\\", no-store\", public"]), false);
    assert_eq!(response, ResponseDirectives { public: true, ..ResponseDirectives::default() });
}
