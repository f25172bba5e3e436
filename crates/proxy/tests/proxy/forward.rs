//! Who may go where: forwarding, tunnels, the admin listener, and what must be refused.

use std::io::{Read, Write};

use crate::kit::{Client, Door, Message, Origin, Proxy, eventually, ok};

fn refused(reply: &Message, status: u16, reason: &str) {
    assert_eq!((reply.status(), reply.cache()), (status, format!("picaflor; detail={reason}").as_str()), "{reply:?}");
    assert!(reply.text().contains(reason), "{}", reply.text());
}

#[test]
fn an_absolute_url_is_forwarded_and_stored_apart_from_reverse() {
    let origin =
        Origin::start(|request, stream| ok(stream, "cache-control: max-age=60", request.field("host").as_bytes()));
    let proxy = Proxy::before(&origin.url(), "[forward]\nenabled = true\n");
    let url = format!("{}/x", origin.url());
    let mut client = proxy.client();
    for round in 0..2 {
        let reply = client.send("GET", &url, &[], b"");
        assert_eq!((reply.text(), reply.is_hit()), (origin.address.to_string(), round == 1), "Host is the URL's");
        proxy.settle();
    }
    let reply = client.send("GET", "/x", &[&format!("x-ignored: {url}")], b"");
    assert!(!reply.is_hit() && reply.text() == "test.example", "{reply:?}");
}

#[test]
fn hosts_have_their_origins() {
    let one = Origin::constant("cache-control: max-age=60", "one");
    let two = Origin::constant("cache-control: max-age=60", "two");
    let config = format!(
        "[[origin]]\nhost = \"test.example\"\nurl = \"{}\"\n[[origin]]\nhost = \"Two.Example\"\nurl = \"{}\"\n",
        one.url(),
        two.url()
    );
    let proxy = Proxy::start(&config);
    for _ in 0..2 {
        assert_eq!(proxy.get("/").text(), "one");
        let mut client = proxy.client();
        assert_eq!(client.send("GET", "http://two.example/", &[], b"").text(), "two", "its own host in absolute form");
    }
    assert_eq!((one.count(), two.count()), (1, 1));
    let mut stranger = proxy.client();
    stranger.stream.write_all(b"GET / HTTP/1.1\r\nHost: three.example\r\n\r\n").unwrap();
    refused(&stranger.read("GET").unwrap(), 421, "no-origin");
    let mut untold = proxy.client();
    untold.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    refused(&untold.read("GET").unwrap(), 505, "plain-http2");
}

#[test]
fn a_client_outside_the_list_goes_nowhere_else() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let url = format!("{}/", origin.url());
    let authority = origin.address.to_string();
    let named = format!("[[origin]]\nhost = \"test.example\"\nurl = \"{}\"\n", origin.url());
    for (forward, reason) in [("clients = [\"10.0.0.0/8\"]\n", "forward-client"), ("enabled = false\n", "forward-off")]
    {
        let proxy = Proxy::start(&format!("[forward]\n{forward}{named}"));
        refused(&proxy.client().send("GET", &url, &[], b""), 403, reason);
        refused(&proxy.client().send("CONNECT", &authority, &[], b""), 403, reason);
        assert_eq!(proxy.get("/").status(), 200, "the reverse side is open");
    }
    assert_eq!(origin.count(), 2);
    let every = Proxy::before(&origin.url(), "[forward]\nclients = [\"10.0.0.0/8\"]\n");
    refused(&every.client().send("GET", &url, &[], b""), 403, "forward-client");
}

#[test]
fn in_front_of_an_origin_nothing_is_forwarded_unless_asked_for() {
    let origin = Origin::constant("cache-control: max-age=60", "the origin's");
    let other = Origin::constant("cache-control: max-age=60", "another's");
    // What a TLS terminator on this machine passes on comes from loopback, wherever it was sent.
    let proxy = Proxy::before(&origin.url(), "");
    let url = format!("{}/", other.url());
    for is_hit in [false, true] {
        let reply = proxy.client().send("GET", &url, &[], b"");
        assert_eq!((reply.text().as_str(), reply.is_hit()), ("the origin's", is_hit), "as RFC 9112 3.2.2 has it");
        proxy.settle();
    }
    refused(&proxy.client().send("CONNECT", &other.address.to_string(), &[], b""), 403, "forward-off");
    assert_eq!(other.count(), 0);
    let named = format!("[[origin]]\nhost = \"test.example\"\nurl = \"{}\"\n", origin.url());
    refused(&Proxy::start(&named).client().send("GET", &url, &[], b""), 403, "forward-off");
    for asked in ["enabled = true", "clients = [\"127.0.0.0/8\"]"] {
        let proxy = Proxy::before(&origin.url(), &format!("[forward]\n{asked}\n"));
        assert_eq!(proxy.client().send("GET", &url, &[], b"").text(), "another's", "{asked}");
    }
}

#[test]
fn a_tunnel_carries_bytes_both_ways_to_allowed_ports_only() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let echo = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut copy = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut stream, &mut copy);
            });
        }
    });
    let proxy = Proxy::start(&format!("[forward]\nconnect_ports = [{}]\n", echo.port()));
    let mut client = proxy.client();
    client.write("CONNECT", &echo.to_string(), &[], b"");
    let head = client.read_head().unwrap();
    assert_eq!(head.status(), 200, "{head:?}");
    // Bytes that would be a request if anyone but the other end read them.
    let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(5000);
    let mut sending = client.stream.try_clone().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || sending.write_all(&sent));
    assert!(client.read_bytes(text.len()).unwrap() == text);
    writer.join().unwrap().unwrap();
    let closed = Proxy::start("");
    refused(&closed.client().send("CONNECT", &echo.to_string(), &[], b""), 403, "connect-port");
    refused(&closed.client().send("CONNECT", "127.0.0.1", &[], b""), 400, "bad-target");
}

#[test]
fn the_proxy_does_not_talk_to_itself() {
    let proxy = Proxy::start("");
    for own in [proxy.address, proxy.admin] {
        for host in ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "127.0.0.7"] {
            let reply = proxy.client().send("GET", &format!("http://{host}:{}/stats", own.port()), &[], b"");
            assert!(matches!(reply.status(), 403 | 502), "{host}: {reply:?}");
            assert!(reply.status() == 403 || host.starts_with('['), "{host}: {reply:?}");
        }
    }
    let ports = format!("[forward]\nconnect_ports = [{}]\n", 3129);
    let mut low = Proxy::start(&ports);
    let reply = low.client().send("CONNECT", &format!("127.0.0.1:{}", low.admin.port()), &[], b"");
    refused(&reply, 403, "connect-port");
    low.stop().unwrap();
}

#[test]
fn what_came_through_us_is_a_loop() {
    let origin =
        Origin::start(|request, stream| ok(stream, "cache-control: no-store", request.field("via").as_bytes()));
    let proxy = Proxy::before(&origin.url(), "");
    let via = proxy.get("/").text();
    refused(&proxy.get_with("/", &[&format!("via: 1.1 other, {via}")]), 508, "loop");
    assert_eq!(proxy.get_with("/", &["via: 1.1 picaflor-ffffffff0"]).status(), 200, "another picaflor is none");
}

#[test]
fn malformed_requests_are_refused() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    let rows: &[(&str, u16)] = &[
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
        ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("GET /<x> HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/9.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nContent-Length: 1\r\n\r\nx", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("\x16\x03\x01 tls\r\n\r\n", 400),
    ];
    for (text, status) in rows {
        let mut client = proxy.client();
        client.stream.write_all(text.as_bytes()).unwrap();
        let reply = client.read_head().unwrap_or_default();
        assert_eq!(reply.status(), *status, "{text:?}: {reply:?}");
        assert!(reply.cache().starts_with("picaflor; detail="), "a reason: {text:?}: {reply:?}");
    }
    let mut many = proxy.client();
    let fields: Vec<_> = (0..101).map(|n| format!("x-{n}: x")).collect();
    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
    refused(&many.send("GET", "/", &fields, b""), 431, "head-too-large");
    assert_eq!(origin.count(), 0);
    let denied = proxy.stats()["proxy"]["requests"]["denied"].as_u64();
    assert_eq!(denied, Some(rows.len() as u64 + 1), "each is counted");
}

#[test]
fn the_admin_listener_wants_its_token() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), "");
    proxy.get("/a");
    let without =
        |method: &str, target: &str, fields: &[&str]| Client::new(proxy.admin).send(method, target, fields, b"");
    assert_eq!(without("GET", "/health", &[]).text(), "ok\n");
    assert_eq!(without("HEAD", "/health", &[]).status(), 200);
    let shouting = format!("authorization: BEARER {}", proxy.token);
    assert_eq!(without("GET", "/stats", &[&shouting]).status(), 200);
    for (method, target) in
        [("GET", "/stats"), ("GET", "/metrics"), ("POST", "/purge?url=http://test.example/a"), ("GET", "/")]
    {
        assert_eq!(without(method, target, &[]).status(), 401, "{target}");
        assert_eq!(without(method, target, &["authorization: Bearer 0123456789abcdef"]).status(), 401, "{target}");
    }
    assert!(proxy.get("/a").is_hit());
    assert_eq!(proxy.purge("http://test.example/a").text().trim(), r#"{"purged":1,"url":"http://test.example/a"}"#);
    assert!(!proxy.get("/a").is_hit());
    assert!(proxy.admin("PURGE", "http://test.example/a").text().contains("\"purged\":1"));
    assert_eq!(proxy.admin("POST", "/purge").status(), 400);
    assert_eq!(proxy.admin("GET", "/nothing").status(), 404);
    let metrics = proxy.admin("GET", "/metrics").text();
    for line in [
        "picaflor_requests_total{outcome=\"miss\"} 2",
        "# TYPE picaflor_store_capacity_bytes gauge",
        "# HELP picaflor_store_puts_total Objects put.",
        "reason=\"checksum\"} 0",
        "process_resident_memory_bytes ",
        "picaflor_build_info{version=",
        "# TYPE picaflor_stored_total counter",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let dashboard =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana.json")).unwrap();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names: std::collections::BTreeSet<&str> = dashboard
        .split(|c: char| !is_of_name(c))
        .filter(|name| ["picaflor_", "process_"].iter().any(|begin| name.starts_with(begin)))
        .collect();
    let unknown: Vec<&&str> = names.iter().filter(|name| !metrics.contains(&format!("\n{name}"))).collect();
    assert!(names.len() > 20 && unknown.is_empty(), "{} names, not there: {unknown:?}", names.len());
}

#[test]
fn an_upload_that_breaks_off_is_the_clients_fault() {
    let door = Door::default();
    let closed = door.clone();
    let origin = Origin::start(move |_, _| {
        closed.pass();
        false
    });
    let proxy = Proxy::before(&origin.url(), "");
    let mut client = proxy.client();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n";
    client.stream.write_all(head).unwrap();
    refused(&client.read("POST").unwrap(), 400, "broken-body");
    door.open();
    let stats = proxy.stats();
    assert_eq!(
        (&stats["proxy"]["origin_failures"]["closed"], &stats["proxy"]["origin_failures"]["protocol"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn a_host_that_is_none_is_refused_on_a_hit_too() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::start("");
    let url = format!("{}/a", origin.url());
    eventually("it is a hit", || proxy.client().send("GET", &url, &[], b"").is_hit());
    let mut client = proxy.client();
    client.stream.write_all(format!("GET {url} HTTP/1.1\r\nHost: a b\r\n\r\n").as_bytes()).unwrap();
    refused(&client.read("GET").unwrap(), 400, "bad-host");
}

#[test]
fn an_origins_length_does_not_cut_its_chunks() {
    let origin = Origin::start(|request, stream| {
        let coding = if request.path() == "/gzip" { "gzip, chunked" } else { "chunked" };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: {coding}\r\n");
        stream
            .write_all(
                format!("{head}cache-control: no-store\r\n\r\n14\r\nBBBBBBBBBBBBBBBBBBBB\r\n0\r\n\r\n").as_bytes(),
            )
            .is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(proxy.get("/").text(), "B".repeat(20), "RFC 9112 6.3");
    refused(&proxy.get("/gzip"), 502, "protocol");
}

#[test]
fn trailers_are_passed_on_to_who_takes_them() {
    let origin = Origin::start(|request, stream| {
        assert_eq!(request.field("te"), if request.path() == "/takes" { "trailers" } else { "" });
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, connection\r\n";
        let chunks = "2\r\nab\r\n0\r\nx-sum: 7\r\nx-other: 8\r\nconnection: close\r\n\r\n";
        stream.write_all(format!("{head}cache-control: max-age=60\r\n\r\n{chunks}").as_bytes()).is_ok()
    });
    let proxy = Proxy::before(&origin.url(), "");
    let ask = |method: &str, path: &str, te: &str| {
        let mut client = proxy.client();
        client.write(method, path, &["connection: te, close", te], b"");
        let mut all = String::new();
        client.stream.read_to_string(&mut all).unwrap();
        all.split_once("\r\n\r\n").map(|(head, body)| (head.to_owned(), body.to_owned())).unwrap()
    };
    let (head, body) = ask("POST", "/takes", "te: gzip, trailers");
    assert!(head.contains("trailer: x-sum"), "{head}");
    assert_eq!(body, "2\r\nab\r\n0\r\nx-sum: 7\r\n\r\n", "those that were announced and may be: {head}");
    let (head, body) = ask("POST", "/leaves", "te: gzip");
    assert!(!head.contains("trailer"), "{head}");
    assert_eq!(body, "2\r\nab\r\n0\r\n\r\n");
    for _ in 0..2 {
        let (_, body) = ask("GET", "/stored", "te: trailers");
        assert!(!body.contains("x-sum") && body.contains("ab"), "a stored body has none: {body}");
        proxy.settle();
    }
}

#[test]
fn tunnels_count_as_connections_and_are_in_the_log() {
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in echo.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 5];
                let _ = stream.read_exact(&mut bytes);
                let _ = stream.write_all(&bytes);
            });
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut proxy = Proxy::start(&format!(
        "workers = 1\n[limits]\nconnections = 2\n[forward]\nconnect_ports = [{port}]\n[log]\nto = \"{}\"\n",
        log.display()
    ));
    let target = format!("127.0.0.1:{port}");
    let mut tunnels: Vec<_> = (0..2).map(|_| proxy.client()).collect();
    for client in &mut tunnels {
        client.write("CONNECT", &target, &[], b"");
        assert_eq!(client.read_head().unwrap().status(), 200);
    }
    assert_eq!(proxy.stats()["proxy"]["connections_closed"], 0);
    let mut third = proxy.client();
    third.stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    third.write("GET", "/", &[], b"");
    assert!(third.read_head().is_none(), "no room beside two tunnels");
    for client in &mut tunnels {
        client.stream.write_all(b"hello").unwrap();
        assert_eq!(client.read_bytes(5).unwrap(), b"hello");
    }
    drop(tunnels);
    eventually("there is room again", || {
        let mut next = proxy.client();
        next.write("GET", "/", &[], b"");
        next.read_head().is_some()
    });
    proxy.stop().unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    assert_eq!(text.matches("HTTP/1.1\" 200 5 ").count(), 2, "with their bytes, at their end: {text}");
}

#[test]
fn options_for_the_server_itself_are_answered_here() {
    let origin = Origin::start(|request, stream| ok(stream, "", request.field("max-forwards").as_bytes()));
    let proxy = Proxy::before(&origin.url(), "");
    for (target, forwards) in [("*", "5"), ("/a", "0")] {
        let reply = proxy.client().send("OPTIONS", target, &[&format!("max-forwards: {forwards}")], b"");
        assert!(reply.status() == 200 && reply.field("allow").contains("GET"), "{reply:?}");
    }
    assert_eq!(proxy.client().send("OPTIONS", "/a", &["max-forwards: 5"], b"").text(), "4");
    assert_eq!(proxy.client().send("POST", "/a", &["max-forwards: 5"], b"").text(), "5", "of OPTIONS and TRACE only");
    assert_eq!(origin.count(), 2);
}

#[test]
fn options_and_unknown_methods_pass() {
    let origin = Origin::start(|request, stream| ok(stream, "", request.first.as_bytes()));
    let proxy = Proxy::before(&origin.url(), "");
    assert_eq!(proxy.client().send("OPTIONS", "/a", &[], b"").text(), "OPTIONS /a HTTP/1.1");
    assert_eq!(proxy.client().send("BREW", "/pot", &[], b"").text(), "BREW /pot HTTP/1.1");
}

#[test]
fn a_tunnel_that_refuses_says_so_before_it_is_one() {
    let proxy = Proxy::start("[forward]\nconnect_ports = [1]\n");
    let mut client = proxy.client();
    let reply = client.send("CONNECT", "127.0.0.1:1", &[], b"");
    assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=connect"));
    let mut rest = Vec::new();
    client.stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}
