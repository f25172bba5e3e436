//! HTTP/2 to origins: a real nginx that speaks it, and a small server for what nginx does not do: to refuse a stream,
//! to reset one, to say nothing.

use std::{
    collections::HashSet,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    certs::{Ca, Issued},
    kit::{Client, Message, Proxy},
    nginx::{Nginx, noise},
};

/// By HTTP/2 if `listen` says so; each answer says by what it came.
fn nginx(ca: &Ca, listen: &str, more: &str) -> Nginx {
    let Issued { file, key, .. } = ca.issue(&["127.0.0.1"]);
    let tells = "add_header X-Connection $connection always; add_header X-Protocol $server_protocol always;";
    let nginx = Nginx::start_by(
        &format!("reuseport ssl {listen}"),
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; {more}
             location / {{ add_header Cache-Control max-age=60; add_header X-Host $host; {tells} }}
             location /post {{ {tells} return 200 posted; }}",
            file.display(),
            key.display()
        ),
    );
    for n in 0..30 {
        nginx.file(&format!("f{n}"), &noise(300_000 + n, n as u64));
    }
    nginx
}

fn proxy(address: SocketAddr, ca: &Ca, http2: bool, more: &str) -> Proxy {
    let url = format!("[[origin]]\nurl = \"https://{address}\"\nca = {:?}\nhttp2 = {http2}\n", ca.file());
    Proxy::start(&format!("workers = 1\n{more}{url}"))
}

/// All at one time.
fn together(proxy: &Proxy, paths: impl Iterator<Item = String>) -> Vec<Message> {
    let asked = |path: String| {
        let mut client = proxy.client();
        client.write("GET", &path, &[], b"");
        client
    };
    let clients: Vec<Client> = paths.map(asked).collect();
    clients.into_iter().map(|mut client| client.read("GET").unwrap()).collect()
}

fn connections(replies: &[Message]) -> usize {
    replies.iter().map(|reply| reply.field("x-connection").to_owned()).collect::<HashSet<_>>().len()
}

#[test]
fn many_requests_share_one_connection() {
    let ca = Ca::new();
    let nginx = nginx(&ca, "http2", "");
    let proxy = proxy(nginx.address, &ca, true, "");
    let mut all = together(&proxy, (0..20).map(|n| format!("/f{n}")));
    all.extend((20..30).map(|n| proxy.get(&format!("/f{n}"))));
    for (n, reply) in all.iter().enumerate() {
        assert!(reply.body == noise(300_000 + n, n as u64), "{n}: {}", reply.cache());
        assert_eq!((reply.field("x-protocol"), reply.field("x-host")), ("HTTP/2.0", "test.example"));
        assert!(reply.field("content-length") == (300_000 + n).to_string() && reply.cache().ends_with("; stored"));
    }
    assert_eq!(connections(&all), 1);
    assert!(proxy.get("/f7").is_hit() && proxy.get("/f7").body == noise(300_007, 7));
    let missing = proxy.get("/none");
    let head = proxy.client().send("HEAD", "/f0?x", &[], b"");
    let posted = proxy.client().send("POST", "/post", &[], &noise(100_000, 1));
    assert_eq!((missing.status(), head.status(), posted.text().as_str()), (404, 200, "posted"));
    assert_eq!(head.field("content-length"), "300000");
    all.extend([missing, head, posted]);
    assert_eq!(connections(&all), 1);
}

#[test]
fn what_is_stale_is_confirmed_and_a_range_passed_on_by_it() {
    let ca = Ca::new();
    let nginx = nginx(&ca, "http2", "etag on; if_modified_since before; location = /n { return 204; }");
    let proxy = proxy(nginx.address, &ca, true, "[[rule]]\npath = \"/f1\"\nttl = \"0s\"\n");
    proxy.get("/f1");
    let again = proxy.get("/f1");
    assert!(again.cache().contains("fwd=stale; fwd-status=304"), "{}", again.cache());
    assert_eq!(again.body, noise(300_001, 1));
    assert_eq!(proxy.get("/n").status(), 204);
}

#[test]
fn http1_is_spoken_where_http2_is_not_allowed_or_not_there() {
    let ca = Ca::new();
    for (listen, http2) in [("http2", false), ("", true)] {
        let nginx = nginx(&ca, listen, "");
        let proxy = proxy(nginx.address, &ca, http2, "");
        let mut all = together(&proxy, (0..10).map(|n| format!("/f{n}")));
        all.extend((10..20).map(|n| proxy.get(&format!("/f{n}"))));
        for (n, reply) in all.iter().enumerate() {
            assert!(reply.body == noise(300_000 + n, n as u64) && reply.field("x-protocol") == "HTTP/1.1", "{n}");
        }
        assert_eq!(connections(&all[10..]), 1, "it is kept");
    }
}

#[test]
fn a_connection_that_the_origin_ends_costs_no_request() {
    let ca = Ca::new();
    let nginx = nginx(&ca, "http2", "keepalive_requests 3;");
    let proxy = proxy(nginx.address, &ca, true, "");
    let mut all: Vec<_> = (0..10).map(|n| proxy.get(&format!("/f{n}"))).collect();
    all.extend(together(&proxy, (10..30).map(|n| format!("/f{n}"))));
    for (n, reply) in all.iter().enumerate() {
        assert!(reply.body == noise(300_000 + n, n as u64), "{n}: {} {}", reply.status(), reply.cache());
    }
    assert!(connections(&all) >= 10, "GOAWAY after three");
}

#[test]
fn clients_that_read_nothing_do_not_stop_the_others() {
    let ca = Ca::new();
    let nginx = nginx(&ca, "http2", "");
    nginx.file("large", &noise(40_000_000, 1));
    let proxy = proxy(nginx.address, &ca, true, "[[rule]]\npath = \"/large\"\nbypass = true\n");
    let mut still: Vec<Client> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut still {
        client.write("GET", "/large", &[], b"");
        assert_eq!(client.read_head().unwrap().field("x-protocol"), "HTTP/2.0");
    }
    for n in 0..5 {
        let reply = proxy.get(&format!("/f{n}"));
        assert!(reply.body == noise(300_000 + n, n as u64) && reply.field("x-protocol") == "HTTP/2.0");
    }
}

/// What becomes of the stream with this number, counted from 0, on the connection with that.
type Does = fn(usize, usize) -> Then;

enum Then {
    Answer,
    Reset(Reason),
    Nothing,
}

/// An origin of HTTP/2 alone, that counts.
struct Small {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Small {
    fn start(ca: &Ca, does: Does) -> Self {
        let Issued { file, key, .. } = ca.issue(&["127.0.0.1"]);
        let chain = vec![CertificateDer::from_pem_file(file).unwrap()];
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opened, asked) = (connections.clone(), requests.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((tcp, _)) = listener.accept().await {
                    let (n, acceptor, asked) = (opened.fetch_add(1, SeqCst), acceptor.clone(), asked.clone());
                    tokio::spawn(async move {
                        let Ok(tls) = acceptor.accept(tcp).await else { return };
                        let Ok(mut connection) = h2::server::handshake(tls).await else { return };
                        let mut streams = 0;
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            asked.fetch_add(1, SeqCst);
                            tokio::spawn(answer(does(n, streams), request.into_body(), respond));
                            streams += 1;
                        }
                    });
                }
            });
        });
        Self { address, connections, requests }
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.load(SeqCst), self.requests.load(SeqCst))
    }
}

async fn answer(then: Then, mut body: RecvStream, mut respond: SendResponse<Bytes>) {
    match then {
        Then::Reset(why) => respond.send_reset(why),
        Then::Nothing => std::future::pending().await,
        Then::Answer => {
            while let Some(Ok(bytes)) = body.data().await {
                let _ = body.flow_control().release_capacity(bytes.len());
            }
            let response = http::Response::builder().header("cache-control", "max-age=60").body(()).unwrap();
            if let Ok(mut stream) = respond.send_response(response, false) {
                let _ = stream.send_data("answered".into(), true);
            }
        }
    }
}

#[test]
fn a_stream_that_was_refused_is_asked_for_again_and_one_that_may_be_done_is_not() {
    let ca = Ca::new();
    let refuses = Small::start(&ca, |_, stream| match stream {
        0 => Then::Reset(Reason::REFUSED_STREAM),
        _ => Then::Answer,
    });
    assert_eq!(proxy(refuses.address, &ca, true, "").get("/").text(), "answered");
    assert_eq!(refuses.counts(), (1, 2), "on the same connection");

    let always = Small::start(&ca, |_, _| Then::Reset(Reason::REFUSED_STREAM));
    let reply = proxy(always.address, &ca, true, "").client().send("POST", "/", &[], b"x");
    assert_eq!((reply.status(), always.counts()), (502, (1, 1)), "its body has gone");
    let reply = proxy(always.address, &ca, true, "").get("/");
    assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=closed"));
    assert_eq!(always.counts().1, 1 + 2 * 10, "ten times, and all of that once more");

    let breaks = Small::start(&ca, |_, _| Then::Reset(Reason::INTERNAL_ERROR));
    let reply = proxy(breaks.address, &ca, true, "").client().send("POST", "/", &[], b"x");
    assert_eq!((reply.status(), breaks.counts().1), (502, 1), "it may have done it");
}

#[test]
fn a_connection_on_which_nothing_comes_is_not_used_again() {
    let ca = Ca::new();
    let origin = Small::start(&ca, |connection, _| if connection == 0 { Then::Nothing } else { Then::Answer });
    let proxy = proxy(origin.address, &ca, true, "[limits]\nresponse_timeout = \"1s\"\n");
    assert_eq!(proxy.get("/").cache(), "picaflor; detail=response-timeout");
    assert_eq!((proxy.get("/").text().as_str(), origin.counts()), ("answered", (2, 2)));
}

#[test]
fn who_waits_for_a_connection_that_is_not_made_waits_for_no_other() {
    let ca = Ca::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let proxy = proxy(address, &ca, true, "[limits]\nconnect_timeout = \"2s\"\n");
    for reply in together(&proxy, (0..10).map(|n| format!("/{n}"))) {
        assert!(matches!(reply.cache(), "picaflor; detail=connect-timeout" | "picaflor; detail=paused"), "{reply:?}");
    }
    silent.set_nonblocking(true).unwrap();
    let connections = std::iter::from_fn(|| silent.accept().ok()).count();
    assert!(connections <= 2, "{connections} of ten tried it, one after another");
}

#[test]
fn why_an_upload_is_not_taken_is_said_by_http2_too() {
    let ca = Ca::new();
    let origin = Small::start(&ca, |_, _| Then::Answer);
    let proxy = proxy(origin.address, &ca, true, "[limits]\nupload_max = \"100 KiB\"\n");
    let mut client = proxy.client();
    let head = "POST / HTTP/1.1\r\nHost: test.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 150 << 10, "x".repeat(150 << 10));
    let _ = client.stream.write_all(chunk.as_bytes());
    assert_eq!(client.read("POST").unwrap().cache(), "picaflor; detail=upload-too-long");
    assert_eq!(proxy.client().send("POST", "/", &[], b"short").text(), "answered");
}
