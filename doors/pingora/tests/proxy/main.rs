//! The proxy of the README, before a real nginx.

mod kit;

use std::io::Read;

use doors_kit::{Origin, eventually, noise};
use kit::Proxy;

#[test]
fn the_readme_shows_the_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../../examples/proxy.rs"));
    assert!(readme.contains(example), "the README has another text than examples/proxy.rs");
}

#[test]
fn after_kill_9_what_was_cached_are_hits() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let sizes = [0, 1, 4096, 300_000, 5_000_001];
    let store = folder.path().join("cache.store");
    let mut proxy = Proxy::start(&origin, &store, &["durable"]);
    for (seed, len) in sizes.into_iter().enumerate() {
        let (name, body) = (format!("f{len}"), noise(len, seed as u64));
        origin.file(&name, &body);
        for expected in ["miss", "hit"] {
            let answer = proxy.get(&name);
            assert_eq!((answer.status(), answer.cache()), ("200", expected), "{name}");
            assert!(answer.body == body, "{name}");
        }
    }
    for _ in 0..2 {
        proxy.kill();
        proxy = Proxy::start(&origin, &store, &["durable"]);
        for (seed, len) in sizes.into_iter().enumerate() {
            let answer = proxy.get(&format!("f{len}"));
            assert_eq!(answer.cache(), "hit", "f{len}");
            assert!(answer.body == noise(len, seed as u64), "f{len}");
        }
    }
    for len in sizes {
        assert_eq!(origin.answers(&format!("f{len}"), 1).len(), 1);
    }
}

#[test]
fn a_server_that_is_told_to_end_makes_everything_durable() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let store = folder.path().join("cache.store");
    origin.file("last", b"what came last");
    let mut proxy = Proxy::start(&origin, &store, &[]);
    assert_eq!(proxy.get("last").cache(), "miss");
    proxy.ask_to_end();
    proxy.kill();
    let proxy = Proxy::start(&origin, &store, &[]);
    assert_eq!(proxy.get("last").cache(), "hit");
}

#[test]
fn a_hundred_misses_at_once_are_one_fetch() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let body = noise(400_000, 7);
    origin.file("popular", &body);
    let proxy = Proxy::start(&origin, &folder.path().join("cache.store"), &[]);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let answer = proxy.ask("GET", "popular", "X-Slow: 1\r\n");
                assert_eq!(answer.status(), "200");
                assert!(answer.body == body);
            });
        }
    });
    assert_eq!(origin.answers("popular", 1), ["200"]);
}

#[test]
fn a_fetch_that_breaks_off_is_not_cached() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let body = noise(2_000_000, 3);
    origin.file("broken", &body);
    let proxy = Proxy::start(&origin, &folder.path().join("cache.store"), &[]);
    let mut first = proxy.send("GET", "broken", "X-Slow: 1\r\n");
    first.read_exact(&mut [0; 20_000]).unwrap();
    let mut second = proxy.send("GET", "broken", "X-Slow: 1\r\n");
    second.read_exact(&mut [0; 20_000]).unwrap();
    origin.kill_worker();
    // A client that followed the fetch has less than was announced, and sees the connection end.
    for mut stream in [first, second] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < body.len() - 20_000);
    }
    let answer = eventually("a worker serves again", || Some(proxy.get("broken")).filter(|a| a.status() == "200"));
    assert_eq!(answer.cache(), "miss");
    assert!(answer.body == body);
    let answer = proxy.get("broken");
    assert_eq!(answer.cache(), "hit");
    assert!(answer.body == body);
}

#[test]
fn a_client_that_leaves_does_not_end_the_fetch() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let body = noise(1_000_000, 5);
    origin.file("left", &body);
    let proxy = Proxy::start(&origin, &folder.path().join("cache.store"), &[]);
    let mut client = proxy.send("GET", "left", "X-Slow: 1\r\n");
    client.read_exact(&mut [0; 20_000]).unwrap();
    drop(client);
    let answer = proxy.get("left");
    assert_eq!(answer.cache(), "hit");
    assert!(answer.body == body);
    assert_eq!(origin.answers("left", 1), ["200"]);
}

#[test]
fn ranges_come_from_hits_and_from_misses() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let body = noise(700_000, 9);
    let proxy = Proxy::start(&origin, &folder.path().join("cache.store"), &[]);
    for name in ["small", "large"] {
        let body = if name == "small" { &body[..5000] } else { &body };
        origin.file(name, body);
        for (round, range) in [(0, 1000..2000), (1, 1000..2000), (1, 0..1), (1, 4999..5000)] {
            let asked = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
            let answer = proxy.ask("GET", name, &asked);
            assert_eq!((answer.status(), answer.cache()), ("206", ["miss", "hit"][round]), "{name} {range:?}");
            assert!(answer.body == body[range.clone()], "{name} {range:?}");
        }
        let answer = proxy.ask("GET", name, "Range: bytes=0-9,4000-4009\r\n");
        assert!(answer.head.contains("multipart/byteranges"), "{}", answer.head);
        let parts = [&body[..10], &body[4000..4010]];
        assert!(parts.iter().all(|part| answer.body.windows(10).any(|ten| ten == *part)));
        // What a ranged miss brought is whole.
        assert!(proxy.get(name).body == *body);
        assert_eq!(origin.answers(name, 1), ["200"]);
    }
}

#[test]
fn a_purge_fetches_anew_and_a_soft_one_asks_whether_it_changed() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let store = folder.path().join("cache.store");
    let mut proxy = Proxy::start(&origin, &store, &["durable"]);
    origin.file("page", b"first");
    assert_eq!(proxy.ask("PURGE", "page", "").status(), "404");
    assert_eq!(proxy.get("page").cache(), "miss");
    assert_eq!(proxy.ask("PURGE", "page", "X-Purge: soft\r\n").status(), "200");
    // Kept, and stale: the origin is asked, and says that it did not change.
    let answer = proxy.get("page");
    assert_eq!((answer.cache(), answer.body.as_slice()), ("revalidated", b"first".as_slice()));
    assert_eq!(proxy.get("page").cache(), "hit");
    assert_eq!(origin.answers("page", 2), ["200", "304"]);
    proxy.kill();
    proxy = Proxy::start(&origin, &store, &["durable"]);
    assert_eq!(proxy.get("page").cache(), "hit");
    origin.file("page", b"second");
    assert_eq!(proxy.ask("PURGE", "page", "").status(), "200");
    let answer = proxy.get("page");
    assert_eq!((answer.cache(), answer.body.as_slice()), ("miss", b"second".as_slice()));
}
