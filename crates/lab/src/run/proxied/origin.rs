//! The origin: answers `GET /KEY` with the body of that object, and says whether it may be cached.
//!
//! A thread for each connection, each until the other end closes it: a proxy keeps a few dozen.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use super::{client::PATIENCE, terms::ANY_PORT};
use crate::{run::bodies::Bodies, synth::Polygraph, trace::Request};

/// Longest line of a request's head.
const LINE: u64 = 16 << 10;

struct Shared {
    model: Polygraph,
    asked: AtomicU64,
    stopped: AtomicBool,
}

pub(super) struct Origin {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: JoinHandle<()>,
}

impl Origin {
    pub(super) fn listen(model: Polygraph) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(ANY_PORT))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { model, asked: AtomicU64::new(0), stopped: AtomicBool::new(false) });
        let all = Arc::clone(&shared);
        let accept = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if all.stopped.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&all);
                // A connection that breaks is the proxy's to tell of.
                thread::spawn(move || shared.serve(&stream));
            }
        };
        Ok(Self { shared, address, listener: thread::spawn(accept) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections; how many requests there were.
    pub(super) fn stop(self) -> u64 {
        self.shared.stopped.store(true, Relaxed);
        // It waits for a connection: this is the last one.
        if TcpStream::connect(self.address).is_ok() {
            drop(self.listener.join());
        }
        self.shared.asked.load(Relaxed)
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let (mut input, mut output) = (BufReader::new(stream), stream);
        let mut bodies = Bodies::default();
        while let Some(key) = asked(&mut input)? {
            self.asked.fetch_add(1, Relaxed);
            let (cacheable, size) = self.model.object(key);
            let control = if cacheable { "public, max-age=86400" } else { "no-store" };
            let mut answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: {control}\r\n\
                 Content-Length: {size}\r\n\r\n"
            )
            .into_bytes();
            answer.extend_from_slice(bodies.of(&Request { key, size, ..Request::default() }));
            output.write_all(&answer)?;
        }
        Ok(())
    }
}

/// The key that the next request asks for; none, if there is no more that is understood.
fn asked(input: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut key = None;
    loop {
        let mut line = Vec::new();
        io::Read::take(&mut *input, LINE).read_until(b'\n', &mut line)?;
        match (line.trim_ascii_end(), key) {
            (b"", found) => return Ok(found),
            (line, None) => {
                let path = line.split(|byte| *byte == b' ').nth(1).and_then(|path| path.strip_prefix(b"/"));
                key = path.and_then(|path| u64::from_str_radix(std::str::from_utf8(path).ok()?, 16).ok());
                if key.is_none() {
                    return Ok(None);
                }
            }
            (_, Some(_)) => {}
        }
    }
}
