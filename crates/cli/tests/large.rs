//! A body of 200 MB through the real binary: byte by byte the same, in bounded memory, whole or a part, before and
//! after `kill -9`.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

const LEN: u64 = 200_000_000;

/// The byte at a place of the body.
fn byte(at: u64) -> u8 {
    ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 56) as u8
}

fn origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    if !line.is_empty() {
                        continue;
                    }
                    seen.fetch_add(1, SeqCst);
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\ncontent-length: {LEN}\r\n\r\n");
                    stream.write_all(head.as_bytes()).unwrap();
                    let mut at = 0;
                    while at < LEN {
                        let end = (at + (1 << 16)).min(LEN);
                        let piece: Vec<u8> = (at..end).map(byte).collect();
                        if stream.write_all(&piece).is_err() {
                            return;
                        }
                        at = end;
                    }
                }
            });
        }
    });
    (address, count)
}

struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    fn start(folder: &Path, origin: SocketAddr) -> Self {
        let text = "workers = 2\nlisten = [\"127.0.0.1:0\"]\n[store]\ncapacity = \"1GiB\"\nmemory = \"64MiB\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n[cache]\nmax_object = \"250MiB\"\nrange_whole_max = \"250MiB\"\n";
        std::fs::write(folder.join("p.toml"), format!("{text}[[origin]]\nurl = \"http://{origin}\"\n")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_picaflor"))
            .current_dir(folder)
            .args(["serve", "--config", "p.toml"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("listen   ")?.to_owned())).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Asks for the body or a part of it, checks every byte, and returns the `Cache-Status`.
    fn get(&self, range: Option<(u64, u64)>) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let field = range.map(|(first, last)| format!("Range: bytes={first}-{last}\r\n")).unwrap_or_default();
        write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{field}\r\n").unwrap();
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let mut status = String::new();
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            status = line.strip_prefix("cache-status: ").map_or(status, |value| value.trim().to_owned());
            line.clear();
        }
        let (first, last) = range.unwrap_or((0, LEN - 1));
        let mut at = first;
        let mut piece = vec![0; 1 << 16];
        loop {
            let n = match reader.read(&mut piece) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                done => done.unwrap(),
            };
            if n == 0 {
                break;
            }
            assert!(piece[..n].iter().enumerate().all(|(i, b)| *b == byte(at + i as u64)), "wrong bytes at {at}");
            at += n as u64;
        }
        assert_eq!(at, last + 1, "the body ends where it should");
        status
    }

    /// The most memory it ever had resident.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_large_body_streams_in_bounded_memory_and_survives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, count) = origin();
    let mut serve = Serve::start(folder.path(), origin);
    assert_eq!(serve.get(None), "picaflor; fwd=uri-miss; fwd-status=200; stored");
    let mut status = serve.get(None);
    for _ in 0..50 {
        if status.contains("hit") {
            break;
        }
        status = serve.get(Some((0, 0)));
    }
    assert!(status.starts_with("picaflor; hit"), "{status}");
    assert_eq!(count.load(SeqCst), 1);
    let middle = (LEN / 2 - 100_000, LEN / 2 + 100_000);
    assert!(serve.get(Some(middle)).starts_with("picaflor; hit"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve.get(None));
        }
    });
    // 64 MiB for the store, the rest for the program, its sockets and what is on its way.
    assert!(serve.peak() < 160 << 20, "{} MiB", serve.peak() >> 20);
    std::thread::sleep(Duration::from_millis(1500));
    serve.child.kill().unwrap();
    serve.child.wait().unwrap();
    let again = Serve::start(folder.path(), origin);
    assert!(again.get(None).starts_with("picaflor; hit"), "warm after a crash");
    assert_eq!(count.load(SeqCst), 1);
    assert!(again.peak() < 160 << 20, "{} MiB", again.peak() >> 20);
}
