//! HTTP/3 to clients, by a client of its own: Debian's curl has none. `scripts/http3-page` opens a page in a browser by
//! it.

use std::{net::UdpSocket, sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use http::{HeaderMap, Request};
use quinn::{Endpoint, crypto::rustls::QuicClientConfig};
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use crate::{
    certs::{Ca, Issued},
    http2::{self, request, run},
    kit::{Door, Origin, Proxy, eventually, ok},
    nginx::noise,
};

type Sender = SendRequest<h3_quinn::OpenStreams, Bytes>;
type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

fn start(ca: &Ca, origin: &Origin, more: &str) -> Proxy {
    let issued = ca.issue(&["test.example"]).table();
    Proxy::before(&origin.url(), &format!("{more}[tls]\nlisten = [\"127.0.0.1:0\"]\nhttp3 = true\n{issued}"))
}

/// A connection; `Err` if it is refused, or ends in its handshake.
async fn connect_with(config: &ClientConfig, proxy: &Proxy) -> Result<(Sender, JoinHandle<()>, Endpoint), String> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = endpoint.connect_with(config, proxy.by_tls.unwrap(), "test.example").unwrap();
    let connection = connecting.await.map_err(|e| e.to_string())?;
    let made = h3::client::new(h3_quinn::Connection::new(connection)).await;
    let (mut driver, sender) = made.map_err(|e| e.to_string())?;
    let task = tokio::spawn(async move {
        driver.wait_idle().await;
    });
    Ok((sender, task, endpoint))
}

async fn connect(ca: &Ca, proxy: &Proxy) -> (Sender, JoinHandle<()>, Endpoint) {
    connect_with(&ca.trusting(&[13]), proxy).await.unwrap()
}

/// Status, fields and body of the answer.
type Answered = Result<(u16, HeaderMap, Vec<u8>), h3::error::StreamError>;

async fn answer(stream: &mut Stream) -> Answered {
    let response = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(data) = stream.recv_data().await? {
        body.extend_from_slice(data.chunk());
    }
    Ok((response.status().as_u16(), response.headers().clone(), body))
}

async fn send(sender: &mut Sender, request: Request<()>, body: &[&[u8]]) -> Answered {
    let mut stream = sender.send_request(request).await?;
    for piece in body {
        stream.send_data(Bytes::copy_from_slice(piece)).await?;
    }
    stream.finish().await?;
    answer(&mut stream).await
}

fn cache(headers: &HeaderMap) -> String {
    headers.get("cache-status").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

const PAGE: &str = "https://test.example/f";

#[test]
fn a_client_gets_what_it_gets_by_http_2_and_is_told_of_it() {
    let ca = Ca::new();
    let origin = http2::echo();
    let log = ca.folder.path().join("log");
    let proxy = start(&ca, &origin, &format!("[log]\nto = {log:?}\nformat = \"json\"\n"));
    run(async {
        let (mut sender, _task, _endpoint) = connect(&ca, &proxy).await;
        let (status, fields, body) = send(&mut sender, request("GET", PAGE, &[]), &[]).await.unwrap();
        assert!(status == 200 && fields["x-told"] == "https" && cache(&fields).contains("uri-miss"), "{fields:?}");
        assert!(body == noise(300_000, 3) && !fields.contains_key("connection"));
        proxy.settle();
        let (_, fields, body) = send(&mut sender, request("GET", PAGE, &[]), &[]).await.unwrap();
        assert!(cache(&fields).contains("picaflor; hit") && body == noise(300_000, 3), "{fields:?}");
        let (status, _, body) =
            send(&mut sender, request("GET", PAGE, &[("range", "bytes=10-19")]), &[]).await.unwrap();
        assert_eq!((status, &body[..]), (206, &noise(300_000, 3)[10..20]));
        let asked = request("GET", PAGE, &[("if-none-match", "\"e\"")]);
        assert_eq!(send(&mut sender, asked, &[]).await.unwrap().0, 304);
        let (status, fields, body) = send(&mut sender, request("HEAD", PAGE, &[]), &[]).await.unwrap();
        assert!(status == 200 && fields["content-length"] == "300000" && body.is_empty());
        let upload = noise(3_000_000, 4);
        let asked = request("POST", "https://test.example/p", &[("content-length", "3000000")]);
        let (status, fields, body) =
            send(&mut sender, asked, &[&upload[..1_000_000], &upload[1_000_000..]]).await.unwrap();
        assert!(status == 200 && body == upload && !fields.contains_key("x-hop"), "{fields:?}");
        let asked = request("POST", "https://test.example/p", &[("content-length", "3"), ("expect", "100-continue")]);
        let mut stream = sender.send_request(asked).await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 100, "it may send its body");
        stream.send_data(Bytes::from_static(b"abc")).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(answer(&mut stream).await.unwrap().2, b"abc");
    });
    assert_eq!(&proxy.stats()["proxy"]["http3_requests"], 7);
    assert_eq!(&proxy.stats()["proxy"]["http3_connections"], 1);
    eventually("the log tells", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("HTTP/3")));
    run(async {
        let (mut sender, _) = http2::connect(&ca, &proxy, |_| {}).await;
        let answer = http2::ask(&mut sender, request("GET", PAGE, &[])).await.unwrap();
        let named = format!("h3=\":{}\"; ma=86400", proxy.by_tls.unwrap().port());
        assert_eq!(answer.headers()["alt-svc"], named);
        assert!(cache(answer.headers()).contains("picaflor; hit"), "the same key");
    });
    let off = http2::start(&ca, &origin, "");
    run(async {
        let (mut sender, _) = http2::connect(&ca, &off, |_| {}).await;
        let answer = http2::ask(&mut sender, request("GET", PAGE, &[])).await.unwrap();
        assert!(!answer.headers().contains_key("alt-svc"));
        UdpSocket::bind(off.by_tls.unwrap()).expect("nothing listens there");
    });
}

#[test]
fn what_could_not_be_asked_by_http_1_is_refused() {
    let ca = Ca::new();
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: no-store", b"ok"));
    let proxy = start(&ca, &origin, "");
    run(async {
        let (mut sender, _task, _endpoint) = connect(&ca, &proxy).await;
        for (method, fields, why) in [
            ("GET", &[("content-length", "0"), ("content-length", "0")][..], "ambiguous-length"),
            ("GET", &[("content-length", "+1")], "ambiguous-length"),
            ("GET", &[("transfer-encoding", "chunked")], "malformed"),
            ("GET", &[("connection", "close")], "malformed"),
            ("GET", &[("upgrade", "websocket")], "malformed"),
            ("GET", &[("te", "gzip")], "malformed"),
            ("GET", &[("expect", "something")], "expectation"),
        ] {
            let (status, fields, _) = send(&mut sender, request(method, PAGE, fields), &[]).await.unwrap();
            assert!((400..500).contains(&status) && cache(&fields).contains(why), "{why}: {fields:?}");
        }
        assert_eq!(origin.count(), 0);
        // A body that is not as long as it says: the origin has no request that ends.
        for (len, body) in [("10", &[&b"12345"[..]][..]), ("5", &[b"12345", b"67890"]), ("0", &[b"1"])] {
            let asked = request("POST", PAGE, &[("content-length", len)]);
            let answered = send(&mut sender, asked, body).await;
            assert!(
                answered.as_ref().is_err() || answered.as_ref().is_ok_and(|(status, ..)| *status >= 400),
                "{len}: {answered:?}"
            );
        }
        assert_eq!(origin.count(), 0);
        let (status, ..) = send(&mut sender, request("GET", PAGE, &[]), &[]).await.unwrap();
        assert_eq!(status, 200, "the connection goes on");
    });
}

#[test]
fn many_requests_at_once_are_one_fetch_and_a_stop_waits_for_them() {
    let (ca, door) = (Ca::new(), Door::default());
    let closed = door.clone();
    let origin = Origin::start(move |_, stream| {
        closed.pass();
        ok(stream, "cache-control: max-age=60", &noise(100_000, 5))
    });
    let mut proxy = start(&ca, &origin, "");
    run(async {
        let (mut sender, _task, _endpoint) = connect(&ca, &proxy).await;
        let mut asking = Vec::new();
        for _ in 0..50 {
            let mut stream = sender.send_request(request("GET", PAGE, &[])).await.unwrap();
            asking.push(tokio::spawn(async move {
                stream.finish().await.unwrap();
                answer(&mut stream).await
            }));
        }
        while proxy.stats()["proxy"]["http3_requests"] != 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stopping = tokio::task::spawn_blocking(move || proxy.stop());
        tokio::time::sleep(Duration::from_millis(300)).await;
        door.open();
        for answer in asking {
            assert!(answer.await.unwrap().unwrap().2 == noise(100_000, 5));
        }
        assert!(send(&mut sender, request("GET", PAGE, &[]), &[]).await.is_err(), "it takes no more");
        stopping.await.unwrap().unwrap();
    });
    assert_eq!(origin.count(), 1);
}

#[test]
fn clients_that_leave_take_nothing_or_are_too_many_leave_no_trace() {
    let ca = Ca::new();
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: no-store", &noise(20_000_000, 6)));
    let limits = "[limits]\nconnections_per_client = 2\nsend_timeout = \"1s\"\n";
    let proxy = start(&ca, &origin, limits);
    run(async {
        let (mut sender, _task, endpoint) = connect(&ca, &proxy).await;
        let mut stream = sender.send_request(request("GET", PAGE, &[])).await.unwrap();
        stream.finish().await.unwrap();
        stream.recv_response().await.unwrap();
        // It takes nothing: its stream ends, the connection does not.
        while proxy.stats()["proxy"]["http2_streams_timed_out"] != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut ends = None;
        while ends.is_none() {
            ends = stream.recv_data().await.map(|more| more.is_none().then_some("whole")).unwrap_or(Some("cut"));
        }
        assert_eq!(ends, Some("cut"), "its end is not that of the body");
        let second = connect(&ca, &proxy).await;
        let refused = connect_with(&ca.trusting(&[13]), &proxy).await.err().unwrap();
        assert!(refused.contains("refused"), "{refused}");
        drop(second);
        // One that goes away in the middle.
        let mut stream = sender.send_request(request("GET", PAGE, &[])).await.unwrap();
        stream.finish().await.unwrap();
        stream.recv_data().await.err();
        endpoint.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        let open = || proxy.stats()["proxy"]["connections"] != proxy.stats()["proxy"]["connections_closed"];
        while open() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(&proxy.stats()["proxy"]["denied"]["client-connections"], 1);
}

#[test]
fn certificates_are_asked_for_and_renewed_as_by_tcp() {
    let ca = Ca::new();
    let origin = Origin::constant("cache-control: max-age=60", "ok");
    let (ours, client) = (ca.issue(&["test.example"]), ca.issue(&["client"]));
    let table = |issued: &Issued| {
        format!("[tls]\nlisten = [\"127.0.0.1:0\"]\nhttp3 = true\nclient_ca = {:?}\n{}", ca.file(), issued.table())
    };
    let proxy = Proxy::before(&origin.url(), &table(&ours));
    run(async {
        let (mut sender, _task, _endpoint) = connect_with(&ca.showing(&client), &proxy).await.unwrap();
        assert_eq!(send(&mut sender, request("GET", PAGE, &[]), &[]).await.unwrap().2, b"ok");
        if let Ok((mut sender, _task, _endpoint)) = connect_with(&ca.trusting(&[13]), &proxy).await {
            assert!(send(&mut sender, request("GET", PAGE, &[]), &[]).await.is_err(), "it shows none");
        }
        eventually("it is counted", || proxy.stats()["proxy"]["tls_failures"]["client-certificate"] == 1);
        // Of another authority from now on.
        let other = Ca::new();
        let new = other.issue(&["test.example"]);
        std::fs::copy(&new.file, &ours.file).unwrap();
        std::fs::copy(&new.key, &ours.key).unwrap();
        proxy.server().reload().unwrap();
        assert_eq!(send(&mut sender, request("GET", PAGE, &[]), &[]).await.unwrap().0, 200, "the old one goes on");
        assert!(connect_with(&ca.showing(&client), &proxy).await.is_err(), "what is shown is new");
    });
}
