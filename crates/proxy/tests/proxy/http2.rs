//! HTTP/2 to clients: a real curl, and a client of its own for what curl does not do.

use std::{
    future::Future,
    io::Write,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Reason, client::SendRequest};
use http::{HeaderMap, Request, Response};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::TlsConnector;

use crate::{
    certs::Ca,
    kit::{Door, Origin, Proxy, answer, eventually, more_than_sockets_hold, ok},
    nginx::noise,
};

pub(crate) fn start(ca: &Ca, origin: &Origin, more: &str) -> Proxy {
    let tls = format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n{}", ca.issue(&["test.example"]).table());
    Proxy::before(&origin.url(), &format!("{more}{tls}"))
}

pub(crate) type Sender = SendRequest<Bytes>;

/// A connection of HTTP/2; `change` sets its windows.
pub(crate) async fn connect(
    ca: &Ca,
    proxy: &Proxy,
    change: impl FnOnce(&mut h2::client::Builder),
) -> (Sender, JoinHandle<Result<(), h2::Error>>) {
    let mut config = (*ca.trusting(&[12, 13])).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(proxy.by_tls.unwrap()).await.unwrap();
    let name = ServerName::try_from("test.example").unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let mut builder = h2::client::Builder::new();
    change(&mut builder);
    let (sender, connection) = builder.handshake(tls).await.unwrap();
    let task = tokio::spawn(connection);
    (sender.ready().await.unwrap(), task)
}

pub(crate) fn request(method: &str, uri: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Sends a request without a body.
pub(crate) async fn ask(sender: &mut Sender, request: Request<()>) -> Result<Response<h2::RecvStream>, h2::Error> {
    *sender = sender.clone().ready().await?;
    sender.send_request(request, true)?.0.await
}

pub(crate) async fn whole(response: Response<h2::RecvStream>) -> Result<(u16, HeaderMap, Vec<u8>), h2::Error> {
    let (parts, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        let bytes = bytes?;
        stream.flow_control().release_capacity(bytes.len())?;
        body.extend_from_slice(&bytes);
    }
    Ok((parts.status.as_u16(), parts.headers, body))
}

pub(crate) fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("in time") })
}

fn curl(ca: &Path, proxy: &Proxy, path: &str, more: &[&str]) -> (String, Vec<u8>) {
    let port = proxy.by_tls.unwrap().port();
    let output = Command::new("curl")
        .args(["-sS", "--http2", "--max-time", "60", "--resolve", &format!("test.example:{port}:127.0.0.1")])
        .args(["-D", "/dev/stderr", "--cacert"])
        .arg(ca)
        .args(more)
        .arg(format!("https://test.example:{port}{path}"))
        .output()
        .expect("curl is installed");
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
}

/// Sends a POST's body back, and answers other requests with 300,000 bytes.
pub(crate) fn echo() -> Origin {
    Origin::start(|request, stream| match request.method() {
        "POST" => ok(stream, "cache-control: no-store\nconnection: x-hop\nx-hop: 1", &request.body),
        _ => {
            let told =
                format!("x-told: {}\ncache-control: max-age=60\netag: \"e\"", request.field("x-forwarded-proto"));
            ok(stream, &told, &noise(300_000, 3))
        }
    })
}

#[test]
fn curl_gets_what_it_gets_by_http_1() {
    let ca = Ca::new();
    let origin = echo();
    let log = ca.folder.path().join("log");
    let proxy = start(&ca, &origin, &format!("[log]\nto = {log:?}\nformat = \"json\"\n"));
    let file = ca.file();
    let (head, body) = curl(&file, &proxy, "/f", &[]);
    assert!(head.starts_with("HTTP/2 200") && head.contains("x-told: https"), "{head}");
    assert!(body == noise(300_000, 3) && head.contains("fwd=uri-miss"), "{head}");
    proxy.settle();
    let (head, body) = curl(&file, &proxy, "/f", &[]);
    assert!(body == noise(300_000, 3) && head.contains("picaflor; hit"), "{head}");
    let (head, body) = curl(&file, &proxy, "/f", &["-r", "10-19"]);
    assert!(body == noise(300_000, 3)[10..20] && head.starts_with("HTTP/2 206"), "{head}");
    let (head, body) = curl(&file, &proxy, "/f", &["-H", "If-None-Match: \"e\""]);
    assert!(body.is_empty() && head.starts_with("HTTP/2 304"), "{head}");
    let (head, body) = curl(&file, &proxy, "/f", &["-I"]);
    assert!(head.contains("content-length: 300000") && body.is_empty() || head.starts_with("HTTP/2 200"), "{head}");
    let upload = ca.folder.path().join("upload");
    std::fs::write(&upload, noise(3_000_000, 4)).unwrap();
    let (head, body) = curl(&file, &proxy, "/p", &["--data-binary", &format!("@{}", upload.display())]);
    assert!(body == noise(3_000_000, 4), "{head}");
    assert_eq!((origin.count(), &proxy.stats()["proxy"]["http2_requests"]), (2, &6.into()));
    let port = proxy.by_tls.unwrap().port();
    eventually("the log tells", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains(&format!("https://test.example:{port}/f")) && log.contains("HTTP/2")
    });
    let (head, _) = curl(&file, &proxy, "/f", &["--http1.1"]);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("picaflor; hit"), "the same key: {head}");
    let off = format!("[tls]\nlisten = [\"127.0.0.1:0\"]\nhttp2 = false\n{}", ca.issue(&["test.example"]).table());
    let off = Proxy::before(&origin.url(), &off);
    assert!(curl(&file, &off, "/f", &[]).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn many_requests_at_once_are_one_fetch() {
    let (ca, door) = (Ca::new(), Door::default());
    let closed = door.clone();
    let origin = Origin::start(move |_, stream| {
        closed.pass();
        ok(stream, "cache-control: max-age=60", &noise(100_000, 5))
    });
    let proxy = start(&ca, &origin, "");
    run(async {
        let (mut sender, _) = connect(&ca, &proxy, |_| {}).await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            sender = sender.ready().await.unwrap();
            answers.push(sender.send_request(request("GET", "https://test.example/f", &[]), true).unwrap().0);
        }
        while proxy.stats()["proxy"]["http2_requests"] != 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        door.open();
        // All are read at once: they share the window of the connection.
        let read = |answer: h2::client::ResponseFuture| tokio::spawn(async { whole(answer.await.unwrap()).await });
        let reading: Vec<_> = answers.into_iter().map(read).collect();
        for answer in reading {
            assert!(answer.await.unwrap().unwrap().2 == noise(100_000, 5));
        }
    });
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_request_is_what_it_would_be_by_http_1_and_what_could_not_be_is_refused() {
    let ca = Ca::new();
    let origin = Origin::start(|request, stream| {
        let told = ["host", "cookie", "x-forwarded-host", "via", "transfer-encoding"].map(|name| request.field(name));
        let lines = request.fields.iter().filter(|(name, _)| name == "cookie").count();
        ok(stream, "cache-control: no-store", format!("{lines} {}", told.join("|")).as_bytes())
    });
    let proxy = start(&ca, &origin, "");
    run(async {
        let (mut sender, _) = connect(&ca, &proxy, |_| {}).await;
        let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=\"3; 4\"")];
        let reply = ask(&mut sender, request("GET", "https://test.example/", &cookies)).await.unwrap();
        let told = String::from_utf8(whole(reply).await.unwrap().2).unwrap();
        assert!(told.starts_with("1 test.example|a=1; b=2; c=\"3; 4\"|test.example|"), "{told}");
        let same = [("host", "TEST.example")];
        assert_eq!(ask(&mut sender, request("GET", "https://test.example/", &same)).await.unwrap().status(), 200);
        let before = origin.count();
        for (uri, fields, why) in [
            ("https://test.example/", &[("host", "other.example")][..], "bad-host"),
            ("https://test.example/", &[("host", "test.example"), ("host", "other.example")], "bad-host"),
            ("https://u@test.example/", &[], "bad-host"),
            ("https://test.example/", &[("content-length", "0"), ("content-length", "0")], "ambiguous-length"),
            ("https://test.example/", &[("expect", "something")], "expectation"),
            ("ftp://test.example/", &[], "scheme"),
        ] {
            let reply = ask(&mut sender, request("GET", uri, fields)).await.unwrap();
            let status = reply.headers()["cache-status"].to_str().unwrap().to_owned();
            assert!(status.contains(why) && reply.status().is_client_error(), "{uri} {fields:?}: {status}");
        }
        for fields in [
            [("transfer-encoding", "chunked")],
            [("connection", "close")],
            [("upgrade", "websocket")],
            [("te", "gzip")],
            [("content-length", "5")],
        ] {
            let (mut sender, _) = connect(&ca, &proxy, |_| {}).await;
            let refused = ask(&mut sender, request("GET", "https://test.example/", &fields)).await;
            assert!(refused.is_err() || refused.unwrap().status().is_client_error(), "{fields:?}");
        }
        let trace = ask(&mut sender, request("TRACE", "https://test.example/", &[])).await.unwrap();
        assert_eq!(trace.status(), 405);
        let long = "x".repeat(70_000);
        let long = ask(&mut sender, request("GET", "https://test.example/", &[("x-long", &long)])).await;
        assert!(long.is_err() || long.unwrap().status() == 431, "the list of fields has a limit");
        assert_eq!(origin.count(), before, "none of it reached the origin");
    });
}

#[test]
fn a_body_that_breaks_off_is_a_stream_that_is_reset() {
    let (ca, door) = (Ca::new(), Door::default());
    let closed = door.clone();
    let origin = Origin::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 100000\r\n\r\nhalf");
        // A reset would overtake the head.
        closed.pass();
        false
    });
    let proxy = start(&ca, &origin, "");
    run(async {
        let (mut sender, _) = connect(&ca, &proxy, |_| {}).await;
        let reply = ask(&mut sender, request("GET", "https://test.example/", &[])).await.unwrap();
        door.open();
        assert!(whole(reply).await.unwrap_err().is_reset());
        let other = ask(&mut sender, request("OPTIONS", "https://test.example/", &[("max-forwards", "0")])).await;
        assert_eq!(other.unwrap().status(), 200, "the connection goes on");
    });
}

#[test]
fn streams_are_bounded_and_those_that_are_reset_at_once_end_their_connection() {
    let (ca, door) = (Ca::new(), Door::default());
    let closed = door.clone();
    let origin = Origin::start(move |_, stream| {
        closed.pass();
        ok(stream, "cache-control: no-store", b"late")
    });
    let proxy = start(&ca, &origin, "[limits]\nstreams = 7\n");
    run(async {
        let (mut sender, connection) = connect(&ca, &proxy, |_| {}).await;
        let first = ask(&mut sender, request("OPTIONS", "https://test.example/", &[("max-forwards", "0")])).await;
        assert_eq!(first.unwrap().status(), 200);
        assert_eq!(sender.current_max_send_streams(), 7);
        let mut asked = 0;
        while let Ok(ready) = sender.clone().ready().await {
            sender = ready;
            let uri = format!("https://test.example/{asked}");
            let Ok((_, mut stream)) = sender.send_request(request("GET", &uri, &[]), true) else { break };
            // It is taken before it is taken back.
            tokio::time::sleep(Duration::from_millis(2)).await;
            stream.send_reset(Reason::CANCEL);
            asked += 1;
            assert!(asked < 1000, "it goes on for ever");
        }
        assert!(asked > 90, "a client may change its mind: {asked}");
        let _ = connection.await;
    });
    eventually("it is counted", || proxy.stats()["proxy"]["denied"]["rapid-reset"] == 1);
    door.open();
}

#[test]
fn a_stream_whose_client_takes_nothing_ends_and_the_others_go_on() {
    let ca = Ca::new();
    let body = Arc::new(noise(1 << 20, 6));
    let large = body.clone();
    let origin = Origin::start(move |request, stream| {
        let body = if request.path() == "/large" { &large[..] } else { b"small" };
        ok(stream, "cache-control: max-age=60", body)
    });
    let proxy = start(&ca, &origin, "[limits]\nsend_timeout = \"1s\"\n");
    proxy.get("/large");
    run(async {
        let (mut sender, _) = connect(&ca, &proxy, |builder| {
            builder.initial_window_size(1000);
        })
        .await;
        let mut stalled = ask(&mut sender, request("GET", "https://test.example/large", &[])).await.unwrap();
        let begun = Instant::now();
        let ended = loop {
            let other = ask(&mut sender, request("GET", "https://test.example/small", &[])).await.unwrap();
            assert_eq!(whole(other).await.unwrap().2, b"small");
            match tokio::time::timeout(Duration::from_millis(100), stalled.body_mut().data()).await {
                Ok(Some(Err(e))) => break e,
                // The window stays as it is.
                Ok(Some(Ok(_))) | Err(_) => {}
                Ok(None) => panic!("it ended as if it were whole"),
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it never ends");
        };
        assert!(ended.is_reset(), "{ended}");
    });
    assert_eq!(proxy.stats()["proxy"]["http2_streams_timed_out"], 1);
}

#[test]
fn a_client_that_reads_nothing_of_its_socket_is_ended() {
    let ca = Ca::new();
    let len = more_than_sockets_hold();
    let origin = Origin::start(move |_, stream| ok(stream, "cache-control: max-age=60", &vec![7; len]));
    let proxy = start(&ca, &origin, "[limits]\nsend_timeout = \"1s\"\n");
    run(async {
        let (mut sender, connection) = connect(&ca, &proxy, |builder| {
            builder.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
        })
        .await;
        let asked = sender.send_request(request("GET", "https://test.example/", &[]), true);
        // The runtime is kept busy, so nothing is read.
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::thread::sleep(Duration::from_secs(4));
        drop(asked);
        let _ = connection.await;
    });
    eventually("it has left", || proxy.stats()["proxy"]["connections_timed_out"].as_u64() >= Some(1));
}

#[test]
fn a_connection_is_idle_only_without_streams_and_a_stop_lets_them_end() {
    let ca = Ca::new();
    let origin = Origin::start(|_, stream| {
        std::thread::sleep(Duration::from_secs(4));
        answer(stream, "200 OK", "cache-control: no-store", b"late")
    });
    let mut proxy = start(&ca, &origin, "[limits]\nidle_timeout = \"1s\"\n");
    run(async {
        let (mut sender, connection) = connect(&ca, &proxy, |_| {}).await;
        let reply = ask(&mut sender, request("GET", "https://test.example/", &[])).await.unwrap();
        assert_eq!(whole(reply).await.unwrap().2, b"late", "longer than it may be idle");
        let _ = connection.await;
        assert_eq!(proxy.stats()["proxy"]["connections_timed_out"], 1, "and then it was idle");
        let (mut sender, connection) = connect(&ca, &proxy, |_| {}).await;
        let asked = sender.send_request(request("GET", "https://test.example/", &[]), true).unwrap().0;
        while origin.count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stopping = std::thread::spawn(move || proxy.stop());
        assert_eq!(whole(asked.await.unwrap()).await.unwrap().2, b"late");
        assert!(connection.await.unwrap().is_ok(), "it ends with a word");
        assert_eq!(stopping.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_tunnel_goes_through_a_stream_and_is_no_idle_connection() {
    let ca = Ca::new();
    let origin = Origin::constant("cache-control: max-age=60", "by the tunnel");
    let port = origin.address.port();
    let forward = format!("[limits]\nidle_timeout = \"1s\"\n[forward]\nenabled = true\nconnect_ports = [{port}]\n");
    let tls = format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n{}", ca.issue(&["test.example"]).table());
    let proxy = Proxy::start(&format!("{forward}{tls}"));
    run(async {
        let (mut sender, _) = connect(&ca, &proxy, |_| {}).await;
        let plain = ask(&mut sender, request("GET", &format!("http://127.0.0.1:{port}/"), &[])).await.unwrap();
        assert_eq!(whole(plain).await.unwrap().2, b"by the tunnel", "a whole URL, as by HTTP/1");
        sender = sender.ready().await.unwrap();
        let connect = Request::builder().method("CONNECT").uri(format!("127.0.0.1:{port}")).body(()).unwrap();
        let (reply, mut up) = sender.send_request(connect, false).unwrap();
        let mut down = reply.await.unwrap();
        assert_eq!(down.status(), 200);
        tokio::time::sleep(Duration::from_secs(4)).await;
        up.send_data(Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), false).unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"by the tunnel") {
            seen.extend_from_slice(&down.body_mut().data().await.unwrap().unwrap());
        }
    });
}
