//! Clients that say that they will ask no more, as `printf ... | nc -N` does, and wait for what they asked for.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

use crate::kit::{Origin, Proxy, eventually, ok, sleep};

/// Slow where a client that was given up would notice.
fn origin() -> Origin {
    Origin::start(|request, stream| {
        let fields = if request.path().starts_with("/kept") || request.path().starts_with("/arriving") {
            "cache-control: max-age=60"
        } else {
            "cache-control: no-store"
        };
        if request.path().starts_with("/arriving") {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\ncontent-length: 300000\r\n\r\n");
            sleep(100);
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..3 {
                sleep(100);
                let _ = stream.write_all(&[b'x'; 100_000]);
            }
            return true;
        }
        sleep(200);
        ok(stream, fields, &vec![b'x'; 200_000])
    })
}

/// Sends the text, ends the sending side, and reads to the end.
fn ask(proxy: &Proxy, text: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

fn count(text: &[u8], word: &str) -> usize {
    text.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
}

#[test]
fn a_half_closed_client_gets_its_whole_answer() {
    let origin = origin();
    let proxy = Proxy::before(&origin.url(), "");
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n{more}\r\n");
    let post = "POST /passed HTTP/1.1\r\nHost: test.example\r\nContent-Length: 3\r\n\r\nabc";
    let rows = [
        ("a miss", get("/kept", ""), 200_000, "stored"),
        ("a hit", get("/kept", ""), 200_000, "picaflor; hit"),
        ("a hit under hyper", get("/kept", "Cache-Control: max-age=50\r\n"), 200_000, "picaflor; hit"),
        ("not stored", get("/passed", ""), 200_000, "no-store"),
        ("with a body", post.to_owned(), 200_000, "fwd=method"),
        ("a fetch under way", get("/arriving", ""), 300_000, "stored"),
        ("HTTP/1.0", "GET /kept HTTP/1.0\r\nHost: test.example\r\n\r\n".to_owned(), 200_000, "picaflor; hit"),
        ("a range", get("/kept", "Range: bytes=0-9\r\n"), 10, "206 Partial"),
    ];
    for (what, text, len, word) in rows {
        let all = ask(&proxy, &text);
        let head = String::from_utf8_lossy(&all[..all.len().min(1000)]).into_owned();
        assert!(all.ends_with(&vec![b'x'; len]), "{what}: {} bytes, {head}", all.len());
        assert!(head.contains(word), "{what}: {head}");
        // Who asks before a fetch has ended shares it.
        eventually("it is stored", || proxy.fast("/kept"));
    }
    assert!(ask(&proxy, &get("/kept", "")).ends_with(&[b'x'; 200_000]), "the fast path");
    let several = [get("/kept", ""), get("/passed", ""), post.to_owned(), get("/kept", "")].concat();
    let all = ask(&proxy, &several);
    let text = String::from_utf8_lossy(&all).replace(&"x".repeat(1000), "");
    assert_eq!(count(&all, "HTTP/1.1 200 OK"), 4, "each of several: {text}");
}

#[test]
fn several_wait_for_one_fetch_and_half_close() {
    let origin = origin();
    let proxy = Proxy::before(&origin.url(), "");
    let text = "GET /arriving HTTP/1.1\r\nHost: test.example\r\n\r\n";
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&proxy, text))).collect();
        for client in clients {
            assert!(client.join().unwrap().ends_with(&[b'x'; 300_000]));
        }
    });
    assert_eq!(origin.count(), 1);
    eventually("every connection is over", || {
        let stats = proxy.stats();
        stats["proxy"]["connections_closed"] == stats["proxy"]["connections"]
    });
}

#[test]
fn half_a_request_and_no_more_is_refused_with_a_reason() {
    let origin = origin();
    let proxy = Proxy::before(&origin.url(), "");
    let rows = [
        ("GET / HT", "malformed"),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "malformed"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", "broken-body"),
    ];
    for (text, why) in rows {
        let reply = ask(&proxy, text);
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with("HTTP/1.1 400") && reply.contains(&format!("detail={why}")), "{text:?}: {reply}");
    }
    assert!(ask(&proxy, "").is_empty(), "who asks nothing is told nothing");
    assert_eq!(count(&ask(&proxy, "GET /kept HTTP/1.1\r\nHost: test.example\r\n\r\n"), "200 OK"), 1);
}

#[test]
fn the_admin_listener_answers_half_closed_clients() {
    let origin = origin();
    let proxy = Proxy::before(&origin.url(), "");
    let mut stream = TcpStream::connect(proxy.admin).unwrap();
    let text = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", proxy.token);
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.contains("picaflor_requests_total"), "{all}");
}

#[test]
fn a_half_closed_tunnel_brings_what_is_still_to_come() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).unwrap();
        sleep(100);
        stream.write_all(&[&b"you said "[..], &asked].concat()).unwrap();
    });
    let proxy = Proxy::start(&format!("[forward]\nconnect_ports = [{}]\n", server.port()));
    let mut client = proxy.client();
    client.write("CONNECT", &server.to_string(), &[], b"");
    assert_eq!(client.read_head().unwrap().status(), 200);
    client.stream.write_all(b"hello").unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_bytes(14).unwrap(), b"you said hello");
}

#[test]
fn a_refusal_reaches_who_is_still_sending() {
    let origin = origin();
    let proxy = Proxy::before(&origin.url(), "");
    for _ in 0..5 {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let text = [&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..], &vec![b'y'; 4 << 20]].concat();
        stream.write_all(&text).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 431") && reply.contains("head-too-large"), "{reply}");
    }
}
