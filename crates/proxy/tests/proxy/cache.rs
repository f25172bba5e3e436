//! What is stored, for how long, and what ends it.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst},
    },
};

use crate::kit::{Door, Origin, Proxy, STALE, answer, eventually, ok, sleep};

#[test]
fn what_must_not_be_stored_is_not_and_says_why() {
    let origin = Origin::start(|request, stream| {
        let fields = match request.path() {
            "/no-store" => "cache-control: no-store",
            "/private" => "cache-control: private, max-age=60",
            "/set-cookie" => "cache-control: max-age=60\nset-cookie: a=b",
            "/vary-star" => "cache-control: max-age=60\nvary: *",
            "/authorization" => "cache-control: max-age=60",
            _ => "",
        };
        ok(stream, fields, b"x")
    });
    let proxy = Proxy::before(&origin.url(), "");
    for (n, reason) in
        ["no-store", "private", "set-cookie", "vary-star", "authorization", "no-freshness"].iter().enumerate()
    {
        for round in 1..=2 {
            let request: &[&str] = if *reason == "authorization" { &["authorization: Basic x"] } else { &[] };
            let reply = proxy.get_with(&format!("/{reason}"), request);
            assert!(reply.cache().ends_with(&format!("detail={reason}")), "{}", reply.cache());
            assert_eq!(origin.count(), 2 * n + round);
        }
    }
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["private"], 2);
}

#[test]
fn only_what_is_private_is_called_so() {
    let origin = Origin::start(|request, stream| {
        ok(stream, &format!("cache-control: {}", request.path().trim_start_matches('/')), b"x")
    });
    let proxy = Proxy::before(&origin.url(), "");
    for (said, why) in [("private", "recently-private"), ("no-store", "recently-not-stored")] {
        for round in 0..2 {
            let reply = proxy.get_with(&format!("/{said}"), &["if-none-match: \"v\""]);
            assert!(reply.cache().ends_with(&format!("detail={why}")), "{round}: {reply:?}");
        }
    }
}

#[test]
fn a_request_that_says_no_store_leaves_nothing() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    assert!(proxy.get_with("/", &["cache-control: no-store"]).cache().ends_with("detail=request-no-store"));
    assert!(!proxy.get("/").is_hit());
    assert!(proxy.get("/").is_hit());
}

#[test]
fn an_error_without_a_lifetime_replaces_nothing_fresh() {
    for (vary, is_replaced) in [("", false), ("vary: x-bad\n", false), ("", true)] {
        let origin = Origin::start(move |request, stream| match request.field("x-bad") {
            "" => ok(stream, &format!("cache-control: max-age=60\n{vary}"), b"fine"),
            status => answer(stream, status, if is_replaced { "cache-control: max-age=60" } else { "" }, b"bad"),
        });
        let proxy = Proxy::before(&origin.url(), "");
        for (n, status) in ["404 x", "405 x", "414 x", "501 x", "400 x", "403 x"].iter().enumerate() {
            let path = format!("/{n}");
            proxy.get(&path);
            let reply = proxy.get_with(&path, &["cache-control: no-cache", &format!("x-bad: {status}")]);
            assert_eq!(reply.text(), "bad", "{status}");
            let now = proxy.get(&path);
            assert!(now.is_hit() && (now.text() == "bad") == is_replaced, "{status}, {vary}: {now:?}");
        }
        let stays = proxy.stats()["proxy"]["not_stored"]["fresh-stays"].as_u64();
        assert_eq!(stays, Some(if is_replaced { 0 } else { 6 }));
    }
}

#[test]
fn preconditions_are_judged_by_what_the_origin_has_and_rules_of_the_operator_win() {
    let origin = Origin::constant("cache-control: max-age=60\netag: \"v\"", "body");
    let last = "Mon, 01 Jan 2024 00:00:00 GMT";
    let proxy = Proxy::before(&origin.url(), "");
    let ignoring = Proxy::before(&origin.url(), "[cache]\nclient_directives = \"ignore\"\n");
    ignoring.get("/");
    for (field, status) in [
        ("if-match: \"v\"".to_owned(), 200),
        ("if-match: \"u\", \"v\"".to_owned(), 200),
        ("if-match: W/\"v\"".to_owned(), 412),
        ("if-match: \"u\"".to_owned(), 412),
        (format!("if-unmodified-since: {last}"), 200),
        ("cache-control: no-cache".to_owned(), 200),
        ("cache-control: max-age=0, no-store".to_owned(), 200),
    ] {
        let before = origin.count();
        assert_eq!(proxy.get_with("/", &[&field]).status(), status, "{field}");
        assert_eq!(origin.count(), before + 1, "{field}");
        let reply = ignoring.get_with("/", &[&field]);
        assert_eq!((reply.status(), reply.is_hit()), (status, true), "{field}: {reply:?}");
        assert_eq!(origin.count(), before + 1, "{field}");
    }
}

#[test]
fn a_head_is_answered_from_a_stored_get() {
    let origin = Origin::constant("cache-control: max-age=60", "twelve bytes");
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    client.get("/");
    proxy.settle();
    for _ in 0..2 {
        let head = client.send("HEAD", "/", &[], b"");
        assert!(head.is_hit() && head.field("content-length") == "12", "{head:?}");
    }
    assert_eq!(client.get("/").text(), "twelve bytes", "the connection is still in step");
    let head = client.send("HEAD", "/", &["cache-control: max-age=50"], b"");
    assert!(head.is_hit() && head.field("content-length") == "12", "slow path: {head:?}");
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_head_that_differs_drops_what_is_stored() {
    let etag = Arc::new(AtomicUsize::new(1));
    let now = etag.clone();
    let origin = Origin::start(move |request, stream| {
        let etag = format!("etag: \"{}\"", now.load(SeqCst));
        if request.method() == "HEAD" {
            let head = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\n{etag}\r\ncontent-length: 4\r\n\r\n");
            return stream.write_all(head.as_bytes()).is_ok();
        }
        ok(stream, &format!("cache-control: max-age=3600\nage: 3601\n{etag}"), b"body")
    });
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    assert_eq!(proxy.client().send("HEAD", "/", &[], b"").status(), 200);
    assert!(proxy.get("/").is_hit(), "the same HEAD made it fresh again");
    etag.store(2, SeqCst);
    proxy.client().send("HEAD", "/", &["cache-control: no-cache"], b"");
    assert!(proxy.get("/").cache().contains("fwd=uri-miss"), "another one dropped it");
}

#[test]
fn a_head_that_comes_late_does_not_bring_back_what_was_replaced() {
    let (version, door) = (Arc::new(AtomicUsize::new(1)), Door::default());
    let (now, wait) = (version.clone(), door.clone());
    let origin = Origin::start(move |request, stream| {
        let version = now.load(SeqCst);
        let fields = format!("cache-control: max-age=60\netag: \"{version}\"");
        if request.method() == "HEAD" {
            wait.pass();
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\ncontent-length: 1\r\n\r\n", fields.replace('\n', "\r\n"));
            return stream.write_all(head.as_bytes()).is_ok();
        }
        ok(stream, &fields, version.to_string().as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(proxy.get("/").text(), "1");
    eventually("it is stored", || proxy.get("/").is_hit());
    let mut client = proxy.client();
    client.write("HEAD", "/", &["cache-control: no-cache"], b"");
    eventually("the origin has the HEAD", || origin.count() == 2);
    version.store(2, SeqCst);
    assert_eq!(proxy.get_with("/", &["cache-control: no-cache"]).text(), "2");
    eventually("the new one is stored", || proxy.get("/").is_hit());
    door.open();
    assert_eq!(client.read("HEAD").unwrap().field("etag"), "\"1\"");
    proxy.settle();
    let reply = proxy.get("/");
    assert_eq!((reply.is_hit(), reply.text()), (true, "2".into()), "{reply:?}");
}

#[test]
fn age_via_and_date_are_there_and_hop_by_hop_fields_are_not() {
    let fields = "cache-control: max-age=60\nage: 7\nconnection: x-hop\nx-hop: 1\nx-end: 2\nkeep-alive: timeout=5";
    let origin = Origin::constant(fields, "x");
    let proxy = Proxy::before(&origin.url(), "");
    for round in 0..3 {
        let cached = if round == 2 { &["cache-control: max-stale"][..] } else { &[] };
        let reply = proxy.get_with("/", cached);
        assert_eq!(reply.is_hit(), round > 0);
        assert!(reply.field("age").parse::<u64>().unwrap() >= 7, "round {round}: {reply:?}");
        assert!(reply.field("via").starts_with("1.1 picaflor"), "{reply:?}");
        assert!(reply.field("date").ends_with("GMT") && reply.field("x-end") == "2", "{reply:?}");
        assert!(reply.field("x-hop").is_empty() && reply.field("keep-alive").is_empty(), "{reply:?}");
    }
}

#[test]
fn the_origin_sees_who_asks_and_no_hop_by_hop_fields() {
    let origin = Origin::start(|request, stream| {
        let fields = format!("{:?}", request.fields);
        ok(stream, "cache-control: no-store", fields.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    let fields = ["connection: keep-alive, x-hop", "x-hop: 1", "te: trailers", "proxy-authorization: x", "x-end: 2"];
    let seen = proxy.get_with("/", &fields).text();
    for there in ["\"host\", \"test.example\"", "x-forwarded-for\", \"127.0.0.1\"", "x-end", "\"via\", \"1.1 picaflor-"]
    {
        assert!(seen.contains(there), "{there}: {seen}");
    }
    for gone in ["x-hop", "\"te\"", "proxy-authorization", "\"connection\""] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
}

#[test]
fn variants_are_kept_apart() {
    let origin = Origin::start(|request, stream| {
        let body = format!("for {}", request.field("x-lang"));
        ok(stream, "cache-control: max-age=60\nvary: X-Lang", body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "[cache]\nmax_variants = 4\n");
    for round in 0..2 {
        for lang in ["de", "es", "qu"] {
            let reply = proxy.get_with("/", &[&format!("x-lang: {lang}")]);
            assert_eq!(reply.text(), format!("for {lang}"));
            assert_eq!(reply.is_hit(), round == 1, "{lang}: {}", reply.cache());
        }
    }
    assert_eq!(proxy.get("/").text(), "for ", "absent is a variant too");
    proxy.get_with("/", &["x-lang: ay"]);
    assert!(!proxy.get_with("/", &["x-lang: de"]).is_hit(), "the oldest made room");
    assert!(proxy.get_with("/", &["x-lang: qu"]).is_hit());
}

#[test]
fn an_unsafe_request_makes_what_is_stored_invalid() {
    let origin = Origin::start(|request, stream| match request.method() {
        "POST" if request.path() == "/fails" => answer(stream, "500 No", "", b""),
        "POST" => answer(stream, "201 Created", "location: /made\ncontent-location: http://test.example/also", b""),
        _ => ok(stream, "cache-control: max-age=60", b"x"),
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    for path in ["/", "/made", "/also", "/fails", "/other"] {
        client.get(path);
        proxy.settle();
        assert!(client.get(path).is_hit());
    }
    assert!(client.send("POST", "/", &[], b"form").cache().contains("fwd=method"));
    client.send("POST", "/fails", &[], b"");
    for (path, hit) in [("/", false), ("/made", false), ("/also", false), ("/fails", true), ("/other", true)] {
        assert_eq!(client.get(path).is_hit(), hit, "{path}");
    }
}

#[test]
fn an_unsafe_request_whose_client_is_gone_makes_what_is_stored_invalid_all_the_same() {
    let whole = "POST / HTTP/1.1\r\nHost: test.example\r\nContent-Length: 4\r\n\r\nform";
    let begun = "PUT / HTTP/1.1\r\nHost: test.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nform\r\n";
    // What the client sends before it goes, and whether the origin answers: not at all, or not before it is done with.
    for (request, answers) in [(whole, Some(true)), (whole, Some(false)), (begun, None)] {
        let door = Door::default();
        let closed = door.clone();
        let origin = Origin::start(move |request, stream| {
            if request.method() == "GET" {
                return ok(stream, "cache-control: max-age=60", b"x");
            }
            closed.pass();
            answers == Some(true) && ok(stream, "", b"done")
        });
        let proxy = Proxy::before(&origin.url(), "");
        proxy.get("/");
        let mut client = proxy.client();
        client.write("GET", "/", &[], b"");
        client.stream.write_all(request.as_bytes()).unwrap();
        eventually("the origin has it", || origin.count() == 2);
        assert!(proxy.get("/").is_hit(), "nothing is known yet");
        // With an answer unread in it, the connection is reset.
        drop(client);
        if answers.is_some() {
            door.open();
        }
        eventually("what is stored is invalid", || !proxy.get("/").is_hit());
        door.open();
    }
}

#[test]
fn what_an_unsafe_request_names_is_resolved_and_invalid_on_its_own_host_only() {
    // Asked for at /a/b/form?N; the fields, the path that they come to, and whether that is of the same origin.
    const ROWS: [(&str, &str, bool); 13] = [
        ("location: ../other?y=1#part", "/a/other?y=1", true),
        ("location: ./c/../d", "/a/b/d", true),
        ("location: ?page=2", "/a/b/form?page=2", true),
        ("content-location: item/7", "/a/b/item/7", true),
        ("location: //TEST.example/net/./x", "/net/x", true),
        ("location: HTTP://test.example:80/upper", "/upper", true),
        ("location: https://test.example:443/secure", "/secure", true),
        ("location: //elsewhere.example/net2", "/net2", false),
        ("location: http://test.example:8080/port", "/port", false),
        ("location: ftp://test.example/ftp", "/ftp", false),
        ("location: mailto:x", "/a/b/mailto:x", false),
        ("location: /up/../../top", "/top", true),
        ("location: /one\nlocation: /two", "/two", true),
    ];
    let origin = Origin::start(|request, stream| match request.method() {
        "POST" => {
            let row: usize = request.path().split_once('?').unwrap().1.parse().unwrap();
            answer(stream, "201 Created", ROWS[row].0, b"")
        }
        _ => ok(stream, "cache-control: max-age=60", b"x"),
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    for (row, (fields, path, gone)) in ROWS.into_iter().enumerate() {
        client.get(path);
        proxy.settle();
        assert!(client.get(path).is_hit(), "{path}");
        client.send("POST", &format!("/a/b/form?{row}"), &[], b"x");
        assert_eq!(client.get(path).is_hit(), !gone, "{fields}");
    }
}

#[test]
fn what_is_not_found_is_not_asked_for_again_at_once() {
    let origin = Origin::start(|_, stream| answer(stream, "404 Not Found", "", b"none"));
    let proxy = Proxy::before(&origin.url(), "[cache]\nnegative = \"1s\"\n");
    assert_eq!(proxy.get("/").status(), 404);
    eventually("it is known for a second", || {
        let again = proxy.get("/");
        again.is_hit() && again.status() == 404 && again.text() == "none"
    });
    eventually("and not for longer", || !proxy.get("/").is_hit());
}

/// An origin whose status is `status`, and which confirms `"v"`, the tag among `fields`.
fn moody(status: Arc<AtomicU16>, fields: &'static str) -> Origin {
    Origin::start(move |request, stream| match status.load(SeqCst) {
        200 if request.field("if-none-match") == "\"v\"" => {
            stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"v\"\r\n\r\n").is_ok()
        }
        200 => ok(stream, fields, b"good"),
        0 => false,
        _ => answer(stream, "503 Busy", "", b"bad"),
    })
}

#[test]
fn stale_while_revalidate_answers_at_once() {
    let origin = moody(
        Arc::new(AtomicU16::new(200)),
        "cache-control: max-age=3600, stale-while-revalidate=3600\nage: 3601\netag: \"v\"",
    );
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    let stale = proxy.get("/");
    assert!(stale.is_hit() && stale.cache().ends_with("detail=stale-while-revalidate"), "{}", stale.cache());
    let fresh = proxy.get("/");
    assert!(fresh.cache().starts_with("picaflor; hit; ttl=3"), "{}", fresh.cache());
    assert_eq!(origin.count(), 2);
}

#[test]
fn stale_if_error_hides_a_failing_origin() {
    let status = Arc::new(AtomicU16::new(200));
    let origin = moody(status.clone(), "cache-control: max-age=3600, stale-if-error=3600\nage: 3601\netag: \"v\"");
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    status.store(503, SeqCst);
    for method in ["GET", "HEAD"] {
        let stale = proxy.client().send(method, "/", &[], b"");
        assert!(stale.status() == 200 && stale.cache().ends_with("detail=stale-if-error"), "{stale:?}");
    }
    status.store(200, SeqCst);
    assert!(proxy.get("/").cache().contains("fwd-status=304"));
}

#[test]
fn without_a_word_of_it_a_503_is_passed_on_but_a_dead_origin_is_bridged() {
    let status = Arc::new(AtomicU16::new(200));
    let origin = moody(status.clone(), STALE);
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    status.store(503, SeqCst);
    assert_eq!(proxy.get("/").status(), 503);
    status.store(0, SeqCst);
    let stale = proxy.get("/");
    assert!(stale.status() == 200 && stale.cache().ends_with("detail=closed"), "{stale:?}");
    assert_eq!(proxy.get("/never-seen").status(), 502);
}

#[test]
fn must_revalidate_is_never_stale() {
    let status = Arc::new(AtomicU16::new(200));
    let origin = moody(
        status.clone(),
        "cache-control: max-age=3600, must-revalidate, stale-if-error=3600\nage: 3601\netag: \"v\"",
    );
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    status.store(503, SeqCst);
    assert_eq!(proxy.get("/").status(), 503);
    status.store(0, SeqCst);
    assert_eq!(proxy.get("/").status(), 504, "nor when the origin hangs up (RFC 9111 5.2.2.2)");
}

#[test]
fn requests_say_what_they_accept() {
    let origin = moody(Arc::new(AtomicU16::new(200)), "cache-control: max-age=60\netag: \"v\"");
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(proxy.get_with("/", &["cache-control: only-if-cached"]).status(), 504);
    proxy.get("/");
    assert!(proxy.get_with("/", &["cache-control: only-if-cached"]).is_hit());
    assert!(proxy.get_with("/", &["cache-control: no-cache"]).cache().contains("fwd=request; fwd-status=304"));
    assert!(proxy.get_with("/", &["pragma: no-cache"]).cache().contains("fwd=request; fwd-status=304"));
    assert!(proxy.get_with("/", &["cache-control: max-age=0"]).cache().contains("fwd=request"));
}

#[test]
fn a_client_that_could_speak_http2_is_served_from_the_store() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    // As curl sends it, and cargo with it.
    let fields = ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAQAAAAIAAAAA"];
    assert!(proxy.get_with("/", &fields).cache().ends_with("; stored"));
    assert!(proxy.get_with("/", &fields).is_hit());
    let other = proxy.get_with("/", &["connection: Upgrade", "upgrade: websocket"]);
    assert!(other.cache().ends_with("detail=upgrade"), "{}", other.cache());
}

#[test]
fn only_if_cached_never_asks() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    for more in ["x-nothing: x", "if-match: \"a\"", "upgrade: h2c"] {
        let reply = proxy.get_with("/", &["cache-control: only-if-cached", more]);
        assert_eq!((reply.status(), reply.cache()), (504, "picaflor; detail=only-if-cached"), "{more}");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_clients_conditions_are_answered_here() {
    let origin = moody(Arc::new(AtomicU16::new(200)), "cache-control: max-age=60\netag: \"v\"\ncontent-type: text/x");
    let proxy = Proxy::before(&origin.url(), "");
    for round in 0..2 {
        let reply = proxy.get_with("/", &["if-none-match: W/\"v\""]);
        assert_eq!(reply.status(), 304, "round {round}: {reply:?}");
        assert_eq!((reply.field("etag"), reply.field("content-type")), ("\"v\"", ""));
    }
    assert_eq!(origin.count(), 1, "the first one brought the whole");
    assert_eq!(proxy.get_with("/", &["if-none-match: \"w\""]).text(), "good");
    let forward = Proxy::start("");
    let reply = forward.client().send("GET", &format!("{}/", origin.url()), &["if-match: \"v\""], b"");
    assert_eq!(reply.cache(), "picaflor; fwd=bypass; fwd-status=200; detail=precondition", "where we are no origin");
}

#[test]
fn a_304_for_something_else_is_asked_again_in_full() {
    let origin = Origin::start(|request, stream| {
        if request.field("if-none-match").is_empty() {
            return ok(stream, STALE, b"whole");
        }
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"other\"\r\n\r\n").is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    let reply = proxy.get("/");
    assert_eq!((reply.status(), reply.text().as_str()), (200, "whole"));
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_full_store_fails_no_request() {
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: max-age=60", &vec![7; 3 << 20]));
    let proxy = Proxy::before(&origin.url(), "[cache]\nmax_object = \"1MiB\"\n");
    for _ in 0..2 {
        let reply = proxy.get("/");
        assert_eq!((reply.status(), reply.body.len()), (200, 3 << 20));
        assert!(reply.cache().ends_with("detail=too-large"), "{}", reply.cache());
    }
}

#[test]
fn what_was_replaced_is_not_served_though_what_replaced_it_is_not_stored() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |_, stream| match asked.fetch_add(1, SeqCst) {
        0 => ok(stream, "cache-control: max-age=3600", b"old"),
        1 => {
            // Only its end shows that it is too large.
            let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ntransfer-encoding: chunked\r\n\r\n";
            let body = [head.as_bytes(), b"200000\r\n", &vec![7; 2 << 20], b"\r\n0\r\n\r\n"].concat();
            stream.write_all(&body).is_ok()
        }
        _ => ok(stream, "cache-control: max-age=3600", b"newest"),
    });
    let proxy = Proxy::before(&origin.url(), "[cache]\nmax_object = \"1MiB\"\n");
    assert_eq!(proxy.get("/").text(), "old");
    proxy.settle();
    assert!(proxy.get("/").is_hit());
    assert_eq!(proxy.get_with("/", &["Cache-Control: no-cache"]).body.len(), 2 << 20);
    proxy.settle();
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["too-large"], 1);
    assert_eq!(proxy.get("/").text(), "newest");
}

#[test]
fn a_purge_during_a_fetch_wins() {
    let (begin, wait) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begun, may_end) = (begin.clone(), wait.clone());
    let origin = Origin::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 4\r\n\r\nol");
        begun.fetch_add(1, SeqCst);
        while may_end.load(SeqCst) == 0 {
            sleep(5);
        }
        stream.write_all(b"d!").is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    client.write("GET", "/", &[], b"");
    eventually("the fetch has begun", || begin.load(SeqCst) == 1);
    assert_eq!(proxy.purge("http://test.example/").status(), 200);
    wait.store(1, SeqCst);
    assert_eq!(client.read("GET").unwrap().text(), "old!");
    assert!(!proxy.get("/").is_hit(), "what was purged must not come back");
    assert!(proxy.get("/").is_hit());
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["invalidated"], 1);
}

#[test]
fn a_store_that_loses_its_bytes_fails_no_request() {
    let origin = Origin::start(|request, stream| {
        let body = request.path().repeat(8_000);
        ok(stream, "cache-control: max-age=60", body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    let all = |client: &mut crate::kit::Client| {
        for n in 0..2_000 {
            let path = format!("/{n:04}");
            let reply = client.get(&path);
            assert!(reply.status() == 200 && reply.text() == path.repeat(8_000), "{path}: {}", reply.cache());
        }
    };
    all(&mut client);
    sleep(1500);
    let file = std::fs::OpenOptions::new().write(true).open(proxy.folder.path().join("store")).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len / 2).unwrap();
    all(&mut client);
    file.set_len(0).unwrap();
    all(&mut client);
}

#[test]
fn odd_heads_of_origins_are_passed_on() {
    let origin = Origin::start(|request, stream| match request.path() {
        "/folded" => stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nx-a: one\r\n two\r\ncache-control: max-age=60\r\ncontent-length: 1\r\n\r\nf",
            )
            .is_ok(),
        "/many" => {
            let fields: Vec<String> = (0..300).map(|n| format!("x-{n}: {n}")).collect();
            ok(stream, &format!("{}\ncache-control: max-age=60", fields.join("\n")), b"m")
        }
        _ => answer(stream, "299 ", "cache-control: max-age=60", b"s"),
    });
    let proxy = Proxy::before(&origin.url(), "");
    for _ in 0..2 {
        assert_eq!(proxy.get("/folded").field("x-a").split_whitespace().collect::<Vec<_>>(), ["one", "two"]);
        let many = proxy.get("/many");
        assert_eq!((many.status(), many.field("x-299")), (200, "299"));
        assert!(!proxy.get("/status").first.contains("none"));
    }
    assert!(proxy.get("/folded").is_hit() && proxy.get("/many").is_hit() && proxy.get("/status").is_hit());
}
