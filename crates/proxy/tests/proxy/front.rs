//! What stands in front: whose word about clients counts, the PROXY protocol, and what clients may not take away.

use std::{io::Write, process::Command};

use crate::kit::{Client, Message, Origin, Proxy, eventually, ok};

const TRUSTED: &str = "[front]\ntrusted = [\"127.0.0.0/8\"]\n";

/// What an origin is told of its client, a field a line.
fn told(request: &Message) -> String {
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-forwarded-port"];
    let lines = |name: &str| {
        let lines: Vec<_> =
            request.fields.iter().filter(|(found, _)| found == name).map(|(_, value)| &**value).collect();
        lines.join(" / ")
    };
    names.map(lines).join("\n")
}

fn telling() -> Origin {
    Origin::start(|request, stream| ok(stream, "cache-control: no-store", told(request).as_bytes()))
}

const CLAIMS: [&str; 7] = [
    "x-forwarded-for: 192.0.2.1, 192.0.2.2",
    "x-forwarded-for: 192.0.2.3",
    "x-forwarded-proto: https",
    "x-forwarded-host: test.example",
    "forwarded: for=192.0.2.1;proto=https",
    "forwarded: for=192.0.2.3",
    "x-forwarded-port: 443",
];

#[test]
fn what_a_client_says_of_itself_is_replaced() {
    let origin = telling();
    let proxy = Proxy::before(&origin.url(), "");
    let ours = "127.0.0.1\nhttp\ntest.example\nfor=127.0.0.1;host=\"test.example\";proto=http\n";
    assert_eq!(proxy.get_with("/", &CLAIMS).text(), ours);
    assert_eq!(proxy.get("/").text(), "127.0.0.1\nhttp\ntest.example\n\n", "no element where there was none");
}

#[test]
fn what_a_front_says_is_kept_and_extended_whatever_its_client_names_in_connection() {
    let origin = telling();
    let proxy = Proxy::before(&origin.url(), TRUSTED);
    let kept = "192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1\nhttps\ntest.example\n\
        for=192.0.2.1;proto=https, for=192.0.2.3, for=127.0.0.1;host=\"test.example\";proto=http\n443";
    assert_eq!(proxy.get_with("/", &CLAIMS).text(), kept);
    let named = "connection: x-forwarded-for, x-forwarded-proto, X-Forwarded-Host, forwarded, close";
    assert_eq!(proxy.get_with("/", &[&CLAIMS[..], &[named]].concat()).text(), kept);
    let other = Proxy::before(&origin.url(), "[front]\ntrusted = [\"192.0.2.0/24\"]\n");
    assert!(other.get_with("/", &CLAIMS).text().starts_with("127.0.0.1\nhttp\n"), "it is none of these");
}

#[test]
fn the_scheme_that_a_front_names_is_a_part_of_the_key() {
    let origin = Origin::start(|request, stream| {
        let fields = "cache-control: max-age=60\nvary: x-forwarded-proto, x-forwarded-host";
        ok(stream, fields, request.field("x-forwarded-proto").as_bytes())
    });
    let proxy = Proxy::before(&origin.url(), TRUSTED);
    for _ in 0..3 {
        for scheme in ["http", "https"] {
            assert_eq!(proxy.get_with("/", &[&format!("x-forwarded-proto: {scheme}")]).text(), scheme);
        }
    }
    let by_rfc = "forwarded: for=192.0.2.1;host=\"test.example:443\";proto=HTTPS";
    assert_eq!(proxy.get_with("/", &[by_rfc]).text(), "https", "a hit");
    assert_eq!(origin.count(), 2);
    assert!(proxy.stats()["proxy"]["requests"]["hit-fast"].as_u64() >= Some(2), "as the slow path");
    let purged = proxy.purge("https://test.example/").text();
    assert!(purged.contains("\"purged\":2"), "{purged}");
    proxy.get_with("/", &["x-forwarded-proto: http"]);
    proxy.client().send("POST", "/", &["x-forwarded-proto: https"], b"");
    assert!(!proxy.get_with("/", &["x-forwarded-proto: http"]).is_hit(), "a change is one for both");
}

#[test]
fn what_the_origin_may_answer_by_and_the_key_has_not_is_not_shared() {
    let origin = Origin::constant("cache-control: max-age=60", "x");
    let proxy = Proxy::before(&origin.url(), TRUSTED);
    for field in [
        "x-forwarded-host: evil.example",
        "x-forwarded-host: test.example, evil.example",
        "x-forwarded-proto: https, http",
        "x-forwarded-proto: gopher",
        "forwarded: for=192.0.2.1;host=evil.example",
        "forwarded: for=192.0.2.1;proto=http, proto=https",
        "forwarded: host=\"test.example",
    ] {
        for _ in 0..2 {
            assert!(proxy.get_with("/", &[field]).cache().ends_with("detail=front-disputed"), "{field}");
        }
    }
    assert!(!proxy.get("/").is_hit(), "nothing of it was stored");
    assert!(proxy.get("/").is_hit());
    let field = "x-forwarded-host: evil.example";
    assert!(!proxy.get_with("/", &[field]).is_hit(), "the origin may mean another");
}

/// The binary form: of a client at 192.0.2.7, by TLS if it is to be.
fn binary(is_encrypted: bool) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".to_vec();
    let tls: &[u8] = if is_encrypted { b"\x20\0\x05\x01\0\0\0\0" } else { b"" };
    header.push(12 + tls.len() as u8);
    header.extend_from_slice(&[192, 0, 2, 7, 127, 0, 0, 1, 0x9c, 0x40, 0, 80]);
    header.extend_from_slice(tls);
    header
}

const SPOKEN: &str = "[front]\ntrusted = [\"127.0.0.0/8\"]\nproxy_protocol = true\n";

#[test]
fn a_connection_is_the_clients_that_its_proxy_header_names() {
    let origin = telling();
    let log = tempfile::NamedTempFile::new().unwrap();
    let to_log = format!("[log]\nto = \"{}\"\n", log.path().display());
    let mut proxy = Proxy::before(&origin.url(), &format!("{SPOKEN}{to_log}"));
    let ask = |header: &[u8], pieces: usize| {
        let mut client = proxy.client();
        let request = b"GET / HTTP/1.1\r\nHost: test.example\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n";
        for piece in [header, request].concat().chunks(pieces) {
            client.stream.write_all(piece).unwrap();
        }
        let first = client.read("GET").unwrap().text();
        assert_eq!(client.get("/").text(), first.replace("10.0.0.1, ", ""), "the next request is the same client's");
        first
    };
    let text = b"PROXY TCP4 192.0.2.7 127.0.0.1 40000 80\r\n";
    let six = b"PROXY TCP6 2001:db8::7 ::1 40000 80\r\n";
    for pieces in [1, 20, 4096] {
        assert!(ask(text, pieces).starts_with("192.0.2.7\nhttp\n"), "what this client says does not count");
        assert!(ask(six, pieces).starts_with("2001:db8::7\nhttp\n"));
        assert!(ask(&binary(false), pieces).starts_with("192.0.2.7\nhttp\n"));
        assert!(ask(&binary(true), pieces).starts_with("192.0.2.7\nhttps\n"));
        for own in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
            assert!(ask(own, pieces).starts_with("127.0.0.1\nhttp\n"), "the front itself");
        }
    }
    let output = Command::new("curl")
        .args(["-sS", "--haproxy-protocol", "--interface", "127.0.0.9", &format!("http://{}/", proxy.address)])
        .output()
        .expect("curl is installed");
    assert!(output.stdout.starts_with(b"127.0.0.9\n"), "{output:?}");
    proxy.stop().unwrap();
    let lines = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("192.0.2.7 ")).count(), 18, "{lines}");
}

#[test]
fn who_may_forward_is_seen_by_the_client_behind_a_front() {
    let origin = Origin::constant("cache-control: max-age=60", "far");
    let url = format!("{}/", origin.url());
    let ask = |proxy: &Proxy, header: &str| {
        let mut client = proxy.client();
        client.stream.write_all(header.as_bytes()).unwrap();
        let reply = client.send("GET", &url, &[], b"");
        (reply.status(), reply.cache().to_owned())
    };
    let proxy = Proxy::start(&format!("{SPOKEN}[forward]\nclients = [\"127.0.0.0/8\", \"192.0.2.7/32\"]\n"));
    let denied = |why: &str| (403, format!("picaflor; detail={why}"));
    assert_eq!(ask(&proxy, "PROXY TCP4 192.0.2.8 127.0.0.1 1 2\r\n"), denied("forward-client"));
    assert_eq!(ask(&proxy, "PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n"), denied("local-destination"));
    assert_eq!(ask(&proxy, "PROXY UNKNOWN\r\n"), denied("forward-client"), "it is not known for whom");
    let silent = Proxy::start(TRUSTED);
    assert_eq!(ask(&silent, ""), denied("forward-client"), "nor is it here");
}

#[test]
fn without_a_header_a_front_is_not_heard_and_others_need_none() {
    let origin = telling();
    let proxy = Proxy::before(&origin.url(), SPOKEN);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n"[..],
        b"PROXY TCP4 192.0.2.7 127.0.0.1 40000\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 40000 80\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x04aaaa",
    ] {
        let mut client = proxy.client();
        client.stream.write_all(bytes).unwrap();
        assert!(client.read("GET").is_none(), "{}", bytes.escape_ascii());
    }
    assert_eq!((origin.count(), &proxy.stats()["proxy"]["denied"]["proxy-header"]), (0, &4.into()));
    eventually("they have left", || proxy.stats()["proxy"]["connections_closed"] == 4);
    let other = Proxy::before(&origin.url(), &SPOKEN.replace("127.0.0.0/8", "192.0.2.0/24"));
    assert_eq!(other.get("/").status(), 200);
    let mut liar = Client::new(other.address);
    liar.stream.write_all(b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(liar.read("GET").unwrap().cache(), "picaflor; detail=malformed");
}
