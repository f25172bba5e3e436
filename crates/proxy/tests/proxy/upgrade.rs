//! WebSocket and other protocols behind an answer of 101: a real server and a real client of Debian's
//! `python3-websockets`, nginx between, and plain sockets where every byte matters.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use crate::{
    certs::Ca,
    kit::{Client, Door, Message, Origin, Proxy, eventually, ok},
    nginx::Nginx,
};

/// Debian's own, for which its packages are.
const PYTHON: &str = "/usr/bin/python3";
const WANTS: [&str; 2] = ["connection: keep-alive, Upgrade", "upgrade: websocket"];

/// Says what it hears, in text and in bytes, and first the path and what it was told of the client.
const SERVER: &str = r#"
import asyncio, websockets
async def talk(socket, path):
    await socket.send(path + " " + socket.request_headers["X-Forwarded-Proto"])
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.serve(talk, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()
asyncio.run(main())
"#;

/// Talks to the URL of its first argument; where there is a second, that is the authority it trusts.
const CLIENT: &str = r#"
import asyncio, ssl, sys, websockets
async def main():
    trust = ssl.create_default_context(cafile=sys.argv[2]) if len(sys.argv) > 2 else None
    more = {"ssl": trust, "server_hostname": "test.example"} if trust else {}
    async with websockets.connect(sys.argv[1], max_size=None, compression=None, **more) as socket:
        print(await socket.recv())
        for size in [0, 1, 125, 126, 65535, 65536, 3000000]:
            text = "x" * size
            await socket.send(text)
            assert await socket.recv() == text
            data = bytes(n * 7 % 256 for n in range(size))
            await socket.send(data)
            assert await socket.recv() == data
        await asyncio.wait_for(await socket.ping(), 60)
    print("closed", socket.close_code)
asyncio.run(main())
"#;

/// A WebSocket server that ends with the test.
pub(crate) struct WebSockets(Child, pub(crate) SocketAddr);

impl WebSockets {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(PYTHON).args(["-c", SERVER]).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port: u16 = port.trim().parse().expect("python3-websockets is installed");
        Self(child, ([127, 0, 0, 1], port).into())
    }
}

impl Drop for WebSockets {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the client says.
fn talk(arguments: &[&str]) -> String {
    let output = Command::new(PYTHON).args(["-c", CLIENT]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An origin that switches, says `begun`, and says again what it hears.
fn echo() -> Origin {
    Origin::start(|request, stream| {
        let wants = [request.field("connection"), request.field("upgrade")];
        if wants[1].is_empty() {
            return ok(stream, "cache-control: max-age=60", b"no switch");
        }
        assert_eq!(wants, ["upgrade", "websocket"]);
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n";
        stream.write_all(format!("{head}content-length: 9\r\nx-own: yes\r\n\r\nbegun").as_bytes()).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..n]).unwrap();
        }
        false
    })
}

/// A client that has switched.
fn switched(proxy: &Proxy) -> Client {
    let mut client = proxy.client();
    client.write("GET", "/", &WANTS, b"");
    let head = client.read_head().unwrap();
    assert_eq!((head.status(), head.field("upgrade")), (101, "websocket"), "{head:?}");
    assert_eq!(client.read_bytes(5).unwrap(), b"begun");
    client
}

fn not_switched(reply: &Message) {
    assert_eq!((reply.status(), reply.text().as_str()), (200, "no switch"), "{reply:?}");
}

#[test]
fn a_websocket_goes_through() {
    let server = WebSockets::start();
    let log = tempfile::NamedTempFile::new().unwrap();
    let config = format!("[log]\nto = {:?}\nformat = \"json\"\n", log.path());
    let mut proxy = Proxy::before(&format!("http://{}", server.1), &config);
    for path in ["/one", "/two?q=1"] {
        assert_eq!(talk(&[&format!("ws://{}{path}", proxy.address)]), format!("{path} http\nclosed 1000\n"));
    }
    eventually("both are counted", || proxy.stats()["proxy"]["requests"]["tunnel"] == 2);
    proxy.stop().unwrap();
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let said = (&line["status"], &line["outcome"], &line["detail"]);
        assert_eq!(said, (&101.into(), &"tunnel".into(), &"upgrade".into()), "{line}");
        assert!(line["bytes"].as_u64() > Some(6_000_000), "what went to the client: {line}");
    }
}

#[test]
fn a_websocket_goes_by_tls_on_both_sides_and_through_nginx() {
    let (server, ca) = (WebSockets::start(), Ca::new());
    let issued = ca.issue(&["127.0.0.1"]);
    let nginx = Nginx::start_by(
        "reuseport ssl",
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; location / {{ proxy_pass http://{}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}",
            issued.file.display(),
            issued.key.display(),
            server.1
        ),
    );
    for http2 in [false, true] {
        let proxy = Proxy::start(&format!(
            "[tls]\nlisten = [\"127.0.0.1:0\"]\n{}[[origin]]\nurl = \"https://{}\"\nca = {:?}\nhttp2 = {http2}\n",
            ca.issue(&["test.example"]).table(),
            nginx.address,
            ca.file()
        ));
        let trusted = ca.file();
        let url = format!("wss://{}/x", proxy.by_tls.unwrap());
        assert_eq!(talk(&[&url, trusted.to_str().unwrap()]), "/x https\nclosed 1000\n", "HTTP/2 offered: {http2}");
    }
}

#[test]
fn what_a_client_sends_ahead_waits_for_the_switch() {
    let door = Door::default();
    let (closed, origin_heard) = (door.clone(), std::sync::Arc::new(std::sync::Mutex::new(None)));
    let heard = origin_heard.clone();
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/asked-last" {
            return ok(stream, "cache-control: no-store", b"");
        }
        closed.pass();
        stream.set_nonblocking(true).unwrap();
        let early = stream.peek(&mut [0]).map_err(|e| e.kind());
        *heard.lock().unwrap() = Some(early);
        stream.set_nonblocking(false).unwrap();
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut ahead = [0; 35];
        stream.read_exact(&mut ahead).unwrap();
        stream.write_all(&ahead).unwrap();
        false
    });
    let proxy = Proxy::before(&origin.url(), "workers = 1\n");
    let mut client = proxy.client();
    client.write("GET", "/", &WANTS, b"");
    let ahead = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    client.stream.write_all(ahead).unwrap();
    eventually("it is asked", || origin.count() == 1);
    // The one worker has gone round once more since the bytes came.
    proxy.client().get("/asked-last");
    door.open();
    assert_eq!(client.read_head().unwrap().status(), 101);
    assert_eq!(client.read_bytes(ahead.len()).unwrap(), ahead);
    assert_eq!(*origin_heard.lock().unwrap(), Some(Err(std::io::ErrorKind::WouldBlock)));
    assert_eq!(origin.count(), 2, "what was sent ahead is no request");
}

#[test]
fn what_does_not_switch_is_an_answer_that_is_not_stored_and_the_last_of_its_connection() {
    let origin = Origin::constant("cache-control: max-age=60", "no switch");
    let proxy = Proxy::before(&origin.url(), "");
    for round in 1..3 {
        let mut client = proxy.client();
        client.write("GET", "/", &WANTS, b"");
        client.stream.write_all(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let reply = client.read("GET").unwrap();
        not_switched(&reply);
        assert_eq!(reply.field("connection"), "close");
        assert_eq!(reply.cache(), "picaflor; fwd=bypass; fwd-status=200; detail=upgrade");
        assert!(client.read_head().is_none(), "nothing more is answered");
        assert_eq!(origin.count(), round);
    }
    not_switched(&proxy.get("/"));
    assert!(proxy.get("/").is_hit());
}

#[test]
fn only_what_may_switch_is_asked_to() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "[forward]\nenabled = true\n[[rule]]\npath = \"/off\"\nupgrade = []\n");
    let (connection, upgrade) = (WANTS[0], WANTS[1]);
    for (path, fields) in [
        ("/a", vec![upgrade]),
        ("/b", vec![connection, "upgrade: h2c"]),
        ("/c", vec![connection, "upgrade: other"]),
        ("/off", vec![connection, upgrade]),
    ] {
        not_switched(&proxy.get_with(path, &fields));
    }
    let mut client = proxy.client();
    not_switched(&client.send("GET", "/body", &WANTS, b"of a request"));
    not_switched(&proxy.client().send("POST", "/d", &WANTS, b""));
    not_switched(&proxy.client().send("GET", &format!("{}/e", origin.url()), &WANTS, b""));
    let mut old = proxy.client();
    old.stream
        .write_all(format!("GET /f HTTP/1.0\r\nHost: a\r\n{connection}\r\n{upgrade}\r\n\r\n").as_bytes())
        .unwrap();
    not_switched(&old.read("GET").unwrap());
    switched(&proxy);
}

#[test]
fn an_origin_that_switches_to_what_was_not_asked_for_has_failed() {
    for (connection, protocol) in [("upgrade", "h2c"), ("upgrade", "websocket, h2c"), ("close", "websocket")] {
        let origin = Origin::start(move |_, stream| {
            let head = format!("HTTP/1.1 101 x\r\nconnection: {connection}\r\nupgrade: {protocol}\r\n\r\n");
            stream.write_all(head.as_bytes()).is_ok()
        });
        let proxy = Proxy::before(&origin.url(), "");
        let reply = proxy.get_with("/", &WANTS);
        assert_eq!((reply.status(), reply.cache()), (502, "picaflor; detail=protocol"), "{protocol}");
    }
}

#[test]
fn the_head_of_a_switch_is_the_origins_with_what_rules_say() {
    let proxy =
        Proxy::before(&echo().url(), "[[rule]]\nresponse_set = { x-ruled = \"yes\" }\nreplace = { a = \"b\" }\n");
    let mut client = proxy.client();
    client.write("GET", "/", &WANTS, b"");
    let head = client.read_head().unwrap();
    let fields = ["connection", "upgrade", "x-own", "x-ruled", "content-length"].map(|name| head.field(name));
    assert_eq!(fields, ["upgrade", "websocket", "yes", "yes", ""], "{head:?}");
    assert_eq!(head.cache(), "picaflor; fwd=bypass; fwd-status=101; detail=upgrade");
    client.stream.write_all(b"aaa").unwrap();
    assert_eq!(client.read_bytes(8).unwrap(), b"begunaaa", "its bytes are not changed");
    let origin = Origin::constant("cache-control: max-age=60\ncontent-type: text/html", "a page");
    let proxy = Proxy::before(&origin.url(), "[[rule]]\nreplace = { page = \"leaf\" }\n");
    assert_eq!(proxy.get_with("/", &WANTS).text(), "a leaf", "what does not switch is changed as ever");
}

#[test]
fn a_tunnel_counts_for_its_client_and_its_origin_and_ends_in_silence() {
    let origin = echo();
    let proxy = Proxy::before(&origin.url(), "[limits]\norigin_connections = 1\norigin_waiting = 0\n");
    let held = switched(&proxy);
    let busy = proxy.get("/busy");
    assert_eq!((busy.status(), busy.cache()), (503, "picaflor; detail=origin-busy"));
    drop(held);
    eventually("its turn is over", || proxy.get("/free").status() == 200);
    let proxy = Proxy::before(&origin.url(), "[limits]\nconnections_per_client = 1\n");
    let held = switched(&proxy);
    assert!(proxy.client().read_head().is_none(), "closed");
    assert_eq!(proxy.stats()["proxy"]["denied"]["client-connections"], 1);
    drop(held);
    let proxy = Proxy::before(&origin.url(), "[limits]\ntunnel_timeout = \"200ms\"\n");
    assert_eq!(switched(&proxy).read_bytes(1).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

/// A quiet tunnel is no idle connection.
#[test]
fn a_tunnel_whose_client_takes_nothing_is_ended_and_a_quiet_one_is_not() {
    let origin = Origin::start(|request, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nbegun";
        stream.write_all(head.as_bytes()).unwrap();
        match request.path() {
            "/much" => while stream.write_all(&[b'x'; 65536]).is_ok() {},
            _ => drop(stream.read(&mut [0])),
        }
        false
    });
    let config = "[limits]\nsend_timeout = \"1s\"\nidle_timeout = \"1s\"\nheader_timeout = \"1s\"\n";
    let proxy = Proxy::before(&origin.url(), config);
    let mut quiet = switched(&proxy);
    let mut client = proxy.client();
    client.write("GET", "/much", &WANTS, b"");
    assert_eq!(client.read_head().unwrap().status(), 101);
    let counted = |what: &str| proxy.stats()["proxy"][what].as_u64().unwrap();
    eventually("it is closed", || counted("connections_closed") == 1);
    assert_eq!(counted("connections_timed_out"), 1);
    std::io::copy(&mut client.stream, &mut std::io::sink()).unwrap_or_default();
    quiet.stream.write_all(b"x").unwrap();
    assert_eq!(quiet.read_bytes(1).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof, "its origin has ended");
    drop(quiet);
    eventually("the other has ended by itself", || counted("connections_closed") == 2);
    assert_eq!(counted("connections_timed_out"), 1);
}

#[test]
fn a_stop_lets_a_tunnel_end_and_ends_it_when_the_time_is_over() {
    let origin = echo();
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = || std::fs::read_to_string(log.path()).unwrap().lines().count();
    let config = |drain| format!("[limits]\ndrain = \"{drain}\"\n[log]\nto = {:?}\n", log.path());
    let mut proxy = Proxy::before(&origin.url(), &config("60s"));
    let mut client = switched(&proxy);
    let stop = std::thread::spawn(move || proxy.stop().map(|()| proxy));
    client.stream.write_all(b"on").unwrap();
    assert_eq!(client.read_bytes(2).unwrap(), b"on");
    drop(client);
    stop.join().unwrap().unwrap();
    assert_eq!(lines(), 1);
    let mut proxy = Proxy::before(&origin.url(), &config("100ms"));
    let mut client = switched(&proxy);
    proxy.stop().unwrap();
    assert_eq!(client.read_bytes(1).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof, "an orderly end");
    assert_eq!(lines(), 2, "its line is there");
}
