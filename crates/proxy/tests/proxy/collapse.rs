//! One fetch, many clients.

use std::{
    io::Write,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use parking_lot::Mutex;

use crate::kit::{Origin, Proxy, eventually, ok, sleep};

/// An origin that writes what the test sends it, piece by piece; an empty piece breaks the connection off.
fn by_hand(head: &'static str) -> (Origin, mpsc::Sender<Vec<u8>>) {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let receiver = Mutex::new(receiver);
    let origin = Origin::start(move |_, stream| {
        if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        let receiver = receiver.lock();
        while let Ok(piece) = receiver.recv() {
            if piece.is_empty() || stream.write_all(&piece).is_err() {
                return false;
            }
        }
        false
    });
    (origin, sender)
}

const TEN: &str = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 10\r\n\r\n";

#[test]
fn a_hundred_clients_are_one_fetch() {
    let origin = Origin::start(|_, stream| {
        sleep(300);
        ok(stream, "cache-control: max-age=60", &vec![b'x'; 100_000])
    });
    let proxy = Proxy::before(&origin.url(), "");
    let together = Barrier::new(100);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let mut client = proxy.client();
                together.wait();
                let reply = client.get("/");
                assert!(reply.status() == 200 && reply.body == vec![b'x'; 100_000], "{}", reply.first);
            });
        }
    });
    assert_eq!(origin.count(), 1);
    let requests = &proxy.stats()["proxy"]["requests"];
    assert_eq!(requests["miss"], 1);
    assert!(requests["collapsed"].as_u64() >= Some(90), "{requests}");
}

#[test]
fn waiters_read_what_has_come_while_the_rest_is_on_its_way() {
    let (origin, send) = by_hand(TEN);
    let proxy = Proxy::before(&origin.url(), "");
    send.send(b"12345".to_vec()).unwrap();
    let mut clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.write("GET", "/", &[], b"");
        let head = client.read_head().unwrap();
        assert_eq!(head.field("content-length"), "10");
        assert_eq!(client.read_bytes(5).unwrap(), b"12345", "before the origin sent more");
    }
    send.send(b"67890".to_vec()).unwrap();
    for client in &mut clients {
        assert_eq!(client.read_bytes(5).unwrap(), b"67890");
    }
    assert_eq!(origin.count(), 1);
    eventually("it is stored", || proxy.get("/").is_hit());
}

#[test]
fn who_began_may_leave() {
    let (origin, send) = by_hand(TEN);
    let proxy = Proxy::before(&origin.url(), "");
    let mut first = proxy.client();
    first.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    let mut second = proxy.client();
    second.write("GET", "/", &[], b"");
    sleep(50);
    drop(first);
    send.send(b"1234567890".to_vec()).unwrap();
    assert_eq!(second.read("GET").unwrap().text(), "1234567890");
    assert_eq!(origin.count(), 1);
}

#[test]
fn what_nobody_waits_for_any_more_is_still_stored() {
    let (origin, send) = by_hand(TEN);
    let proxy = Proxy::before(&origin.url(), "");
    let mut only = proxy.client();
    only.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    send.send(b"123".to_vec()).unwrap();
    sleep(50);
    drop(only);
    sleep(50);
    send.send(b"4567890".to_vec()).unwrap();
    eventually("it is stored", || proxy.stats()["proxy"]["stored"] == 1);
    assert!(proxy.get("/").is_hit());
}

#[test]
fn a_fetch_that_breaks_off_breaks_its_readers_and_stores_nothing() {
    let (origin, send) = by_hand(TEN);
    let proxy = Proxy::before(&origin.url(), "");
    let mut clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.write("GET", "/", &[], b""));
    eventually("it is asked for", || origin.count() == 1);
    send.send(b"123".to_vec()).unwrap();
    sleep(100);
    send.send(Vec::new()).unwrap();
    for client in &mut clients {
        assert!(client.read("GET").is_none(), "a short body must not look whole");
    }
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["truncated"], 1);
    assert_eq!(proxy.stats()["proxy"]["stored"], 0);
}

#[test]
fn a_fetch_that_fails_before_its_head_fails_all_who_wait_and_no_later_one() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    // The first connection, and the retry that every GET has, break off; later ones answer.
    let origin = Origin::start(move |_, stream| {
        sleep(200);
        seen.fetch_add(1, SeqCst) >= 2 && ok(stream, "cache-control: max-age=60", b"late")
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut clients: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.write("GET", "/", &[], b""));
    for client in &mut clients {
        let reply = client.read("GET").unwrap();
        assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=closed"));
    }
    assert_eq!(origin.count(), 2, "an origin in trouble is not asked by each of them");
    assert_eq!(proxy.get("/").text(), "late");
}

#[test]
fn what_is_no_http_is_asked_for_once() {
    let origin = Origin::start(|_, stream| {
        let _ = stream.write_all(b"hello\r\n\r\n");
        false
    });
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(proxy.get("/").cache(), "picaflor; detail=protocol");
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_private_response_is_for_one_client_only() {
    let origin = Origin::start(|request, stream| {
        sleep(150);
        let body = format!("for {}", request.field("cookie"));
        ok(stream, "cache-control: private", body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    thread::scope(|scope| {
        for n in 0..10 {
            let proxy = &proxy;
            scope.spawn(move || {
                let reply = proxy.get_with("/", &[&format!("cookie: {n}")]);
                assert_eq!(reply.text(), format!("for {n}"));
            });
        }
    });
    assert_eq!(origin.count(), 10);
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| proxy.get("/"));
        }
    });
    assert!(start.elapsed().as_millis() < 290, "nobody queues for what is known to be private");
}

#[test]
fn another_variant_is_not_for_the_waiter() {
    let origin = Origin::start(|request, stream| {
        sleep(150);
        ok(stream, "cache-control: max-age=60\nvary: x-lang", request.field("x-lang").as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    thread::scope(|scope| {
        for lang in ["de", "es", "de", "es"] {
            let proxy = &proxy;
            scope.spawn(move || assert_eq!(proxy.get_with("/", &[&format!("x-lang: {lang}")]).text(), lang));
        }
    });
    assert!(origin.count() <= 3, "{}", origin.count());
}

#[test]
fn revalidation_is_done_once_for_all() {
    let origin = Origin::start(|request, stream| {
        if request.field("if-none-match").is_empty() {
            return ok(stream, "cache-control: max-age=1\netag: \"a\"", b"body");
        }
        sleep(200);
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n").is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/");
    sleep(1100);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(proxy.get("/").text(), "body"));
        }
    });
    assert_eq!(origin.count(), 2);
}

/// 24 MiB, more than a window and the buffers of two sockets hold.
fn large_body() -> Vec<u8> {
    (0..24u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn large() -> (Origin, Vec<u8>) {
    let body = large_body();
    let sent = body.clone();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: max-age=60", &sent));
    (origin, body)
}

#[test]
fn a_slow_reader_neither_stops_the_others_nor_loses_anything() {
    let (origin, send) = by_hand("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 25165824\r\n\r\n");
    let body = large_body();
    let config = "[cache]\ncollapse_window = \"256KiB\"\ncollapse_patience = \"300ms\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let mut slow = proxy.client();
    slow.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    let mut quick = proxy.client();
    quick.write("GET", "/", &[], b"");
    let (begun, rest) = body.split_at(1000);
    send.send(begun.to_vec()).unwrap();
    quick.read_head().unwrap();
    assert_eq!(quick.read_bytes(begun.len()).unwrap(), begun, "it is in the same fetch before the window has moved");
    send.send(rest.to_vec()).unwrap();
    assert!(quick.read_bytes(rest.len()).unwrap() == rest);
    assert!(slow.read("GET").unwrap().body == body, "the rest came from the store");
    let stats = proxy.stats();
    assert!(stats["proxy"]["fill_left_behind"].as_u64() >= Some(1), "{stats:#}");
    assert!(stats["fill_buffered_bytes"].as_u64() <= Some(1 << 20), "{stats:#}");
}

#[test]
fn a_late_comer_past_the_window_fetches_for_itself() {
    let (origin, body) = large();
    let proxy = Proxy::before(&origin.url(), "[cache]\ncollapse_window = \"64KiB\"\ncollapse_patience = \"60s\"\n");
    let mut early = proxy.client();
    early.write("GET", "/", &[], b"");
    let head = early.read_head().unwrap();
    assert_eq!(head.status(), 200);
    let begun = early.read_bytes(1 << 20).unwrap();
    let late = proxy.get("/");
    assert!(late.body == body && late.cache().ends_with("detail=collapse-late"), "{}", late.cache());
    assert!([begun, early.read_bytes(body.len() - (1 << 20)).unwrap()].concat() == body);
}
