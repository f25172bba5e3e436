//! Large objects in slices: a real nginx says what it was asked for, and what that cost.

use std::{
    io::Write,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::{
    kit::{Door, Message, Origin, Proxy, answer, eventually, ok},
    nginx::{self, Nginx, noise},
};

/// As the other client: of the same host.
fn curl(into: &Path, arguments: &[&str]) -> (String, Vec<u8>) {
    nginx::curl(into, &[&["-H", "Host: test.example"], arguments].concat())
}

const SLICE: usize = 256 << 10;
const RULE: &str = "[[rule]]\npath = \"/large*\"\nslice = \"256KiB\"\n";

fn fresh() -> Nginx {
    Nginx::start("location / { add_header Cache-Control max-age=600; add_header Surrogate-Key \"one two\"; }")
}

fn before(nginx: &Nginx) -> Proxy {
    Proxy::before(&format!("http://{}", nginx.address), RULE)
}

/// What came of each request in nginx's log: status and bytes of body; waits until there are so many.
fn costs(nginx: &Nginx, count: usize) -> Vec<(u16, usize)> {
    eventually("the requests are in the log", || nginx.log("/large").len() >= count);
    nginx.log("/large")
}

#[test]
fn a_range_costs_the_slices_that_it_touches_which_are_hits_then() {
    let (nginx, body) = (fresh(), noise(5 * SLICE + 1000, 1));
    nginx.file("large", &body);
    let proxy = before(&nginx);
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/large", proxy.address);
    let whole = [(206, SLICE); 5];
    let rows = [
        // Range, first and last byte, how many slices have been asked for by then, and how that is called.
        ("600000-600099", 600_000..600_100, 1, "fwd=uri-miss; fwd-status=206; stored; detail=slices"),
        ("600000-600099", 600_000..600_100, 1, "picaflor; hit"),
        ("524288-786431", 524_288..786_432, 1, "picaflor; hit"),
        ("786000-787000", 786_000..787_001, 2, "picaflor; hit"),
        ("0-0", 0..1, 3, "fwd=partial; fwd-status=206; stored; detail=slices"),
    ];
    for (range, bytes, count, status) in rows {
        let (head, got) = curl(&out, &["-r", range, &url]);
        assert!(head.contains("206 partial content") && head.contains(status), "{range}: {head}");
        assert!(head.contains(&format!("content-range: bytes {}-{}/{}", bytes.start, bytes.end - 1, body.len())));
        assert!(got == body[bytes], "{range}");
        proxy.settle();
        assert_eq!(costs(&nginx, count), whole[..count], "{range}");
    }
    let (_, got) = curl(&out, &["-r", "-10", &url]);
    assert!(got == body[body.len() - 10..]);
    assert_eq!(costs(&nginx, 4)[3], (206, 1000), "the last one is shorter");
    // What needs no body needs no slice.
    let etag = proxy.client().send("HEAD", "/large", &[], b"");
    assert_eq!((etag.status(), etag.field("content-length")), (200, &*body.len().to_string()));
    let etag = etag.field("etag").to_owned();
    let nothing = proxy.get_with("/large", &["range: bytes=99999999-"]);
    assert_eq!((nothing.status(), nothing.field("content-range")), (416, &*format!("bytes */{}", body.len())));
    assert_eq!(proxy.get_with("/large", &[&format!("if-none-match: {etag}")]).status(), 304);
    assert_eq!(proxy.get_with("/large", &["if-match: \"other\""]).status(), 412);
    assert_eq!(costs(&nginx, 5).last(), Some(&(304, 0)), "a precondition is judged by what the origin has now");
    let several = proxy.get_with("/large", &["range: bytes=0-1,600000-600002"]);
    assert!(several.status() == 206 && several.body.windows(3).any(|at| at == &body[600_000..600_003]));
    let explained: serde_json::Value =
        serde_json::from_slice(&proxy.admin("GET", "/explain?url=http://test.example/large").body).unwrap();
    let told = &explained["stored"][0];
    assert_eq!(told["slices"], serde_json::json!({"bytes": SLICE, "count": 6, "stored": 4}), "{explained}");
    assert_eq!(told["bytes"], body.len());
    // The rest is what a whole one costs; every slice is asked for once.
    for _ in 0..2 {
        let (head, got) = curl(&out, &[&url]);
        assert!(head.contains("200 ok") && got == body, "{head}");
        proxy.settle();
    }
    let bytes: usize = costs(&nginx, 7).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((nginx.log("/large").len(), bytes), (7, body.len()));
    let same = proxy.get_with("/large", &["range: bytes=5-6", &format!("if-range: {etag}")]);
    assert_eq!((same.status(), &same.body[..]), (206, &body[5..7]));
    let other = proxy.get_with("/large", &["range: bytes=5-6", "if-range: \"other\""]);
    assert!(other.status() == 200 && other.body == body);
    assert_eq!(nginx.log("/large").len(), 7);
}

#[test]
fn what_became_of_each_slice_is_counted() {
    let (nginx, old, new) = (fresh(), noise(4 * SLICE, 1), noise(4 * SLICE + 1, 2));
    nginx.file("large", &old);
    let proxy = before(&nginx);
    let (out, url) = (proxy.folder.path().join("out"), format!("http://{}/large", proxy.address));
    let outcomes = ["hit", "miss", "collapsed", "changed", "refused", "failed", "only-if-cached", "unfit"];
    let counted = || outcomes.map(|outcome| proxy.stats()["proxy"]["slices"][outcome].as_u64().unwrap());
    let asked = |arguments: &[&str], counts: [u64; 8]| {
        let (head, _) = curl(&out, &[arguments, &[&url]].concat());
        proxy.settle();
        assert_eq!(counted(), counts, "{arguments:?}: {head}");
    };
    asked(&["-r", "0-9"], [0, 1, 0, 0, 0, 0, 0, 0]);
    asked(&["-I"], [0, 1, 0, 0, 0, 0, 0, 0]);
    asked(&["-r", "5-300000"], [1, 2, 0, 0, 0, 0, 0, 0]);
    asked(&[], [3, 4, 0, 0, 0, 0, 0, 0]);
    asked(&[], [7, 4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(proxy.admin("POST", "/purge?url=http://test.example/large").status(), 200);
    asked(&["-r", "600000-600001"], [7, 5, 0, 0, 0, 0, 0, 0]);
    // The next one is of another version: what has heard nothing begins anew.
    nginx.file("large", &new);
    asked(&["-r", "0-9"], [7, 6, 0, 1, 0, 0, 0, 0]);
    asked(&["-r", "300000-300009", "-H", "Cache-Control: only-if-cached"], [7, 6, 0, 1, 0, 0, 1, 0]);
    drop(nginx);
    asked(&["-r", "300000-300009"], [7, 6, 0, 1, 0, 1, 1, 0]);
    let text = proxy.admin("GET", "/metrics").text();
    for (outcome, count) in [("hit", 7), ("miss", 6), ("changed", 1), ("failed", 1), ("only-if-cached", 1)] {
        let line = format!("picaflor_slices_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    // One that cannot be told from another version is asked for as a whole.
    let weak =
        Nginx::start("location / { add_header Cache-Control max-age=600; etag off; add_header ETag 'W/\"e\"'; }");
    weak.file("large", &old);
    let proxy = before(&weak);
    let url = format!("http://{}/large", proxy.address);
    assert!(curl(&out, &["-r", "0-9", &url]).1 == old[..10]);
    assert_eq!(proxy.stats()["proxy"]["slices"]["unfit"], 1);
}

#[test]
fn the_end_of_an_unknown_object_costs_one_byte_more_and_too_far_nothing_else() {
    let (nginx, body) = (fresh(), noise(3 * SLICE, 2));
    nginx.file("large", &body);
    nginx.file("large2", &body);
    let proxy = before(&nginx);
    let tail = proxy.get_with("/large", &["range: bytes=-5"]);
    assert_eq!((tail.status(), &tail.body[..]), (206, &body[body.len() - 5..]));
    assert_eq!(costs(&nginx, 2), [(206, 1), (206, SLICE)]);
    assert_eq!(proxy.get_with("/large2", &["range: bytes=99999999-"]).status(), 416);
    assert_eq!(nginx.log("/large2").last(), Some(&(206, 1)));
}

#[test]
fn what_is_no_longer_than_a_slice_is_stored_as_ever() {
    let nginx = fresh();
    let proxy = before(&nginx);
    for (n, len) in [0, 1, 1000, SLICE].into_iter().enumerate() {
        let (path, body) = (format!("/large{n}"), noise(len, 3));
        nginx.file(&path[1..], &body);
        let first = proxy.get(&path);
        assert!(first.status() == 200 && first.body == body, "{first:?}");
        assert_eq!(first.field("content-range"), "");
        eventually("it is for the fast path", || len > 1000 || proxy.fast(&path));
        assert!(proxy.get(&path).is_hit() && proxy.get(&path).body == body);
        nginx.was_asked(&path, 1);
    }
    let (path, body) = ("/large-small", noise(500, 4));
    nginx.file(&path[1..], &body);
    let tail = proxy.get_with(path, &["range: bytes=-5"]);
    assert_eq!((tail.status(), &tail.body[..]), (206, &body[495..]));
    assert!(proxy.get(path).is_hit());
}

#[test]
fn purges_take_all_slices() {
    let (nginx, body) = (fresh(), noise(3 * SLICE, 5));
    nginx.file("large", &body);
    let proxy = before(&nginx);
    let mut asked = 0;
    for purge in ["url=http://test.example/large", "tag=two", "prefix=http://test.example/la", "all=1"] {
        for _ in 0..2 {
            assert!(proxy.get("/large").body == body, "{purge}");
        }
        let again = proxy.get_with("/large", &["range: bytes=600000-"]);
        assert!(again.is_hit(), "{purge}: {again:?}");
        asked += if asked == 0 { 3 } else { 2 };
        assert_eq!(costs(&nginx, asked).len(), asked, "{purge}");
        assert_eq!(proxy.admin("POST", &format!("/purge?{purge}")).status(), 200, "{purge}");
        let tail = proxy.get_with("/large", &["range: bytes=600000-"]);
        assert!(!tail.is_hit() && tail.body == body[600_000..], "{purge}: {tail:?}");
        asked += 1;
        assert_eq!(costs(&nginx, asked).len(), asked, "{purge}");
    }
}

#[test]
fn what_changed_between_two_slices_is_begun_anew_or_breaks_off() {
    let (nginx, old, new) = (fresh(), noise(3 * SLICE, 6), noise(3 * SLICE + 5, 7));
    let proxy = before(&nginx);
    let out = proxy.folder.path().join("out");
    let url = format!("http://{}/large", proxy.address);
    // Nothing has been said to the client: it gets the new one.
    nginx.file("large", &old);
    assert!(proxy.get_with("/large", &["range: bytes=0-99"]).body == old[..100]);
    nginx.file("large", &new);
    let (head, got) = curl(&out, &["-r", "300000-", &url]);
    assert!(head.contains(&format!("bytes 300000-{}/{}", new.len() - 1, new.len())) && got == new[300_000..], "{head}");
    proxy.settle();
    assert!(curl(&out, &[&url]).1 == new);
    proxy.settle();
    // It has the first half of the old one.
    assert_eq!(proxy.admin("POST", "/purge?all=1").status(), 200);
    assert!(curl(&out, &["-r", "0-99", &url]).1 == new[..100]);
    proxy.settle();
    nginx.file("large", &old);
    let cut =
        Command::new("curl").args(["-sS", "-H", "Host: test.example", "-o"]).arg(&out).arg(&url).output().unwrap();
    assert_eq!(cut.status.code(), Some(18), "a part of a file: {cut:?}");
    assert!(std::fs::read(&out).unwrap() == new[..SLICE]);
    assert_eq!(proxy.stats()["proxy"]["bodies_broken"]["cut-origin-changed"], 1);
    proxy.settle();
    assert!(curl(&out, &[&url]).1 == old);
    proxy.settle();
    let (head, got) = curl(&out, &[&url]);
    assert!(head.contains("picaflor; hit") && got == old, "{head}");
}

#[test]
fn one_that_is_confirmed_keeps_its_slices_and_one_that_is_not_loses_them() {
    let nginx = Nginx::start("location / { add_header Cache-Control no-cache; }");
    let (old, new) = (noise(2 * SLICE, 8), noise(2 * SLICE + 1, 9));
    nginx.file("large", &old);
    let proxy = before(&nginx);
    assert!(proxy.get("/large").body == old);
    let confirmed = proxy.get_with("/large", &["range: bytes=300000-300009"]);
    assert!(confirmed.cache().contains("fwd-status=304") && confirmed.body == old[300_000..300_010], "{confirmed:?}");
    assert_eq!(costs(&nginx, 3), [(206, SLICE), (206, SLICE), (304, 0)]);
    nginx.file("large", &new);
    let replaced = proxy.get_with("/large", &["range: bytes=300000-300009"]);
    assert!(replaced.cache().contains("fwd-status=206") && replaced.body == new[300_000..300_010], "{replaced:?}");
    assert_eq!(costs(&nginx, 4)[3], (206, SLICE));
    assert!(proxy.get("/large").body == new);
}

#[test]
fn whatever_changes_and_is_purged_no_body_is_of_two_versions() {
    // All of one length: only the validator tells them apart.
    let versions: Arc<Vec<Vec<u8>>> = Arc::new((0..4).map(|n| noise(3 * SLICE + 7, 20 + 2 * n)).collect());
    let current = Arc::new(AtomicUsize::new(0));
    let (bodies, now) = (versions.clone(), current.clone());
    let origin = Origin::start(move |request, stream| {
        let n = now.load(SeqCst);
        let fields = format!("cache-control: max-age=60\netag: \"{n}\"");
        let Some((first, last)) = request.field("range").strip_prefix("bytes=").and_then(|set| set.split_once('-'))
        else {
            return ok(stream, &fields, &bodies[n]);
        };
        let (first, end) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap() + 1);
        let end = end.min(bodies[n].len());
        let head = format!("{fields}\ncontent-range: bytes {first}-{}/{}", end - 1, bodies[n].len());
        answer(stream, "206 Partial Content", &head, &bodies[n][first..end])
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    let (whole, cut) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..4_u8 {
            let (proxy, versions, whole, cut, current) = (&proxy, &versions, &whole, &cut, &current);
            scope.spawn(move || {
                for (round, byte) in noise(60, u64::from(client) + 40).into_iter().enumerate() {
                    if client == 0 && round % 4 == 0 {
                        current.store(usize::from(byte) % versions.len(), SeqCst);
                    }
                    if client == 1 && round % 9 == 0 {
                        assert_eq!(proxy.purge("http://test.example/large").status(), 200);
                    }
                    let start = usize::from(byte) * 3 * SLICE / 256;
                    let fields =
                        if round % 3 == 0 { vec![] } else { vec![format!("range: bytes={start}-{}", start + SLICE)] };
                    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
                    let mut connection = proxy.client();
                    connection.write("GET", "/large", &fields, b"");
                    let Some(reply) = connection.read("GET") else {
                        cut.fetch_add(1, SeqCst);
                        continue;
                    };
                    let version: usize = reply.field("etag").trim_matches('"').parse().unwrap();
                    let body = &versions[version];
                    let expected =
                        if reply.status() == 200 { &body[..] } else { &body[start..body.len().min(start + SLICE + 1)] };
                    assert!(reply.body == expected, "{:?}", reply.fields);
                    whole.fetch_add(1, SeqCst);
                }
            });
        }
    });
    let (whole, cut) = (whole.into_inner(), cut.into_inner());
    assert!(whole > 100, "{whole} whole, {cut} broken off");
}

#[test]
fn a_weak_validator_of_a_304_does_not_part_a_head_from_its_slices() {
    let body = noise(2 * SLICE, 50);
    let whole = body.clone();
    let origin = Origin::start(move |request, stream| {
        if request.field("if-none-match") == "\"e\"" {
            return stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: W/\"e\"\r\n\r\n").is_ok();
        }
        let (first, last) = request.field("range")[6..].split_once('-').unwrap();
        let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap());
        let head = format!("cache-control: no-cache\netag: \"e\"\ncontent-range: bytes {first}-{last}/{}", whole.len());
        answer(stream, "206 Partial Content", &head, &whole[first..=last])
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    assert!(proxy.get("/large").body == body);
    for _ in 0..3 {
        let again = proxy.get("/large");
        assert!(again.cache().contains("fwd-status=304") && again.body == body, "{:?}", again.fields);
        assert_eq!(again.field("etag"), "\"e\"");
    }
    assert_eq!(origin.count(), 5);
}

/// A server of ranges that a test can hold, and make worse.
fn ranged(fields: &'static str, body: Vec<u8>, door: Option<Door>) -> Origin {
    Origin::start(move |request, stream| {
        door.iter().for_each(Door::pass);
        let Some((first, last)) = request.field("range").strip_prefix("bytes=").and_then(|set| set.split_once('-'))
        else {
            return ok(stream, fields, &body);
        };
        let first: usize = first.parse().unwrap();
        let last = last.parse::<usize>().unwrap().min(body.len() - 1);
        let range = format!("{fields}\ncontent-range: bytes {first}-{last}/{}", body.len());
        answer(stream, "206 Partial Content", &range, &body[first..=last])
    })
}

#[test]
fn all_who_want_a_slice_share_its_fetch() {
    let (body, door) = (noise(4 * SLICE, 10), Door::default());
    let fields = "cache-control: max-age=60\netag: \"e\"\ncontent-digest: sha-256=:of+the+part:";
    let origin = ranged(fields, body.clone(), Some(door.clone()));
    let proxy = Proxy::before(&origin.url(), &format!("workers = 1\n{RULE}"));
    let mut clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.write("GET", "/large", &[], b""));
    clients.iter_mut().for_each(|client| client.write("GET", "/large", &["range: bytes=700000-700009"], b""));
    eventually("they are asked for", || origin.count() > 0);
    door.open();
    for client in &mut clients {
        let whole = client.read("GET").unwrap();
        assert!(whole.body == body && whole.field("content-digest").is_empty(), "{:?}", whole.fields);
        assert!(client.read("GET").unwrap().body == body[700_000..700_010]);
    }
    assert_eq!(origin.count(), 4);
    let slices = &proxy.stats()["proxy"]["slices"];
    let counts = ["hit", "miss", "collapsed"].map(|outcome| slices[outcome].as_u64().unwrap());
    assert_eq!((counts[1], counts.iter().sum()), (4, 20 * 4 + 20), "{slices}");
}

#[test]
fn credentials_begin_no_slices_and_are_not_sent_for_them() {
    let body = noise(3 * SLICE, 13);
    let whole = body.clone();
    let secret = "authorization: Basic eHg6eXk=";
    let origin = Origin::start(move |request, stream| {
        let fields = "cache-control: max-age=60\netag: \"e\"";
        let Some((first, last)) = request.field("range").strip_prefix("bytes=").and_then(|set| set.split_once('-'))
        else {
            return ok(stream, fields, &whole);
        };
        assert!(request.field("authorization").is_empty() || last == "7");
        let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap());
        let head = format!("{fields}\ncontent-range: bytes {first}-{last}/{}", whole.len());
        answer(stream, "206 Partial Content", &head, &whole[first..=last])
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    let passed = proxy.get_with("/large", &[secret, "range: bytes=5-7"]);
    assert!(passed.cache().contains("detail=authorization") && passed.body == body[5..8], "{passed:?}");
    assert!(proxy.get_with("/large", &["range: bytes=0-7"]).body == body[..8]);
    let shared = proxy.get_with("/large", &[secret, "range: bytes=300000-300007"]);
    assert!(shared.cache().contains("fwd=partial") && shared.body == body[300_000..300_008], "{shared:?}");
    assert!(proxy.get_with("/large", &["range: bytes=300000-300007"]).is_hit());
    assert_eq!(origin.count(), 3);
}

#[test]
fn origins_without_ranges_or_strong_validators_are_asked_as_ever() {
    let body = noise(3 * SLICE, 11);
    for fields in ["cache-control: max-age=60", "cache-control: max-age=60\netag: W/\"e\""] {
        let origin = ranged(fields, body.clone(), None);
        let proxy = Proxy::before(&origin.url(), RULE);
        for _ in 0..2 {
            let part = proxy.get_with("/large", &["range: bytes=5-9"]);
            assert!(part.status() == 206 && part.body == body[5..10], "{part:?}");
        }
        assert!(proxy.get("/large").is_hit() && proxy.get("/large").body == body);
        assert_eq!(origin.count(), 2, "a slice, and the whole");
    }
    let whole = body.clone();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: max-age=60\netag: \"e\"", &whole));
    let proxy = Proxy::before(&origin.url(), RULE);
    assert!(proxy.get("/large").body == body);
    assert!(proxy.get_with("/large", &["range: bytes=5-9"]).is_hit());
    assert_eq!(origin.count(), 1);
    // A whole is never answered with a part of what must not be stored.
    for fields in ["cache-control: no-store\netag: \"e\"", "cache-control: private\netag: \"e\""] {
        let origin = ranged(fields, body.clone(), None);
        let proxy = Proxy::before(&origin.url(), RULE);
        for _ in 0..2 {
            let reply = proxy.get("/large");
            assert!(reply.status() == 200 && reply.body == body && !reply.is_hit());
            let part = proxy.get_with("/large", &["range: bytes=5-9"]);
            assert!(part.status() == 206 && part.body == body[5..10], "{part:?}");
        }
    }
}

#[test]
fn what_the_origin_refuses_and_what_clients_forbid() {
    let body = noise(3 * SLICE, 12);
    let whole = body.clone();
    let origin = Origin::start(move |request: &Message, stream| {
        let fields = "cache-control: max-age=60\netag: \"e\"";
        match request.field("range") {
            "bytes=0-262143" => {
                let head = format!("{fields}\ncontent-range: bytes 0-262143/{}", whole.len());
                answer(stream, "206 Partial Content", &head, &whole[..SLICE])
            }
            "bytes=262144-524287" => answer(stream, "503 Service Unavailable", "retry-after: 1", b"later"),
            // Half a slice, and no more.
            "bytes=524288-786431" => {
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\ncache-control: max-age=60\r\netag: \"e\"\r\n\
                     content-range: bytes 524288-786431/{}\r\ncontent-length: {SLICE}\r\n\r\n",
                    whole.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &whole[524_288..600_000]].concat());
                false
            }
            "bytes=262144-262150" => answer(stream, "503 Service Unavailable", "retry-after: 1", b"later"),
            other => panic!("{other}"),
        }
    });
    let proxy = Proxy::before(&origin.url(), RULE);
    assert!(proxy.get_with("/large", &["range: bytes=0-9"]).body == body[..10]);
    // Of one that is not said yet, the client has the origin's own words.
    let refused = proxy.get_with("/large", &["range: bytes=262144-262150"]);
    assert_eq!((refused.status(), refused.text().as_str()), (503, "later"));
    assert!(refused.cache().contains("detail=slice-not-sent"), "{refused:?}");
    let mut client = proxy.client();
    client.write("GET", "/large", &[], b"");
    let head = client.read_head().unwrap();
    assert!(head.status() == 200 && client.read_bytes(SLICE).unwrap() == body[..SLICE]);
    assert!(client.read_bytes(1).is_err(), "nothing behind it");
    proxy.settle();
    let mut client = proxy.client();
    client.write("GET", "/large", &["range: bytes=524288-"], b"");
    assert!(client.read("GET").is_none(), "a slice that broke off is none");
    proxy.settle();
    assert!(proxy.get_with("/large", &["range: bytes=0-9"]).is_hit(), "what is there stays");
    let before = origin.count();
    assert_eq!(proxy.stats()["proxy"]["slices"]["refused"], 2);
    for (range, status) in [("bytes=0-9", 206), ("bytes=0-300000", 504)] {
        let reply = proxy.get_with("/large", &["cache-control: only-if-cached", &format!("range: {range}")]);
        assert_eq!(reply.status(), status, "{range}");
    }
    assert_eq!(origin.count(), before);
}
