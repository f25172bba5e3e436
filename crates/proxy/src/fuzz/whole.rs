//! A proxy with its store, an origin and real sockets: what the fast path answers, the slow path answers alike.

use std::{
    io::{Read, Write},
    mem::MaybeUninit,
    net::{SocketAddr, TcpListener, TcpStream},
    process,
    sync::LazyLock,
    thread,
    time::Duration,
};

use crate::{
    config::Low,
    fast::seen::{Judged, MOST_FIELDS, judge},
    server::Server,
};

/// Some of what an origin says of its answers, by the first letter of the path.
fn said(path: &str) -> &'static str {
    match path.as_bytes().get(1) {
        Some(b'v') => "cache-control: max-age=1000\r\nvary: accept, x-a\r\n",
        Some(b's') => "cache-control: max-age=0\r\netag: \"1\"\r\n",
        Some(b'n') => "cache-control: no-store\r\n",
        Some(b'g') => "cache-control: max-age=1000\r\netag: \"2\"\r\nlast-modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n",
        _ => "cache-control: max-age=1000\r\n",
    }
}

/// One connection of an origin, which answers with what it was asked for.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            bytes.drain(..end + 4);
            let mut words = head.split(' ');
            let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let accepted = head.to_ascii_lowercase();
            let chosen = accepted.lines().find(|line| line.starts_with("x-a:")).unwrap_or("");
            let body = format!("{path} {chosen}");
            let fields = said(path);
            let head = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes())?;
            if method != "HEAD" {
                stream.write_all(body.as_bytes())?;
            }
        }
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The proxy, never stopped, in front of an origin of this process. Its folder has no name any more.
static PROXY: LazyLock<(Server, SocketAddr)> = LazyLock::new(|| {
    let origin = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = origin.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in origin.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    let folder = std::env::temp_dir().join(format!("picaflor-fuzz-proxy-{}", process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the store");
    let text = format!("workers = 1\n[[origin]]\nurl = \"http://{address}\"\n");
    let mut low = Low::parse("fuzz.toml", &text).expect("a configuration");
    low.listen = Some(vec![([127, 0, 0, 1], 0).into()]);
    low.admin.listen = Some(([127, 0, 0, 1], 0).into());
    low.store.path = Some(folder.join("store"));
    low.store.capacity = "256MiB".parse().ok();
    low.store.memory = "64MiB".parse().ok();
    let server = Server::start(low.resolve().expect("it can be")).expect("a proxy");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let address = server.addresses()[0];
    (server, address)
});

/// What comes back for these bytes until the proxy has no more to say.
fn sent(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(PROXY.1).expect("the proxy listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream.write_all(bytes).expect("it takes a head");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer, and the end of the connection");
    answer
}

/// Status line, fields in their order without those that time changes, and body.
fn essence(answer: &[u8]) -> (String, Vec<String>, Vec<u8>) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let changing = ["age:", "date:", "cache-status:"];
    let mut fields: Vec<_> = lines.filter(|line| !changing.iter().any(|name| line.starts_with(name))).collect();
    // hyper says this to a client of HTTP/1.0 that wants to keep the connection, and closes it.
    fields
        .iter_mut()
        .filter(|line| **line == "connection: close, keep-alive")
        .for_each(|line| *line = "connection: close");
    fields.sort_unstable();
    (first, fields.into_iter().map(str::to_owned).collect(), answer[end..].to_vec())
}

/// A head that the fast path may answer is sent as it is, and once more with a field that means nothing but keeps it
/// from the fast path. The first of three fills the store.
pub(super) fn proxy(bytes: &[u8]) {
    let mut fields = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; MOST_FIELDS];
    let Judged::Plain(plain) = judge(bytes, &mut fields) else { return };
    if plain.fields.len() == MOST_FIELDS {
        return;
    }
    let head = &bytes[..plain.len];
    let first = head.iter().position(|b| *b == b'\n').expect("a head has lines") + 1;
    // Empty lines may stand before the request.
    if head[..first].trim_ascii().is_empty() {
        return;
    }
    let slow = [&head[..first], b"connection: x\r\n", &head[first..]].concat();
    sent(&slow);
    let (fast, slow) = (essence(&sent(head)), essence(&sent(&slow)));
    assert_eq!(fast, slow, "{}", String::from_utf8_lossy(head));
}
