//! What tests of several doors need: a real nginx as origin.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Waits for an event that must come; a minute is for machines that are busy.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "it did not come: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that do not repeat, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
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
pub struct Origin {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    folder: TempDir,
}

impl Origin {
    /// Starts it on a port of its own.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Held, but not listened at, until nginx has it too: no other process gets the port in between.
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

    /// Makes a file, or changes it.
    pub fn file(&self, name: &str, body: &[u8]) {
        std::fs::write(self.folder.path().join("www").join(name), body).unwrap();
        // The worker may be another user.
        Command::new("chmod").args(["-R", "a+rX"]).arg(self.folder.path()).status().unwrap();
    }

    /// The statuses that it answered for this path, once there are so many; nginx writes its log behind its answers.
    pub fn answers(&self, path: &str, times: usize) -> Vec<String> {
        let seen = || {
            let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            let of_path = log.lines().filter(|line| line.contains(&format!(" /{path} HTTP")));
            of_path.filter_map(|line| Some(line.split('"').nth(2)?.split_whitespace().next()?.into())).collect()
        };
        eventually("the request is in the log", || Some(seen()).filter(|seen: &Vec<_>| seen.len() >= times));
        seen()
    }

    /// Kills what serves; the master starts another.
    pub fn kill_worker(&self) {
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

/// The program of an example of the crate under test, which `cargo test` has built.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}
