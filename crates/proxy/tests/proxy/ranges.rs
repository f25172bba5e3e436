//! Parts of bodies, stored and arriving.

use crate::kit::{Origin, Proxy, eventually, ok};

fn letters(n: usize) -> Vec<u8> {
    (0..n).map(|i| b'a' + (i % 26) as u8).collect()
}

fn origin(n: usize) -> Origin {
    Origin::start(move |request, stream| {
        use std::io::Write;
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
