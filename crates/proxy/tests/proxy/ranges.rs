//! Parts of bodies, stored and arriving.

use std::io::{Read, Write};

use crate::kit::{Origin, Proxy, eventually, ok, sleep};

fn letters(n: usize) -> Vec<u8> {
    (0..n).map(|i| b'a' + (i % 26) as u8).collect()
}

fn origin(n: usize) -> Origin {
    Origin::start(move |request, stream| {
        let body = letters(n);
        // A real server would answer ranges: this one shows whether it was asked for one.
        if request.field("range") == "bytes=0-3" {
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-3/{n}\r\ncontent-length: 4\r\n\r\nabcd"
            );
            return stream.write_all(head.as_bytes()).is_ok();
        }
        ok(stream, "cache-control: max-age=60\netag: \"e\"\ncontent-type: text/x", &body)
    })
}

#[test]
fn a_range_of_nothing_stored_brings_the_whole() {
    let origin = origin(1000);
    let proxy = Proxy::before(&origin.url(), "");
    let reply = proxy.get_with("/", &["range: bytes=26-28"]);
    assert_eq!((reply.status(), reply.text().as_str()), (206, "abc"));
    assert_eq!(reply.field("content-range"), "bytes 26-28/1000");
    let reply = proxy.get_with("/", &["range: bytes=-3"]);
    assert!(reply.is_hit() && reply.status() == 206 && reply.body == letters(1000)[997..], "{reply:?}");
    assert_eq!(origin.count(), 1);
}

#[test]
fn ranges_of_a_stored_response() {
    let origin = origin(1000);
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    let unsatisfiable = proxy.get_with("/", &["range: bytes=1000-"]);
    assert_eq!((unsatisfiable.status(), unsatisfiable.field("content-range")), (416, "bytes */1000"));
    let odd = proxy.get_with("/", &["range: lines=1-2"]);
    assert_eq!((odd.status(), odd.body.len()), (200, 1000));
    let same = proxy.get_with("/", &["range: bytes=0-0", "if-range: \"e\""]);
    assert_eq!((same.status(), same.text().as_str()), (206, "a"));
    let changed = proxy.get_with("/", &["range: bytes=0-0", "if-range: \"f\""]);
    assert_eq!((changed.status(), changed.body.len()), (200, 1000));
    let head = proxy.client().send("HEAD", "/", &["range: bytes=0-0"], b"");
    assert_eq!((head.status(), head.field("content-length")), (200, "1000"));
    assert_eq!(origin.count(), 1);
}

#[test]
fn conditions_ranges_and_the_last_request_of_a_connection_are_for_the_fast_path() {
    let origin = Origin::start(|_, stream| {
        let fields = "cache-control: max-age=60\netag: \"e\"\nlast-modified: Mon, 01 Jan 2024 00:00:00 GMT\ncontent-type: text/x";
        ok(stream, fields, &letters(1000))
    });
    let proxy = Proxy::before(&origin.url(), "[cache]\nclient_directives = \"ignore\"\n");
    eventually("it is in memory", || proxy.fast("/"));
    let count = || proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64().unwrap();
    let before = count();
    let rows: [(&[&str], u16, &[u8]); 9] = [
        (&["if-none-match: \"d\", W/\"e\""], 304, b""),
        (&["if-modified-since: Mon, 01 Jan 2024 00:00:00 GMT", "cache-control: max-age=0"], 304, b""),
        (&["if-none-match: \"d\"", "range: bytes=25-26"], 206, b"za"),
        (&["range: bytes=-2", "if-range: \"e\""], 206, &letters(1000)[998..]),
        (&["range: bytes=-2", "if-range: \"d\""], 200, &letters(1000)),
        (&["range: bytes=1000-"], 416, b""),
        (&["cache-control: no-cache", "pragma: no-cache"], 200, &letters(1000)),
        (&["connection: close", "range: bytes=0-0"], 206, b"a"),
        (&["connection: close"], 200, &letters(1000)),
    ];
    for (fields, status, body) in rows {
        let mut client = proxy.client();
        let reply = client.send("GET", "/", fields, b"");
        assert_eq!((reply.status(), &reply.body[..]), (status, body), "{fields:?}");
        assert_eq!(reply.field("content-type"), if status == 304 { "" } else { "text/x" });
        assert!(reply.is_hit() && reply.field("etag") == "\"e\"", "{reply:?}");
        if fields[0] == "connection: close" {
            assert_eq!(reply.field("connection"), "close");
            assert!(client.read("GET").is_none());
        }
    }
    assert_eq!(count(), before + rows.len() as u64);
    let mut old = proxy.client();
    old.stream.write_all(b"GET / HTTP/1.0\r\nHost: test.example\r\nRange: bytes=1-2\r\n\r\n").unwrap();
    let mut all = String::new();
    old.stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.0 206 Partial Content\r\n") && all.ends_with("\r\n\r\nbc"), "{all}");
    assert_eq!((count(), origin.count()), (before + rows.len() as u64 + 1, 1));
}

#[test]
fn a_large_body_that_is_asked_for_often_is_for_the_fast_path_and_so_are_its_parts() {
    for len in [100_000, 1_500_000] {
        let origin = origin(len);
        let proxy = Proxy::before(&origin.url(), "workers = 1\n");
        let whole = letters(len);
        eventually("the fast path has it", || proxy.get("/").body == whole && proxy.fast("/"));
        let count = || proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64().unwrap();
        let before = count();
        // More than a socket holds, and read late.
        let mut clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
        clients.iter_mut().for_each(|client| client.write("GET", "/", &[], b""));
        clients.iter_mut().for_each(|client| client.write("GET", "/", &["range: bytes=20000-90000"], b""));
        sleep(50);
        for client in &mut clients {
            assert!(client.read("GET").unwrap().body == whole);
            assert!(client.read("GET").unwrap().body == whole[20_000..=90_000]);
        }
        for (first, last) in [(0, 0), (99_990, 99_999), (5000, 9000)] {
            let reply = proxy.get_with("/", &[&format!("range: bytes={first}-{last}")]);
            assert!(reply.is_hit() && reply.status() == 206 && reply.body == whole[first..=last], "{first}-{last}");
        }
        assert_eq!((count(), origin.count()), (before + 43, 1));
    }
}

#[test]
fn several_ranges_come_as_multipart() {
    let origin = origin(1000);
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    let reply = proxy.get_with("/", &["range: bytes=0-1,500-502"]);
    assert_eq!(reply.status(), 206);
    let boundary = reply.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap().to_owned();
    let body = letters(1000);
    let expected = format!(
        "--{boundary}\r\nContent-Type: text/x\r\nContent-Range: bytes 0-1/1000\r\n\r\nab\r\n\
         --{boundary}\r\nContent-Type: text/x\r\nContent-Range: bytes 500-502/1000\r\n\r\n{}\r\n--{boundary}--\r\n",
        String::from_utf8_lossy(&body[500..503])
    );
    assert_eq!(reply.text(), expected);
}

#[test]
fn a_range_across_pieces_of_a_large_object() {
    let origin = origin(2_000_000);
    let proxy = Proxy::before(&origin.url(), "");
    let whole = letters(2_000_000);
    assert!(proxy.get("/").body == whole);
    eventually("it is stored", || proxy.stats()["proxy"]["stored"] == 1);
    for (first, last) in [(0, 0), (262_143, 262_144), (100_000, 1_500_000), (1_999_999, 1_999_999)] {
        let reply = proxy.get_with("/", &[&format!("range: bytes={first}-{last}")]);
        assert!(reply.is_hit() && reply.status() == 206 && reply.body == whole[first..=last], "{first}-{last}");
    }
    let reply = proxy.get_with("/", &["range: bytes=0-9,1000000-1000009"]);
    assert!(reply.text().contains(std::str::from_utf8(&whole[1_000_000..1_000_010]).unwrap()));
}

#[test]
fn a_range_of_something_very_large_is_passed_on() {
    let origin = origin(100_000);
    let proxy = Proxy::before(&origin.url(), "[cache]\nrange_whole_max = \"64KiB\"\n");
    for _ in 0..2 {
        let reply = proxy.get_with("/", &["range: bytes=0-3"]);
        assert_eq!((reply.status(), reply.text().as_str()), (206, "abcd"));
    }
    assert!(proxy.get_with("/", &["range: bytes=0-3"]).cache().contains("detail=r"), "named");
    assert!(!proxy.get("/").is_hit());
    eventually("it is stored", || proxy.stats()["proxy"]["stored"] == 1);
    let reply = proxy.get_with("/", &["range: bytes=0-3"]);
    assert!(reply.is_hit() && reply.text() == "abcd", "the whole was wanted, then: {reply:?}");
}

#[test]
fn an_empty_body_and_ranges() {
    let origin = Origin::constant("cache-control: max-age=60", "");
    let proxy = Proxy::before(&origin.url(), "");
    for _ in 0..2 {
        let reply = proxy.get("/");
        assert_eq!((reply.status(), reply.field("content-length")), (200, "0"));
        assert_eq!(proxy.get_with("/", &["range: bytes=0-"]).status(), 416);
    }
}
