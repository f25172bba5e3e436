//! The clients: each asks, waits for the answer, compares it, and asks again, on a connection that it keeps.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::terms::{Proxied, Served, wrong};
use crate::{Result, run::bodies::Bodies, trace::Request};

/// How long a client waits at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a client counted.
#[derive(Default)]
struct Counted {
    requests: u64,
    hits: u64,
    bytes: u64,
    waited: Duration,
}

/// Asks the proxy for as long as the test says.
pub(super) fn ask(test: &Proxied, proxy: SocketAddr) -> Result<Served> {
    let requests = Mutex::new(test.model.requests(test.seed).take(test.most.unwrap_or(usize::MAX)));
    let begin = Instant::now();
    let client = || {
        let mut counted = Counted::default();
        let mut connection = Connection::open(proxy)?;
        while begin.elapsed() < test.time {
            let Some(request) = requests.lock().next() else { break };
            let asked = Instant::now();
            let hit = connection.get(&request)?;
            counted.waited += asked.elapsed();
            counted.requests += 1;
            counted.hits += u64::from(hit);
            counted.bytes += request.size;
        }
        Ok(counted)
    };
    let all: io::Result<Vec<Counted>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..test.connections.max(1)).map(|_| scope.spawn(client)).collect();
        let gone = |_| io::Error::other("a client ended");
        clients.into_iter().map(|client| client.join().map_err(gone).flatten()).collect()
    });
    let all = all.map_err(wrong)?;
    let seconds = begin.elapsed().as_secs_f64();
    let sum = |of: fn(&Counted) -> u64| all.iter().map(of).sum::<u64>();
    let requests = sum(|one| one.requests);
    let each = |sum: f64| if requests > 0 { sum / requests as f64 } else { 0.0 };
    Ok(Served {
        requests,
        seconds,
        per_second: requests as f64 / seconds,
        hit_ratio: each(sum(|one| one.hits) as f64),

        mean_bytes: each(sum(|one| one.bytes) as f64),
        mean_ms: each(all.iter().map(|one| one.waited.as_secs_f64() * 1e3).sum()),
        ..Served::default()
    })
}

/// What the admin listener of a proxy tells.
pub(super) fn stats(admin: SocketAddr, token: &str) -> io::Result<Vec<u8>> {
    let mut connection = Connection::open(admin)?;
    let head = connection.ask("stats", &format!("Authorization: Bearer {token}\r\n"))?;
    if head.status == "200" { Ok(connection.body) } else { Err(io::Error::other(format!("/stats: {}", head.status))) }
}

struct Connection {
    /// Whom it asks.
    server: SocketAddr,
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

/// What a client has to know of an answer's head.
#[derive(Default)]
struct Head {
    status: String,
    length: usize,
    hit: bool,
}

impl Connection {
    fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { server, stream: BufReader::new(stream), body: Vec::new() })
    }

    /// Asks for an object; whether the proxy had it.
    fn get(&mut self, request: &Request) -> io::Result<bool> {
        let head = self.ask(&format!("{:x}", request.key), "")?;
        if head.status != "200" || !Bodies::is_of(request, &self.body) {
            let why = format!("/{:x}: status {}, {} bytes, not those", request.key, head.status, head.length);
            return Err(io::Error::other(why));
        }
        Ok(head.hit)
    }

    /// Asks for a path, and reads the answer.
    fn ask(&mut self, path: &str, fields: &str) -> io::Result<Head> {
        let text = format!("GET /{path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.server);
        self.stream.get_mut().write_all(text.as_bytes())?;
        let head = self.head()?;
        self.body.resize(head.length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(head)
    }

    fn head(&mut self) -> io::Result<Head> {
        let (mut head, mut line) = (Head::default(), String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = line.trim_end().split_once([':', ' ']) else { return Ok(head) };
            match name.to_ascii_lowercase().as_str() {
                "http/1.1" => head.status = value.split(' ').next().unwrap_or_default().to_owned(),
                "content-length" => head.length = value.trim().parse().map_err(io::Error::other)?,
                "cache-status" => head.hit = value.split(';').any(|part| part.trim() == "hit"),
                _ => {}
            }
        }
    }
}
