//! A real nginx as origin, the proxy of the example as a process of its own, and requests to it.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Waits for an event that must come; a minute is for machines that are busy.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "it did not come: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..len).map(|_| step(&mut state)).collect()
}

/// nginx with a folder of files that are fresh for ten minutes; a request with `X-Slow` gets 500 KB a second.
pub(crate) struct Origin {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Held, but not listened at, until nginx has it too: nobody else gets the port in between.
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.set_reuse_port(true).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = held.local_addr().unwrap().as_socket().unwrap();
        let place = folder.path().display();
        std::fs::create_dir(folder.path().join("www")).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .collect();
        let text = format!(
            "daemon off; pid {place}/pid; error_log {place}/error.log; worker_processes 1;\n\
             events {{}}\nhttp {{ access_log {place}/access.log; {temporary}\n\
             map $http_x_slow $pace {{ default 0; 1 500k; }}\n\
             server {{ listen {address} reuseport; root {place}/www; limit_rate $pace;\n\
             add_header Cache-Control max-age=600; }} }}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        eventually("nginx listens", || TcpStream::connect(address).ok());
        Self { child, address, folder }
    }

    pub(crate) fn file(&self, name: &str, body: &[u8]) {
        std::fs::write(self.folder.path().join("www").join(name), body).unwrap();
        // The worker may be another user.
        Command::new("chmod").args(["-R", "a+rX"]).arg(self.folder.path()).status().unwrap();
    }

    /// The statuses that it answered for this path, once there are so many; nginx writes its log behind its answers.
    pub(crate) fn answers(&self, path: &str, times: usize) -> Vec<String> {
        let seen = || {
            let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            let of_path = log.lines().filter(|line| line.contains(&format!(" /{path} HTTP")));
            of_path.filter_map(|line| Some(line.split('"').nth(2)?.split_whitespace().next()?.into())).collect()
        };
        eventually("the request is in the log", || Some(seen()).filter(|seen: &Vec<_>| seen.len() >= times));
        seen()
    }

    /// Kills what serves; the master starts another.
    pub(crate) fn kill_worker(&self) {
        let master = self.child.id();
        let children = format!("/proc/{master}/task/{master}/children");
        let workers = std::fs::read_to_string(children).unwrap();
        Command::new("kill").arg("-9").args(workers.split_whitespace()).status().unwrap();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // TERM to the master, which ends its worker.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// The example, as a process.
pub(crate) struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) fn start(origin: &Origin, store: &Path, more: &[&str]) -> Self {
        let child = Command::new(example())
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

fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples/proxy")
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
