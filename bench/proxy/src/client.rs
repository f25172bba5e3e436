//! A client that fetches every object once and looks at what it gets: it fills the caches before they are measured.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::origin;

/// One connection, kept alive.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn get(&mut self, path: &str) -> Result<()> {
        self.stream.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: bench.example\r\n\r\n").as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200"), "{path}: {line:?}");
        let mut length = None;
        while !line.trim().is_empty() {
            line.clear();
            self.stream.read_line(&mut line)?;
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
        }
        let mut body = vec![0; length.with_context(|| format!("{path}: no length"))?];
        self.stream.read_exact(&mut body)?;
        ensure!(body == origin::body(path), "{path}: the body of something else");
        Ok(())
    }
}

/// Fetches and compares every path, from a few connections at once.
pub(crate) fn fetch_all(address: SocketAddr, paths: &[String]) -> Result<()> {
    let chunk = paths.len().div_ceil(8).max(1);
    std::thread::scope(|scope| {
        let fetch = |part: &[String]| -> Result<()> {
            let mut client = Client::connect(address)?;
            part.iter().try_for_each(|path| client.get(path))
        };
        let threads: Vec<_> = paths.chunks(chunk).map(|part| scope.spawn(move || fetch(part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a client panicked"))
    })
}
