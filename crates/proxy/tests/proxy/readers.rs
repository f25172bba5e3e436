//! Readers of one fetch, each at its own pace: who is waited for, and how those that are not have the rest.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{
    collapse::by_hand,
    kit::{Client, Door, Origin, Proxy, answer, eventually, ok},
};

/// 24 MiB, more than a window and the buffers of two sockets hold.
fn large_body() -> Vec<u8> {
    (0..24u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
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
fn who_was_left_behind_by_what_is_purged_gets_the_rest_from_the_origin() {
    let body = Arc::new(large_body());
    let sent = body.clone();
    let origin = Origin::start(move |request, stream| {
        let fields = "cache-control: max-age=60\netag: \"v\"";
        let Some(range) = request.field("range").strip_prefix("bytes=") else { return ok(stream, fields, &sent) };
        assert_eq!(request.field("if-range"), "\"v\"");
        let (first, last) = range.split_once('-').unwrap();
        let part = &sent[first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap()];
        let fields = format!("{fields}\ncontent-range: bytes {range}/{}", sent.len());
        answer(stream, "206 Partial Content", &fields, part)
    });
    let config = "[cache]\ncollapse_window = \"256KiB\"\ncollapse_patience = \"1ms\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let mut slow = proxy.client();
    slow.write("GET", "/", &[], b"");
    eventually("it is stored", || proxy.stats()["proxy"]["stored"] == 1);
    assert_eq!(proxy.stats()["proxy"]["fill_left_behind"], 1);
    assert_eq!(proxy.purge("http://test.example/").status(), 200);
    assert!(slow.read("GET").unwrap().body == *body);
    assert_eq!((origin.count(), &proxy.stats()["proxy"]["bodies_mended"]), (2, &1.into()));
}

#[test]
fn late_comers_get_what_has_come_and_follow_and_a_slow_client_holds_nobody_up() {
    let (origin, send) = by_hand("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 6291456\r\n\r\n");
    let body = &large_body()[..6 << 20];
    // An eighth of the store's memory holds it.
    let proxy = Proxy::before(&origin.url(), "[cache]\ncollapse_patience = \"1h\"\n[store]\nmemory = \"128MiB\"\n");
    let mut slow = proxy.client();
    slow.write("GET", "/", &[], b"");
    eventually("it is asked for", || origin.count() == 1);
    let mut early = proxy.client();
    early.write("GET", "/", &[], b"");
    let mut clients = vec![early];
    for (n, part) in body.chunks(2 << 20).enumerate() {
        send.send(part.to_vec()).unwrap();
        for client in &mut clients {
            if n == 0 {
                client.read_head().unwrap();
            }
            assert!(client.read_bytes(part.len()).unwrap() == part);
        }
        let mut late = proxy.client();
        late.write("GET", "/", &[], b"");
        assert_eq!(late.read_head().unwrap().field("content-length"), "6291456");
        assert!(late.read_bytes((n + 1) * part.len()).unwrap() == body[..(n + 1) * part.len()]);
        clients.push(late);
    }
    assert!(slow.read("GET").unwrap().body == body);
    assert_eq!(origin.count(), 1);
}

#[test]
fn what_a_fetch_holds_counts_in_the_memory_of_the_store() {
    // Not stored: nothing else of it is in that memory.
    let (origin, send) = by_hand("HTTP/1.1 500 Broken\r\ncontent-length: 6291456\r\n\r\n");
    let proxy = Proxy::before(&origin.url(), "[store]\nmemory = \"64MiB\"\n");
    let used = || proxy.stats()["store"]["memory_used"].as_u64().unwrap();
    let before = used();
    let mut slow = proxy.client();
    slow.write("GET", "/", &[], b"");
    let body = &large_body()[..6 << 20];
    send.send(body[..4 << 20].to_vec()).unwrap();
    eventually("what has come counts", || used() >= before + (4 << 20));
    send.send(body[4 << 20..].to_vec()).unwrap();
    assert!(slow.read("GET").unwrap().body == body);
    eventually("it is let go", || used() < before + (4 << 20));
}

#[test]
fn a_late_comer_past_the_window_fetches_for_itself() {
    let (body, door) = (large_body(), Door::default());
    let (sent, closed, asked) = (body.clone(), door.clone(), AtomicUsize::new(0));
    let origin = Origin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: {}\r\n\r\n", sent.len());
        let (begun, rest) = sent.split_at(4 << 20);
        let first = asked.fetch_add(1, SeqCst) == 0;
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(begun)).is_err() {
            return false;
        }
        if first {
            closed.pass();
        }
        stream.write_all(rest).is_ok()
    });
    // Its end is further away than what is worth waiting for.
    let config = "[cache]\ncollapse_window = \"64KiB\"\ncollapse_patience = \"60s\"\nabandoned_max = \"1MiB\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let mut early = proxy.client();
    early.write("GET", "/", &[], b"");
    let head = early.read_head().unwrap();
    assert_eq!(head.status(), 200);
    let begun = early.read_bytes(1 << 20).unwrap();
    let late = proxy.client().get("/");
    assert!(late.body == body && late.cache().ends_with("detail=collapse-late"), "{}", late.cache());
    door.open();
    assert!([begun, early.read_bytes(body.len() - (1 << 20)).unwrap()].concat() == body);
}

#[test]
fn slow_clients_of_what_memory_cannot_hold_are_one_fetch() {
    let body = &large_body()[..16 << 20];
    let sent = body.to_vec();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: max-age=60", &sent));
    let proxy = Proxy::before(&origin.url(), "[cache]\ncollapse_patience = \"1h\"\n[store]\nmemory = \"32MiB\"\n");
    let ask = || {
        let mut client = proxy.client();
        client.write("GET", "/", &[], b"");
        client
    };
    let mut clients = vec![ask()];
    eventually("the fetch waits for it", || proxy.stats()["proxy"]["fill_waits"].as_u64() >= Some(1));
    clients.extend((1..200).map(|_| ask()));
    for client in &mut clients {
        assert!(client.read("GET").unwrap().body == body);
    }
    assert_eq!(origin.count(), 1);
}

/// An origin of a large body that stops behind its first bytes, and `before_end` bytes before its end, at a door each.
/// Ranges are answered at once.
fn in_two_steps(body: &Arc<Vec<u8>>, before_end: usize) -> (Origin, Door, Door) {
    let (sent, first, second) = (body.clone(), Door::default(), Door::default());
    let doors = (first.clone(), second.clone());
    let origin = Origin::start(move |request, stream| {
        let fields = "cache-control: max-age=60\netag: \"v\"";
        if let Some(range) = request.field("range").strip_prefix("bytes=") {
            let (first, last) = range.split_once('-').unwrap();
            let part = &sent[first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap()];
            let fields = format!("{fields}\ncontent-range: bytes {range}/{}", sent.len());
            return answer(stream, "206 Partial Content", &fields, part);
        }
        let fields = fields.replace('\n', "\r\n");
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\ncontent-length: {}\r\n\r\n", sent.len());
        let (begun, rest) = sent.split_at(1000);
        let (rest, end) = rest.split_at(rest.len() - before_end);
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(begun));
        doors.0.pass();
        let _ = stream.write_all(rest);
        doors.1.pass();
        stream.write_all(end).is_ok()
    });
    (origin, first, second)
}

/// Two clients of one fetch, each with the head of its answer.
fn two_with_heads(proxy: &Proxy) -> [Client; 2] {
    [(); 2].map(|()| {
        let mut client = proxy.client();
        client.write("GET", "/", &[], b"");
        client.read_head().unwrap();
        client
    })
}

#[test]
fn a_slow_client_that_goes_on_reading_holds_nobody_up() {
    let body = Arc::new(large_body());
    let (origin, first, second) = in_two_steps(&body, 0);
    second.open();
    let config = "[cache]\ncollapse_window = \"256KiB\"\ncollapse_patience = \"1s\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let [mut slow, mut quick] = two_with_heads(&proxy);
    first.open();
    let (is_over, over) = mpsc::channel::<()>();
    // Each pause is within the patience, all of them are not.
    let thread = thread::spawn(move || {
        let mut bytes = Vec::new();
        while over.recv_timeout(Duration::from_millis(300)).is_err() && bytes.len() < 24 << 20 {
            bytes.extend(slow.read_bytes(1 << 20).unwrap());
        }
        (slow, bytes)
    });
    // The quick one is not always there when something comes.
    for part in body.chunks(256 << 10) {
        thread::sleep(Duration::from_millis(5));
        assert!(quick.read_bytes(part.len()).unwrap() == *part);
    }
    is_over.send(()).unwrap();
    let (mut slow, mut bytes) = thread.join().unwrap();
    assert!(proxy.stats()["proxy"]["fill_left_behind"].as_u64() >= Some(1), "the slow one had {}", bytes.len());
    bytes.extend(slow.read_bytes(body.len() - bytes.len()).unwrap());
    assert!(bytes == *body);
    assert_eq!(origin.count(), 1);
}

#[test]
fn who_is_left_behind_by_a_fetch_that_takes_long_has_the_rest_from_the_origin() {
    let body = Arc::new(large_body());
    let (origin, first, second) = in_two_steps(&body, 2 << 20);
    let config = "[cache]\ncollapse_window = \"256KiB\"\ncollapse_patience = \"500ms\"\nabandoned_max = \"1MiB\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let [mut slow, mut quick] = two_with_heads(&proxy);
    first.open();
    let come = body.len() - (2 << 20);
    assert!(quick.read_bytes(come).unwrap() == body[..come]);
    // It was left behind, and the fetch is not over.
    assert!(slow.read_bytes(body.len()).unwrap() == *body);
    assert_eq!(origin.count(), 2);
    second.open();
    assert!(quick.read_bytes(2 << 20).unwrap() == body[come..]);
}
