//! One fetch, many clients.

use std::{
    io::Write,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use crate::kit::{Door, Origin, Proxy, STALE, answer, eventually, ok};

/// An origin that writes what the test sends it, piece by piece; an empty piece breaks the connection off.
pub(crate) fn by_hand(head: &'static str) -> (Origin, mpsc::Sender<Vec<u8>>) {
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
    let (origin, send) = by_hand("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 100000\r\n\r\n");
    let proxy = Proxy::before(&origin.url(), "");
    let mut clients: Vec<_> = (0..100).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.write("GET", "/", &[], b""));
    send.send(b"x".to_vec()).unwrap();
    for client in &mut clients {
        assert_eq!(client.read_head().unwrap().status(), 200);
        assert_eq!(client.read_bytes(1).unwrap(), b"x");
    }
    send.send(vec![b'x'; 99_999]).unwrap();
    for client in &mut clients {
        assert!(client.read_bytes(99_999).unwrap() == vec![b'x'; 99_999]);
    }
    assert_eq!(origin.count(), 1);
    let requests = &proxy.stats()["proxy"]["requests"];
    assert_eq!((&requests["miss"], &requests["collapsed"]), (&1.into(), &99.into()));
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
fn a_body_that_takes_long_does_not_take_the_place_of_a_newer_one() {
    let (version, doors) = (Arc::new(AtomicUsize::new(0)), [Door::default(), Door::default()]);
    let (now, waits) = (version.clone(), doors.clone());
    let origin = Origin::start(move |_, stream| {
        let version = now.load(SeqCst);
        let body = vec![b'0' + version as u8; if version == 3 { 200_000 } else { 10 }];
        let head = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: {}\r\n\r\n", body.len());
        let begun = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..1]));
        if version % 2 == 1 {
            waits[version / 2].pass();
        }
        begun.and_then(|()| stream.write_all(&body[1..])).is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    for (path, old) in [("/small", 1), ("/streamed", 3)] {
        version.store(old, SeqCst);
        let mut client = proxy.client();
        client.write("GET", path, &[], b"");
        client.read_head().unwrap();
        version.store(2, SeqCst);
        // The clock by which they are told apart has milliseconds.
        thread::sleep(Duration::from_millis(5));
        let get = |fields: &[&str]| proxy.client().send("GET", path, fields, b"");
        assert_eq!(get(&["cache-control: no-cache"]).text(), "2222222222");
        eventually("the newer one is stored", || get(&[]).is_hit());
        doors[old / 2].open();
        let len = if old == 3 { 200_000 } else { 10 };
        assert!(client.read_bytes(len).unwrap() == vec![b'0' + old as u8; len]);
        proxy.settle();
        let reply = proxy.get(path);
        assert_eq!((reply.is_hit(), reply.text()), (true, "2222222222".into()), "{reply:?}");
    }
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["superseded"], 2);
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
    send.send(b"1".to_vec()).unwrap();
    second.read_head().unwrap();
    assert_eq!(second.read_bytes(1).unwrap(), b"1", "it is in the fetch");
    drop(first);
    send.send(b"234567890".to_vec()).unwrap();
    assert_eq!(second.read_bytes(9).unwrap(), b"234567890");
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
    only.read_head().unwrap();
    drop(only);
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
    send.send(b"123".to_vec()).unwrap();
    for client in &mut clients {
        client.read_head().unwrap();
        assert_eq!(client.read_bytes(3).unwrap(), b"123");
    }
    send.send(Vec::new()).unwrap();
    for client in &mut clients {
        let broken = client.read_bytes(7).unwrap_err();
        assert_ne!(broken.kind(), std::io::ErrorKind::WouldBlock, "a short body must not look whole");
    }
    assert_eq!(proxy.stats()["proxy"]["not_stored"]["truncated"], 1);
    assert_eq!(proxy.stats()["proxy"]["stored"], 0);
}

#[test]
fn a_fetch_that_fails_before_its_head_fails_all_who_wait_and_no_later_one() {
    let (count, door) = (Arc::new(AtomicUsize::new(0)), Door::default());
    let (seen, closed) = (count.clone(), door.clone());
    // The first connection, and the retry that every GET has, break off; later ones answer.
    let origin = Origin::start(move |request, stream| {
        if request.path() != "/" {
            return ok(stream, "", b"");
        }
        closed.pass();
        seen.fetch_add(1, SeqCst) >= 2 && ok(stream, "cache-control: max-age=60", b"late")
    });
    let proxy = Proxy::before(&origin.url(), "workers = 1\n");
    for client in &mut proxy.held_at(&door, (0..20).map(|n| format!("x-client: {n}"))) {
        let reply = client.read("GET").unwrap();
        assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=closed"));
    }
    assert_eq!(count.load(SeqCst), 2, "an origin in trouble is not asked by each of them");
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
    let all_there = Arc::new(Barrier::new(10));
    let origin = Origin::start(move |request, stream| {
        // Those who say who they are come first; of the others, each waits for all.
        if request.field("cookie").is_empty() {
            all_there.wait();
        }
        let body = format!("for {}", request.field("cookie"));
        ok(stream, "cache-control: private", body.as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "");
    thread::scope(|scope| {
        for n in 0..10 {
            let proxy = &proxy;
            scope.spawn(move || {
                let reply = proxy.client().send("GET", "/", &[&format!("cookie: {n}")], b"");
                assert_eq!(reply.text(), format!("for {n}"));
            });
        }
    });
    assert_eq!(origin.count(), 10);
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| assert_eq!(proxy.client().get("/").text(), "for ", "nobody queues for what is private"));
        }
    });
}

#[test]
fn another_variant_is_not_for_the_waiter() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/" {
            closed.pass();
        }
        ok(stream, "cache-control: max-age=60\nvary: x-lang", request.field("x-lang").as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), "workers = 1\n");
    let languages = ["de", "es", "de", "es"];
    let clients = proxy.held_at(&door, languages.map(|lang| format!("x-lang: {lang}")));
    for (mut client, lang) in clients.into_iter().zip(languages) {
        assert_eq!(client.read("GET").unwrap().text(), lang);
    }
    assert!(origin.count() <= 1 + 3, "{}, and one to see that all wait", origin.count());
}

#[test]
fn revalidation_is_done_once_for_all() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        if request.field("if-none-match").is_empty() {
            return ok(stream, STALE, b"body");
        }
        closed.pass();
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"v\"\r\n\r\n").is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "workers = 1\n");
    proxy.get("/");
    for client in &mut proxy.held_at(&door, (0..20).map(|n| format!("x-client: {n}"))) {
        assert_eq!(client.read("GET").unwrap().text(), "body");
    }
    assert_eq!(origin.count(), 1 + 1 + 1, "stored, confirmed, and one to see that all wait");
}

#[test]
fn what_clients_want_to_be_asked_is_asked_once() {
    let fields =
        ["cache-control: no-cache", "cache-control: max-age=0", "pragma: no-cache", "if-match: \"v\"", "if-match: *"];
    for (field, is_stored) in fields.iter().flat_map(|field| [(field, false), (field, true)]) {
        let door = Door::default();
        let closed = door.clone();
        let origin = Origin::start(move |request, stream| {
            // Requests that are held say which they are.
            if !request.field("x-client").is_empty() {
                closed.pass();
            }
            if request.field("if-none-match").is_empty() {
                return ok(stream, "cache-control: max-age=3600\netag: \"v\"", b"body");
            }
            stream.write_all(b"HTTP/1.1 304 Not Modified\r\netag: \"v\"\r\n\r\n").is_ok()
        });
        let proxy = Proxy::before(&origin.url(), "workers = 1\n");
        if is_stored {
            proxy.get("/");
        }
        let before = origin.count();
        for client in &mut proxy.held_at(&door, (0..30).map(|n| format!("x-client: {n}\r\n{field}"))) {
            let reply = client.read("GET").unwrap();
            assert_eq!((reply.status(), reply.text().as_str()), (200, "body"), "{field}: {reply:?}");
        }
        assert_eq!(origin.count() - before, 1 + 1, "{field}, {is_stored}: and one to see that all wait");
    }
}

#[test]
fn what_is_to_be_new_joins_no_fetch_whose_head_has_come() {
    let (origin, send) = by_hand(TEN);
    let proxy = Proxy::before(&origin.url(), "");
    send.send(b"12345".to_vec()).unwrap();
    let mut first = proxy.client();
    first.write("GET", "/", &[], b"");
    first.read_head().unwrap();
    // By now the origin gives what comes to the first.
    assert_eq!(first.read_bytes(5).unwrap(), b"12345");
    let mut new = proxy.client();
    new.write("GET", "/", &["cache-control: no-cache"], b"");
    eventually("it is asked for again", || origin.count() == 2);
    send.send(b"67890".to_vec()).unwrap();
    assert_eq!(first.read_bytes(5).unwrap(), b"67890");
    drop(send);
    assert!(new.read("GET").is_none(), "its own fetch, which broke off");
}

#[test]
fn an_error_answers_all_who_wait_and_those_of_the_next_moment() {
    answers_all_of_a_moment("503 Service Unavailable");
}

#[test]
fn a_redirect_for_the_moment_answers_all_who_wait_and_those_of_the_next() {
    answers_all_of_a_moment("302 Found");
}

fn answers_all_of_a_moment(status: &'static str) {
    let code: u16 = status[..3].parse().unwrap();
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        if !request.field("x-client").is_empty() {
            closed.pass();
        }
        answer(stream, status, "", b"busy")
    });
    let mut proxy =
        Proxy::before(&origin.url(), "workers = 1\n[cache]\nerror_hold = \"1h\"\n[limits]\ndrain = \"5m\"\n");
    for client in &mut proxy.held_at(&door, (0..30).map(|n| format!("x-client: {n}"))) {
        let reply = client.read("GET").unwrap();
        assert_eq!((reply.status(), reply.text().as_str()), (code, "busy"), "{reply:?}");
    }
    assert_eq!(origin.count(), 1 + 1, "and one to see that all wait");
    let mut client = proxy.client();
    assert_eq!(client.get("/").cache(), format!("picaflor; fwd=uri-miss; fwd-status={code}; collapsed"));
    assert_eq!(client.send("GET", "/", &["cookie: a=b"], b"").text(), "busy");
    assert_eq!(origin.count(), 1 + 1 + 1, "what may be for one client is not for others");
    // A stop that waited for the moment to be over would take minutes.
    drop(client);
    proxy.stop().unwrap();
}

#[test]
fn stored_is_said_only_of_what_the_store_takes() {
    let origin = Origin::start(|request, stream| {
        // 64 KiB as they are sent, more as they would be stored.
        let many = (100..500).map(|n| format!("x-{n}:{}\r\n", "y".repeat(155))).collect();
        let fields: String = if request.path() == "/many" { many } else { String::new() };
        let body = match request.path() {
            "/chunked" => "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            _ => "content-length: 1\r\n\r\nx",
        };
        let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=60";
        stream.write_all(format!("{head}\r\n{fields}{body}").as_bytes()).is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    for (path, stored, is_stored) in [("/", "; stored", true), ("/many", "", false), ("/chunked", "", true)] {
        assert_eq!(proxy.get(path).cache(), format!("picaflor; fwd=uri-miss; fwd-status=200{stored}"));
        assert_eq!(proxy.get(path).is_hit(), is_stored, "{path}");
    }
}
