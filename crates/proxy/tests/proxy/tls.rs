//! TLS to clients: what is offered, what is refused and by which name, and that HTTP is the same on it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    sync::Arc,
};

use picaflor_proxy::Low;
use rustls::HandshakeKind;

use crate::{
    certs::{Ca, TlsClient, write},
    kit::{Door, Message, Origin, Proxy, eventually, ok},
};

/// With one certificate, for `test.example`.
fn config(ca: &Ca, more: &str) -> String {
    format!("{more}[tls]\nlisten = [\"127.0.0.1:0\"]\n{}", ca.issue(&["test.example"]).table())
}

fn proxy(ca: &Ca, origin: &Origin, more: &str) -> Proxy {
    Proxy::before(&origin.url(), &config(ca, more))
}

/// An origin that tells what it was told.
fn telling() -> Origin {
    Origin::start(|request, stream| {
        let names = ["x-forwarded-for", "x-forwarded-proto", "forwarded"];
        let told = names.map(|name| request.field(name)).join(" ");
        ok(stream, "cache-control: max-age=60", told.as_bytes())
    })
}

fn failures(proxy: &Proxy, why: &str) -> u64 {
    proxy.stats()["proxy"]["tls_failures"][why].as_u64().unwrap()
}

#[test]
fn curl_gets_a_miss_then_hits_of_the_fast_path_and_the_origin_is_told_https() {
    let (ca, origin) = (Ca::new(), telling());
    let log = ca.folder.path().join("log");
    let proxy = proxy(&ca, &origin, &format!("[log]\nto = {log:?}\nformat = \"squid\"\n"));
    let port = proxy.by_tls.unwrap().port();
    let url = format!("https://test.example:{port}/");
    let curl = |more: &[&str]| {
        let output = Command::new("curl")
            .args(["-sSi", "--http1.1", "--max-time", "60", "--resolve", &format!("test.example:{port}:127.0.0.1")])
            .args(more)
            .args(Some(&url).filter(|_| !more.contains(&"--url")))
            .output()
            .expect("curl is installed");
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (file, none) = (ca.file().display().to_string(), Ca::new());
    let (miss, error) = curl(&["--cacert", &file]);
    assert!(miss.contains("fwd=uri-miss") && miss.ends_with("127.0.0.1 https "), "{miss}{error}");
    proxy.settle();
    let fast = || proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64().unwrap();
    eventually("the fast path has it", || curl(&["--cacert", &file]).0.contains("picaflor; hit") && fast() > 0);
    let before = fast();
    for version in ["--tls-max", "--tlsv1.3"] {
        let more: &[&str] = if version == "--tls-max" { &["--tls-max", "1.2"] } else { &[version] };
        let (hit, error) = curl(&[&["--cacert", &file], more].concat());
        assert!(hit.contains("picaflor; hit"), "{hit}{error}");
    }
    assert_eq!(fast(), before + 2);
    let plain = proxy.get("/");
    assert!(plain.cache().contains("fwd=uri-miss") && plain.text() == "127.0.0.1 http ", "another key: {plain:?}");
    let told = "for=192.0.2.1";
    let other = format!("{url}told");
    let (element, _) = curl(&["--cacert", &file, "-H", &format!("Forwarded: {told}"), "--url", &other]);
    assert!(element.ends_with(&format!("for=127.0.0.1;host=\"test.example:{port}\";proto=https")), "{element}");
    let (refused, error) = curl(&["--cacert", &none.file().display().to_string()]);
    assert!(refused.is_empty() && error.contains("certificate"), "{refused}{error}");
    eventually("curl said why it left", || failures(&proxy, "client-refused") == 1);
    eventually("the log names the scheme", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.matches(&format!(" {url} ")).count() >= 4 && log.contains(" http://test.example/ ")
    });
}

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let (ca, origin) = (Ca::new(), telling());
    let issued =
        [&["test.example"][..], &["a.example", "b.example"], &["*.c.example"], &["x.c.example"]].map(|n| ca.issue(n));
    let tables: String = issued.iter().map(|issued| issued.table()).collect();
    let proxy = Proxy::before(&origin.url(), &format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n{tables}"));
    let shown = |name: &str| {
        let client = TlsClient::new(proxy.by_tls.unwrap(), &ca.trusting(&[12, 13]), name, b"");
        client.map(|client| client.tls().peer_certificates().unwrap()[0].clone())
    };
    for (name, n) in [("test.example", 0), ("A.example", 1), ("b.example", 1), ("y.c.example", 2), ("x.c.example", 3)] {
        assert_eq!(shown(name).unwrap(), *issued[n].certificate.der(), "{name}");
    }
    for name in ["c.example", "z.y.c.example", "other.example", "127.0.0.1"] {
        let error = shown(name).unwrap_err().to_string();
        assert!(error.contains("not valid for name"), "it is the first's: {error}");
    }
    eventually("they said why they left", || failures(&proxy, "client-refused") == 4);
}

#[test]
fn files_that_do_not_do_are_named_with_the_mend() {
    let ca = Ca::new();
    let (one, other) = (ca.issue(&["a.example"]), ca.issue(&["b.example"]));
    let at = |name: &str| ca.folder.path().join(name);
    let both = std::fs::read_to_string(&one.file).unwrap() + &std::fs::read_to_string(&one.key).unwrap();
    write(&at("both"), &both);
    write(&at("wrong-order"), &(std::fs::read_to_string(ca.file()).unwrap() + &both));
    write(&at("text"), "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n");
    write(&at("encrypted"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    std::fs::write(at("der"), one.certificate.der()).unwrap();
    let resolved = |file: &std::path::Path, key: Option<&std::path::Path>| {
        let key = key.map(|key| format!("key = {key:?}\n")).unwrap_or_default();
        let text = format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n[[tls.certificate]]\nfile = {file:?}\n{key}");
        let mut low = Low::parse("p.toml", &text).unwrap();
        low.store.path = Some(at("store"));
        low.resolve().map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(resolved(&at("both"), None), Ok(()), "one file for both");
    for (file, key, place, named, why) in [
        (at("none"), None, "file", at("none"), "name a file that there is"),
        (one.file.clone(), Some(at("none")), "key", at("none"), "name a file that there is"),
        (one.file.clone(), None, "key", one.file.clone(), "has no private key"),
        (one.file.clone(), Some(other.key.clone()), "key", other.key, "not the key of the certificate"),
        (at("wrong-order"), None, "file", at("wrong-order"), "has to be the first"),
        (at("text"), Some(one.key.clone()), "file", at("text"), "not in PEM form"),
        (at("der"), Some(one.key.clone()), "file", at("der"), "openssl x509 -inform der"),
        (one.key.clone(), Some(one.key.clone()), "file", one.key.clone(), "has no certificate"),
        (one.file.clone(), Some(at("encrypted")), "key", at("encrypted"), "passphrase"),
        ("/dev/zero".into(), None, "file", "/dev/zero".into(), "not a file in PEM form"),
    ] {
        let e = resolved(&file, key.as_deref()).unwrap_err();
        assert!(e.starts_with(&format!("tls.certificate.{place}: {}: ", named.display())) && e.contains(why), "{e}");
    }
    let refused = |text: &str| Low::parse("p.toml", text).unwrap().resolve().unwrap_err().to_string();
    assert!(refused("[tls]\nlisten = [\"127.0.0.1:0\"]\n").starts_with("tls.listen: a [[tls.certificate]] is needed"));
    assert!(refused(&one.table()).starts_with("tls.certificate: no address"));
    let twice = format!("listen = [\"127.0.0.1:1\"]\n[tls]\nlisten = [\"127.0.0.1:1\"]\n{}", one.table());
    assert!(refused(&twice).contains("also in listen"));
}

#[test]
fn what_is_no_handshake_is_refused_by_name() {
    let (ca, origin) = (Ca::new(), telling());
    let table = ca.issue(&["test.example"]).table();
    let config = format!(
        "[limits]\nhandshake_timeout = \"1s\"\n[tls]\nlisten = [\"127.0.0.1:0\"]\nmin_version = \"1.3\"\n{table}"
    );
    let proxy = Proxy::before(&origin.url(), &config);
    let address = proxy.by_tls.unwrap();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("not-tls"), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert!(answer.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    assert!(TlsClient::new(address, &ca.trusting(&[12]), "test.example", b"").is_err());
    drop(TcpStream::connect(address).unwrap());
    let mut silent = TcpStream::connect(address).unwrap();
    silent.write_all(&[22, 3, 1]).unwrap();
    assert_eq!(silent.read(&mut [0; 9]).unwrap_or(0), 0, "it is closed");
    let mut other = (*ca.trusting(&[13])).clone();
    other.alpn_protocols = vec![b"gopher".to_vec()];
    assert!(TlsClient::new(address, &Arc::new(other), "test.example", b"").is_err());
    for why in ["not-tls", "nothing-in-common", "closed", "timeout", "no-protocol"] {
        eventually(why, || failures(&proxy, why) == 1);
    }
    assert_eq!(ca.client(address).get("/").status(), 200);
    eventually("all have left", || proxy.stats()["proxy"]["connections_closed"] == 6);
    let stats = &proxy.stats()["proxy"];
    assert_eq!((&stats["connections"], &stats["tls_handshakes"]), (&6.into(), &1.into()), "{stats:#}");
}

#[test]
fn a_client_shows_a_certificate_where_one_is_wanted() {
    let (ca, clients, others, origin) = (Ca::new(), Ca::new(), Ca::new(), telling());
    let trusted = ca.folder.path().join("clients.pem");
    std::fs::copy(clients.file(), &trusted).unwrap();
    let table = ca.issue(&["test.example"]).table();
    let config = format!("[tls]\nlisten = [\"127.0.0.1:0\"]\nclient_ca = {trusted:?}\n{table}");
    let proxy = Proxy::before(&origin.url(), &config);
    let [known, unknown] = [&clients, &others].map(|authority| ca.showing(&authority.issue(&["client.example"])));
    let ask = |config: &Arc<rustls::ClientConfig>| {
        let client = TlsClient::new(proxy.by_tls.unwrap(), config, "test.example", b"");
        // By TLS 1.3 a client that is refused learns it when it reads.
        let reply = client.ok().and_then(|mut client| {
            client.ask("GET", "/", "", b"");
            client.read()
        });
        reply.map(|reply| reply.status())
    };
    assert_eq!((ask(&known), ask(&known)), (Some(200), Some(200)));
    assert_eq!((ask(&unknown), ask(&ca.trusting(&[12, 13])), ask(&ca.trusting(&[12]))), (None, None, None));
    eventually("all are counted", || failures(&proxy, "client-certificate") == 3);
    std::fs::copy(others.file(), &trusted).unwrap();
    assert_eq!(proxy.admin("POST", "/reload").status(), 200);
    assert_eq!((ask(&known), ask(&unknown)), (None, Some(200)), "nor by a ticket");
    write(&trusted, "");
    let reply = proxy.admin("POST", "/reload");
    assert!(reply.status() == 409 && reply.text().contains("tls.client_ca: "), "{}", reply.text());
}

#[test]
fn a_session_is_resumed_by_either_version() {
    let (ca, origin) = (Ca::new(), telling());
    let proxy = proxy(&ca, &origin, "");
    for versions in [&[12][..], &[13]] {
        let config = ca.trusting(versions);
        let kinds = [0, 1].map(|_| {
            let mut client = TlsClient::new(proxy.by_tls.unwrap(), &config, "test.example", b"").unwrap();
            // Tickets come with the first answer.
            client.get("/");
            client.tls().handshake_kind()
        });
        assert_eq!(kinds[1], Some(HandshakeKind::Resumed), "{versions:?} {kinds:?}");
    }
    assert_eq!(proxy.stats()["proxy"]["tls_resumed"], 2);
}

#[test]
fn a_front_names_its_client_before_tls() {
    let (ca, origin) = (Ca::new(), telling());
    let proxy = proxy(&ca, &origin, "[front]\ntrusted = [\"127.0.0.0/8\"]\nproxy_protocol = true\n");
    let header = b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n";
    let config = ca.trusting(&[12, 13]);
    let mut client = TlsClient::new(proxy.by_tls.unwrap(), &config, "test.example", header).unwrap();
    assert_eq!(client.get("/").text(), "192.0.2.7 https ");
    assert!(TlsClient::new(proxy.by_tls.unwrap(), &config, "test.example", b"").is_err());
    eventually("it is counted", || proxy.stats()["proxy"]["denied"]["proxy-header"] == 1);
}

#[test]
fn early_hints_and_bodies_of_all_sizes_pass_both_ways() {
    let (door, ca) = (Door::default(), Ca::new());
    let closed = door.clone();
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/early" {
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n").unwrap();
            closed.pass();
        }
        let len = request.path().rsplit('/').next().and_then(|len| len.parse().ok()).unwrap_or(0);
        let body = if request.method() == "POST" { request.body.clone() } else { noise(len) };
        ok(stream, "cache-control: max-age=60", &body)
    });
    let proxy = proxy(&ca, &origin, "");
    let mut client = ca.client(proxy.by_tls.unwrap());
    client.ask("GET", "/early", "", b"");
    let early = client.read_head().unwrap();
    assert_eq!((early.status(), early.field("link")), (103, "</a.css>"));
    door.open();
    assert_eq!(client.read().unwrap().status(), 200);
    for len in [1, 16_384, 65_536, 300_000, 20 << 20] {
        for round in 0..3 {
            let reply = client.get(&format!("/{len}"));
            assert!(reply.body == noise(len) && reply.is_hit() == (round > 0), "{len} {}", reply.cache());
            proxy.settle();
        }
        client.ask("POST", "/", "", &noise(len));
        assert!(client.read().unwrap().body == noise(len), "{len}");
    }
    // Sent ahead, and all but read: more than the sockets hold, most of it by the fast path.
    let ahead: Vec<u8> = b"GET /300000 HTTP/1.1\r\nHost: test.example\r\n\r\n".repeat(200);
    client.write(&ahead);
    crate::kit::sleep(300);
    for n in 0..200 {
        assert!(client.read().is_some_and(|reply: Message| reply.body == noise(300_000)), "{n}");
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_stop_lets_an_answer_end() {
    let (door, ca) = (Door::default(), Ca::new());
    let closed = door.clone();
    let origin = Origin::start(move |_, stream| {
        closed.pass();
        ok(stream, "cache-control: max-age=60", b"whole")
    });
    let mut proxy = proxy(&ca, &origin, "");
    let (mut busy, idle) = (ca.client(proxy.by_tls.unwrap()), ca.client(proxy.by_tls.unwrap()));
    busy.ask("GET", "/", "", b"");
    eventually("it is asked", || origin.count() == 1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| proxy.stop());
        crate::kit::sleep(300);
        door.open();
        assert_eq!(busy.read().unwrap().text(), "whole");
        assert_eq!(stopping.join().unwrap(), Ok(()));
    });
    let mut idle = idle;
    assert_eq!(idle.0.read(&mut [0; 9]).unwrap(), 0, "closed as TLS closes");
}

#[test]
fn the_forward_side_is_served_by_tls_too() {
    let (ca, origin) = (Ca::new(), telling());
    let proxy = Proxy::start(&config(&ca, "[forward]\nenabled = true\nconnect_ports = [1, 65535]\n"));
    let mut client = ca.client(proxy.by_tls.unwrap());
    client.ask("GET", &format!("{}/", origin.url()), "", b"");
    assert_eq!(client.read().unwrap().status(), 200);
    client.ask("GET", "https://elsewhere.example/", "", b"");
    assert!(client.read().unwrap().cache().contains("detail=scheme"));
    let port = origin.address.port();
    let open = Proxy::start(&config(&ca, &format!("[forward]\nenabled = true\nconnect_ports = [{port}]\n")));
    let mut client = ca.client(open.by_tls.unwrap());
    client.write(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes());
    assert_eq!(client.read_head().unwrap().status(), 200);
    assert!(client.get("/in-it").field("cache-status").is_empty(), "the origin's own answer");
    let own = Arc::new(proxy_for_own(&ca, &origin));
    let mut client = ca.client(own.by_tls.unwrap());
    client.ask("GET", "https://test.example/", "", b"");
    assert_eq!(client.read().unwrap().status(), 200, "the whole URL of a host of ours");
}

fn proxy_for_own(ca: &Ca, origin: &Origin) -> Proxy {
    Proxy::start(&format!("{}[[origin]]\nhost = \"test.example\"\nurl = \"{}\"\n", config(ca, ""), origin.url()))
}
