//! The proxy of the example as a process of its own, and requests to it.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use doors_kit::{Origin, eventually, example};

/// The example, as a process.
pub(crate) struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) fn start(origin: &Origin, store: &Path, more: &[&str]) -> Self {
        let child = Command::new(example("proxy"))
            .args(["127.0.0.1:0", &origin.address.to_string()])
            .arg(store)
            .args(more)
            .env("RUST_LOG", "picaflor_pingora=info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = eventually("the proxy listens", || listens_at(child.id()));
        Self { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// A request with more header lines, each with its end; reads the answer as far as it comes.
    pub(crate) fn ask(&self, method: &str, path: &str, more: &str) -> Answer {
        let mut stream = self.send(method, path, more);
        let mut all = Vec::new();
        // A response that breaks off may end by a reset.
        let _ = stream.read_to_end(&mut all);
        Answer::read(&all)
    }

    pub(crate) fn send(&self, method: &str, path: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "{method} /{path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{more}\r\n").unwrap();
        stream
    }

    /// As by `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and returns when it says that all is durable.
    pub(crate) fn ask_to_end(&mut self) {
        let stderr = self.child.stderr.take().unwrap();
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        let said = BufReader::new(stderr).lines().map_while(Result::ok).find(|line| line.contains("is durable"));
        assert!(said.is_some());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a process listens, by the kernel's tables.
fn listens_at(pid: u32) -> Option<SocketAddr> {
    let sockets: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_its = fields.get(3) == Some(&"0A") && sockets.contains(&format!("socket:[{}]", fields.get(9)?));
        let port = u16::from_str_radix(fields.get(1)?.split(':').nth(1)?, 16).ok()?;
        is_its.then(|| SocketAddr::from(([127, 0, 0, 1], port)))
    })
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn read(all: &[u8]) -> Self {
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(all.len());
        let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
        Self { head, body: all.get(end + 4..).unwrap_or_default().to_vec() }
    }

    pub(crate) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn cache(&self) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix("x-cache: ")).unwrap_or_default()
    }
}
