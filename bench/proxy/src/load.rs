//! The load: connections kept alive, 64 mostly, from a thread on a core of its own, each asking again as soon as it has
//! been answered. It does as little as a client can, so that the core that runs out of breath is the server's: wrk,
//! which needs a Lua script to ask for many paths, was spent before the faster servers were.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    unistd::Pid,
};

const CONNECTIONS: usize = 64;
/// As many answers are looked for at a time.
const EVENTS: usize = 256;
/// Longer silence than this is a failure, not a slow answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the clients saw.
pub(crate) struct Load {
    /// Requests answered.
    pub(crate) requests: f64,
    /// The same per second.
    pub(crate) rate: f64,
    /// The slowest of a hundred, in milliseconds.
    pub(crate) p99: f64,
}

/// What is asked, and what an answer to it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Fields beside `Host`, as lines.
    pub(crate) fields: &'static str,
    /// Of the answer.
    pub(crate) status: &'static str,
    /// The server ends the connection behind it.
    pub(crate) is_last: bool,
    /// So many ask.
    pub(crate) connections: usize,
}

impl Question {
    /// A hit, and nothing else said.
    pub(crate) const PLAIN: Self = Self { fields: "", status: "200", is_last: false, connections: CONNECTIONS };
}

/// Asks for these paths in no order for a while, or each once, while there are some.
pub(crate) fn run(
    address: SocketAddr,
    (paths, once): (&[String], bool),
    question: Question,
    time: Duration,
    core: usize,
) -> Result<Load> {
    let ask = || -> Result<Load> {
        let mut cores = CpuSet::new();
        cores.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &cores).with_context(|| format!("core {core}"))?;
        ask(address, (paths, once), question, time)
    };
    thread::scope(|scope| scope.spawn(ask).join().expect("the load panicked"))
}

fn ask(address: SocketAddr, (paths, once): (&[String], bool), question: Question, time: Duration) -> Result<Load> {
    let fields = question.fields;
    let form = |path: &String| format!("GET {path} HTTP/1.1\r\nHost: bench.example\r\n{fields}\r\n").into_bytes();
    let requests: Vec<_> = paths.iter().map(form).collect();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut order = if once { Order::Once(0) } else { Order::Random(0x9e37_79b9_7f4a_7c15) };
    let mut clients = (0..question.connections).map(|_| Client::connect(address)).collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    for (number, client) in clients.iter_mut().enumerate() {
        epoll.add(&client.stream, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
        client.ask(&requests, &mut order)?;
    }
    let mut buffer = vec![0; 256 << 10];
    let mut events = [EpollEvent::empty(); EVENTS];
    let mut micros = Vec::with_capacity(1 << 20);
    while begin.elapsed() < time {
        let ready = epoll.wait(&mut events, EpollTimeout::try_from(PATIENCE)?)?;
        ensure!(ready > 0, "no answer for {} s", PATIENCE.as_secs());
        for event in &events[..ready] {
            let client = &mut clients[event.data() as usize];
            if !client.read(&mut buffer, &paths[client.path], question.status)? {
                continue;
            }
            micros.push(u32::try_from(client.asked.elapsed().as_micros())?);
            if question.is_last {
                *client = Client::connect(address)?;
                epoll.add(&client.stream, EpollEvent::new(EpollFlags::EPOLLIN, event.data()))?;
            }
            client.ask(&requests, &mut order)?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    micros.sort_unstable();
    let slow = micros.get(micros.len() * 99 / 100).context("nothing was answered")?;
    let requests = micros.len() as f64;
    Ok(Load { requests, rate: requests / seconds, p99: f64::from(*slow) / 1e3 })
}

struct Client {
    stream: TcpStream,
    asked: Instant,
    path: usize,
    /// The beginning of an answer, until its head is complete.
    head: Vec<u8>,
    /// Bytes of the body still to come, once the head is there.
    left: Option<usize>,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, asked: Instant::now(), path: 0, head: Vec::new(), left: None })
    }

    fn ask(&mut self, requests: &[Vec<u8>], order: &mut Order) -> Result<()> {
        self.path = order.next(requests.len());
        self.asked = Instant::now();
        // A hundred bytes always fit in the buffer of a socket whose other side waits for them.
        Ok(self.stream.write_all(&requests[self.path])?)
    }

    /// Reads what is there; true when the answer is complete.
    fn read(&mut self, buffer: &mut [u8], path: &str, status: &str) -> Result<bool> {
        let n = match self.stream.read(buffer) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(n) => n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let left = match self.left {
            Some(left) => left.checked_sub(n),
            None if self.head.is_empty() => {
                let left = begin(&buffer[..n], path, status)?;
                if left.is_none() {
                    self.head.extend_from_slice(&buffer[..n]);
                    return Ok(false);
                }
                left
            }
            None => {
                self.head.extend_from_slice(&buffer[..n]);
                let left = begin(&self.head, path, status)?;
                if left.is_none() {
                    return Ok(false);
                }
                self.head.clear();
                left
            }
        };
        let left = left.context("more bytes than were announced")?;
        self.left = (left > 0).then_some(left);
        Ok(left == 0)
    }
}

/// Looks at the beginning of an answer: how much of the body is still to come; `None` if the head is not complete. What
/// is there of the body must be what the origin says for this path.
fn begin(bytes: &[u8], path: &str, status: &str) -> Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end])?;
    ensure!(head.get(9..12) == Some(status), "not every answer was a success:\n{head}");
    if status == "304" {
        return Ok(Some(0));
    }
    let length = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    let length: usize = head.split("\r\n").find_map(length).with_context(|| format!("no length:\n{head}"))?;
    let body = &bytes[end + 4..];
    let known = body.len().min(path.len()).min(length);
    ensure!(body[..known] == path.as_bytes()[..known], "{path}: the body of something else");
    Ok(Some(length.checked_sub(body.len()).context("more bytes than were announced")?))
}

/// In which order paths are asked for.
enum Order {
    /// In none, the same in every run: Marsaglia's xorshift.
    Random(u64),
    /// One after the other, so that none is asked for again before all were.
    Once(usize),
}

impl Order {
    fn next(&mut self, of: usize) -> usize {
        match self {
            Self::Random(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                (*state % of as u64) as usize
            }
            Self::Once(next) => {
                *next += 1;
                (*next - 1) % of
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::begin;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n/10/a /10/";
        assert_eq!(begin(answer, "/10/a", "200").unwrap(), Some(0));
        assert_eq!(begin(&answer[..answer.len() - 4], "/10/a", "200").unwrap(), Some(4));
        assert_eq!(begin(&answer[..20], "/10/a", "200").unwrap(), None);
        assert!(begin(answer, "/10/b", "200").is_err(), "another body");
        assert!(begin(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n", "/10/a", "200").is_err(), "an error");
        assert!(
            begin(&answer[..39], "/10/a", "200").is_ok()
                && begin(&[&answer[..], b"x"].concat(), "/10/a", "200").is_err()
        );
    }
}
