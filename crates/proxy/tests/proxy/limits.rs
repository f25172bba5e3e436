//! Limits of origins and of bodies: how many at a time, and how slowly.

use std::{
    io::{Read, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::kit::{Door, Origin, Proxy, STALE, eventually, ok, sleep};

#[test]
fn an_origin_has_its_most_requests_and_as_many_wait_as_may() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        closed.pass();
        ok(stream, "cache-control: no-store", request.path().as_bytes())
    });
    let limits = "[limits]\norigin_connections = 1\norigin_waiting = 1\nconnect_timeout = \"1h\"\n";
    let proxy = Proxy::before(&origin.url(), limits);
    let mut first = proxy.client();
    first.write("GET", "/first", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    let (sender, replies) = mpsc::channel();
    for path in ["/a", "/b"] {
        let (mut client, sender) = (proxy.client(), sender.clone());
        thread::spawn(move || sender.send((path, client.get(path))));
    }
    eventually("one is refused", || proxy.stats()["proxy"]["origin_failures"]["origin-busy"] == 1);
    let (refused, reply) = replies.recv().unwrap();
    assert_eq!((reply.status(), reply.cache()), (503, "picaflor; detail=origin-busy"));
    assert_eq!(origin.count(), 1, "the other one waits");
    door.open();
    assert_eq!(first.read("GET").unwrap().text(), "/first");
    let (path, reply) = replies.recv().unwrap();
    assert!(path != refused && reply.text() == path, "{reply:?}");
    assert_eq!(proxy.get("/again").text(), "/again");
}

#[test]
fn a_request_that_asks_twice_has_one_turn_at_a_time() {
    let origin = Origin::start(|request, stream| match request.field("if-none-match") {
        "" => ok(stream, STALE, b"body"),
        // It confirms something else.
        _ => stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"w\"\r\n\r\n").is_ok(),
    });
    let proxy = Proxy::before(
        &origin.url(),
        "[limits]\norigin_connections = 1\nconnect_timeout = \"1s\"\norigin_pause = \"0s\"\n",
    );
    assert_eq!(proxy.get("/").text(), "body");
    assert_eq!(proxy.get("/").text(), "body");
    assert_eq!(origin.count(), 3);
}

#[test]
fn an_upload_may_be_too_slow() {
    let origin = Origin::constant("", "read");
    let proxy = Proxy::before(&origin.url(), "[limits]\nupload_rate = \"1KiB\"\nrate_window = \"1s\"\n");
    let mut client = proxy.client();
    client.stream.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n").unwrap();
    let mut dripping = client.stream.try_clone().unwrap();
    let thread = thread::spawn(move || {
        for _ in 0..100 {
            let _ = dripping.write_all(b"x");
            sleep(50);
        }
    });
    let reply = client.read("POST").unwrap();
    assert_eq!((reply.status(), reply.cache()), (408, "picaflor; detail=upload-too-slow"));
    thread.join().unwrap();
    assert_eq!(proxy.client().send("POST", "/", &[], &[b'x'; 100]).text(), "read", "what comes at once is not");
}

#[test]
fn an_origin_may_be_too_slow() {
    let origin = Origin::start(|request, stream| {
        if request.path() == "/quick" {
            return ok(stream, "", &[b'x'; 100]);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n");
        for _ in 0..100 {
            if stream.write_all(b"x").is_err() {
                return false;
            }
            sleep(50);
        }
        true
    });
    let proxy = Proxy::before(&origin.url(), "[limits]\norigin_rate = \"1KiB\"\nrate_window = \"1s\"\n");
    let mut client = proxy.client();
    client.write("GET", "/slow", &[], b"");
    assert!(client.read("GET").is_none(), "it broke off");
    assert_eq!(proxy.stats()["proxy"]["origin_failures"]["body-slow"], 1);
    assert_eq!(proxy.get("/quick").body.len(), 100);
}

#[test]
fn a_client_may_be_too_slow() {
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: max-age=60", &vec![b'x'; 24 << 20]));
    let config = "[limits]\ndownload_rate = \"1MiB\"\nrate_window = \"1s\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let mut slow = proxy.client();
    slow.write("GET", "/", &[], b"");
    let (is_over, over) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        while over.recv_timeout(Duration::from_millis(20)).is_err() {
            let _ = slow.stream.read(&mut [0; 1024]);
        }
    });
    eventually("it is closed", || proxy.stats()["proxy"]["connections_timed_out"] == 1);
    is_over.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(proxy.client().get("/").body.len(), 24 << 20);
}

#[test]
fn what_came_of_a_body_that_breaks_off_is_passed_on_before_its_end_is() {
    let origin = Origin::start(|request, stream| {
        let fields = if request.path().starts_with("/kept") { "max-age=60" } else { "no-store" };
        let head = format!("HTTP/1.1 200 OK\r\ncache-control: {fields}\r\ncontent-length: 100000\r\n\r\nhalf");
        let _ = stream.write_all(head.as_bytes());
        false
    });
    let proxy = Proxy::before(&origin.url(), "");
    for path in (0..20).flat_map(|n| [format!("/kept/{n}"), format!("/passed/{n}")]) {
        let mut client = proxy.client();
        client.write("GET", &path, &[], b"");
        assert_eq!(client.read_head().expect("a head").status(), 200, "{path}");
        assert_eq!(client.read_bytes(4).expect("what came"), b"half", "{path}");
        assert!(client.read_bytes(1).is_err(), "{path}");
    }
}
