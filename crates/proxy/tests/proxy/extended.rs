//! WebSocket by HTTP/2 (RFC 8441): a client that has one connection for streams of both kinds, and a real server of
//! Debian's `python3-websockets` behind the proxy.

use std::io::{Read, Write};

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream, ext::Protocol};
use http::{Request, Response};

use crate::{
    certs::Ca,
    http2::{Sender, ask, connect, request, run, start, whole},
    kit::{Origin, Proxy, eventually, ok},
    nginx::Nginx,
    upgrade::WebSockets,
};

/// Asks to switch; the stream stays open for what is to be sent.
async fn extended(sender: &mut Sender, path: &str, protocol: &str) -> (Response<RecvStream>, SendStream<Bytes>) {
    *sender = sender.clone().ready().await.unwrap();
    let mut request = Request::builder().method("CONNECT").uri(format!("https://test.example{path}"));
    request = request.header("sec-websocket-version", "13").extension(Protocol::from(protocol));
    let (reply, up) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    (reply.await.unwrap(), up)
}

fn tls(ca: &Ca) -> String {
    format!("[tls]\nlisten = [\"127.0.0.1:0\"]\n{}", ca.issue(&["test.example"]).table())
}

/// A frame of a client, under the mask of zeros.
fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        len @ ..126 => frame.push(0x80 | len as u8),
        len @ ..65536 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame.into()
}

/// What comes by a stream.
struct Down {
    stream: RecvStream,
    seen: BytesMut,
}

impl Down {
    /// So many bytes, or fewer at the end.
    async fn bytes(&mut self, n: usize) -> BytesMut {
        while self.seen.len() < n {
            let Some(bytes) = self.stream.data().await else { break };
            let bytes = bytes.unwrap();
            self.stream.flow_control().release_capacity(bytes.len()).unwrap();
            self.seen.extend_from_slice(&bytes);
        }
        self.seen.split_to(n.min(self.seen.len()))
    }

    /// The next frame of the server: what kind it is of, and what it says.
    async fn frame(&mut self) -> (u8, BytesMut) {
        let head = self.bytes(2).await;
        let len = match head[1] {
            126 => self.bytes(2).await.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)),
            127 => self.bytes(8).await.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)),
            len => usize::from(len),
        };
        (head[0] & 0xf, self.bytes(len).await)
    }
}

#[test]
fn a_websocket_goes_through_a_stream_beside_others() {
    let (ca, server) = (Ca::new(), WebSockets::start());
    let log = tempfile::NamedTempFile::new().unwrap();
    let config = format!("[log]\nto = {:?}\nformat = \"json\"\n{}", log.path(), tls(&ca));
    let mut proxy = Proxy::before(&format!("http://{}", server.1), &config);
    run(async {
        let (mut sender, _connection) = connect(&ca, &proxy, |_| {}).await;
        let (reply, mut up) = extended(&mut sender, "/chat?q=1", "websocket").await;
        assert!(sender.is_extended_connect_protocol_enabled());
        assert_eq!(reply.status(), 200, "{reply:?}");
        for name in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
            assert!(!reply.headers().contains_key(name), "{reply:?}");
        }
        assert_eq!(reply.headers()["cache-status"], "picaflor; fwd=bypass; fwd-status=101; detail=upgrade");
        let mut down = Down { stream: reply.into_body(), seen: BytesMut::new() };
        assert_eq!(down.frame().await, (1, b"/chat?q=1 https"[..].into()));
        for len in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
            let payload: Vec<u8> = (0..len).map(|n| (n * 7 % 256) as u8).collect();
            up.send_data(frame(2, &payload), false).unwrap();
            let other = ask(&mut sender, request("OPTIONS", "https://test.example/", &[("max-forwards", "0")])).await;
            assert_eq!(other.unwrap().status(), 200);
            assert_eq!(down.frame().await, (2, payload[..].into()), "{len}");
        }
        up.send_data(frame(8, &1000_u16.to_be_bytes()), false).unwrap();
        assert_eq!(down.frame().await, (8, 1000_u16.to_be_bytes()[..].into()));
        assert!(down.bytes(1).await.is_empty(), "the server has closed");
    });
    eventually("it is counted", || proxy.stats()["proxy"]["requests"]["tunnel"] == 1);
    proxy.stop().unwrap();
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let line = lines.lines().find(|line| line.contains("/chat")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let said = (&line["status"], &line["outcome"], &line["detail"]);
    assert_eq!(said, (&200.into(), &"tunnel".into(), &"upgrade".into()), "{line}");
    assert!(line["bytes"].as_u64() > Some(1_100_000), "what went to the client: {line}");
}

#[test]
fn a_client_that_ends_its_stream_with_its_close_hears_the_servers() {
    let (ca, server) = (Ca::new(), WebSockets::start());
    // nginx closes both ends as soon as the one before it has ended.
    let nginx = Nginx::start(&format!(
        "location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
         proxy_set_header Connection upgrade; }}",
        server.1
    ));
    for origin in [server.1, nginx.address] {
        let proxy = Proxy::before(&format!("http://{origin}"), &tls(&ca));
        run(async {
            let (mut sender, _connection) = connect(&ca, &proxy, |_| {}).await;
            let (reply, mut up) = extended(&mut sender, "/chat", "websocket").await;
            let mut down = Down { stream: reply.into_body(), seen: BytesMut::new() };
            assert_eq!(down.frame().await, (1, b"/chat https"[..].into()));
            // As Chromium does.
            up.send_data(frame(8, &1000_u16.to_be_bytes()), true).unwrap();
            assert_eq!(down.frame().await, (8, 1000_u16.to_be_bytes()[..].into()), "{origin}");
            assert!(down.bytes(1).await.is_empty(), "the server has closed");
        });
        eventually("the tunnel is over", || proxy.stats()["proxy"]["requests"]["tunnel"] == 1);
    }
}

#[test]
fn nothing_but_a_switch_is_answered_as_one() {
    let ca = Ca::new();
    let origin = Origin::start(|request, stream| {
        assert_eq!((request.method(), request.field("upgrade").to_lowercase().as_str()), ("GET", "websocket"));
        assert_eq!(request.field("sec-websocket-key").len(), 24);
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
        match request.path() {
            "/whole" => ok(stream, "cache-control: max-age=60", b"no switch"),
            "/none" => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").is_ok(),
            // For another key.
            "/other" => {
                let accept = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
                stream.write_all(format!("{switch}{accept}").as_bytes()).is_ok()
            }
            path => panic!("{path}"),
        }
    });
    let rules = "[[rule]]\npath = \"/off\"\nupgrade = []\n[[rule]]\npath = \"/whole\"\nreplace = { a = \"b\" }\n";
    let proxy = start(&ca, &origin, rules);
    run(async {
        let (mut sender, _connection) = connect(&ca, &proxy, |_| {}).await;
        for (path, protocol, status, why, asked) in [
            ("/off", "websocket", 501, "upgrade-protocol", 0),
            ("/x", "connect-udp", 501, "upgrade-protocol", 0),
            ("/x", "h2c", 501, "upgrade-protocol", 0),
            ("/whole", "websocket", 502, "protocol", 1),
            ("/none", "WebSocket", 404, "upgrade", 2),
            ("/other", "websocket", 502, "protocol", 3),
        ] {
            let (reply, _up) = extended(&mut sender, path, protocol).await;
            let said = reply.headers()["cache-status"].to_str().unwrap().to_owned();
            assert!(said.ends_with(&format!("detail={why}")), "{path} {protocol}: {said}");
            let (code, _, body) = whole(reply).await.unwrap();
            assert_eq!((code, origin.count()), (status, asked), "{path} {protocol}");
            assert!(path != "/none" || body == b"no");
        }
    });
}

#[test]
fn it_is_offered_where_it_may_be_let_through() {
    let (ca, origin) = (Ca::new(), Origin::constant("", "x"));
    let offered = |proxy: &Proxy| {
        run(async {
            let (mut sender, _connection) = connect(&ca, proxy, |_| {}).await;
            let first = ask(&mut sender, request("OPTIONS", "https://test.example/", &[("max-forwards", "0")])).await;
            drop(first);
            sender.is_extended_connect_protocol_enabled()
        })
    };
    assert!(offered(&start(&ca, &origin, "")));
    assert!(!offered(&start(&ca, &origin, "[[rule]]\nupgrade = []\n")));
    assert!(!offered(&Proxy::start(&tls(&ca))), "there is no origin");
}

#[test]
fn a_stop_lets_it_end_and_ends_it_when_the_time_is_over() {
    let ca = Ca::new();
    let origin = Origin::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\nbegun").unwrap();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..n]).unwrap();
        }
        false
    });
    for drain in ["60s", "100ms"] {
        let rule = format!("[limits]\ndrain = \"{drain}\"\n[[rule]]\nupgrade = [\"raw\"]\n");
        let mut proxy = start(&ca, &origin, &rule);
        run(async {
            let (mut sender, _connection) = connect(&ca, &proxy, |_| {}).await;
            let (reply, mut up) = extended(&mut sender, "/", "raw").await;
            let mut down = Down { stream: reply.into_body(), seen: BytesMut::new() };
            assert_eq!(down.bytes(5).await, b"begun"[..]);
            let stop = std::thread::spawn(move || proxy.stop());
            if drain == "60s" {
                up.send_data(Bytes::from_static(b"on"), false).unwrap();
                assert_eq!(down.bytes(2).await, b"on"[..]);
                up.send_data(Bytes::new(), true).unwrap();
            }
            assert!(down.bytes(1).await.is_empty(), "an orderly end");
            // The client closes its connection meanwhile.
            let stopped = tokio::task::spawn_blocking(move || stop.join().unwrap());
            assert_eq!(stopped.await.unwrap(), Ok(()));
        });
    }
}
