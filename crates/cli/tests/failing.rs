//! A store that stops writing while the real binary serves from it: no request fails, and nothing invalid is served.
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
};

/// Answers GET with the version that POST has made, and `len` bytes more.
fn origin(len: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let version = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let version = version.clone();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut first = String::new();
                while let Some(Ok(line)) = lines.next() {
                    if first.is_empty() {
                        first = line;
                    } else if line.is_empty() {
                        let is_post = std::mem::take(&mut first).starts_with("POST");
                        let version = version.fetch_add(usize::from(is_post), SeqCst);
                        let body = if is_post { String::new() } else { format!("{version} {}", "x".repeat(len)) };
                        let head =
                            format!("cache-control: max-age=600\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        if write!(stream, "HTTP/1.1 200 OK\r\n{head}").is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One request on a connection of its own: head, and body up to the first blank.
fn ask(address: &str, method: &str, path: &str, field: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{field}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    (head.to_owned(), body.split(' ').next().unwrap_or_default().to_owned())
}

const TOKEN: &str = "0123456789abcdef";

fn start(folder: &Path, origin: SocketAddr) -> (Serve, String, String) {
    // Blank, and as long as it is to be; but no more than a few megabytes of it can be written.
    std::fs::File::create(folder.join("picaflor.store")).unwrap().set_len(64 << 20).unwrap();
    let binary = env!("CARGO_BIN_EXE_picaflor");
    let addresses = "--listen 127.0.0.1:0 --admin 127.0.0.1:0";
    let text = format!(
        "trap '' XFSZ; ulimit -f 8192; exec {binary} serve {addresses} --origin http://{origin} --token {TOKEN} \
         --capacity 64MiB --memory 64MiB --workers 1"
    );
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", &text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut listen, mut admin) = (String::new(), String::new());
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some(address) = line.strip_prefix("listen   ") {
            listen = address.to_owned();
        }
        if let Some(address) = line.strip_prefix("admin    ") {
            admin = address.to_owned();
        }
        if line.contains("Cache-Status") {
            break;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    (Serve(child), listen, admin)
}

#[test]
fn what_is_invalid_is_not_served_though_the_store_cannot_delete_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut serve, listen, admin) = start(folder.path(), origin(300_000));
    let said = BufReader::new(serve.0.stderr.take().unwrap());
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let get = |path: &str| ask(&listen, "GET", path, "");
    let is_hit = |(head, _): &(String, String)| head.contains("cache-status: picaflor; hit");
    for path in ["/posted", "/purged", "/kept"] {
        // Stored a moment after the first answer's end.
        assert!((0..500).any(|_| is_hit(&get(path))), "{path}");
    }
    let mut n = 0;
    let mut lines = said.lines().map_while(Result::ok);
    let told = std::thread::spawn(move || lines.find(|line| line.contains("takes no more writes")));
    while !told.is_finished() {
        n += 1;
        assert!(n < 2000, "it never stops writing, or never says so");
        let (head, version) = get(&format!("/{n}"));
        assert!(head.starts_with("HTTP/1.1 200") && version == "0", "{head}");
        std::thread::sleep(std::time::Duration::from_millis(if n > 100 { 50 } else { 0 }));
    }
    assert!(told.join().unwrap().is_some(), "it says so by itself");
    let kept: Vec<bool> = ["/posted", "/purged", "/kept"].iter().map(|path| is_hit(&get(path))).collect();
    assert_eq!(kept, [true; 3], "what it has is served");
    assert!(ask(&listen, "POST", "/posted", "Content-Length: 0\r\n").0.starts_with("HTTP/1.1 200"));
    for _ in 0..2 {
        let answer = get("/posted");
        assert!(!is_hit(&answer) && answer.1 == "1", "{answer:?}");
    }
    let (head, _) = ask(&admin, "POST", &format!("/purge?url=http://{listen}/purged"), &token);
    assert!(head.starts_with("HTTP/1.1 500"), "{head}");
    let answer = get("/purged");
    assert!(!is_hit(&answer) && answer.1 == "1", "{answer:?}");
    assert!(is_hit(&get("/kept")));
}
