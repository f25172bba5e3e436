//! The origin that all proxies fetch from. It counts what it is asked: a hit leaves the count alone.
//!
//! A path begins with the size of the body, `/4096/...`. The body repeats the path, so that an answer for another
//! object would be noticed. What lies under `/4096/once/` may not be stored.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// A running origin; it lives as long as the program.
pub(crate) struct Origin {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl Origin {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                // A client that goes away is no news.
                thread::spawn(move || drop(serve(&client, &count)));
            }
        });
        Ok(Self { address, asked })
    }

    /// Requests answered so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The body of a path.
pub(crate) fn body(path: &str) -> Vec<u8> {
    let size = path.split('/').nth(1).and_then(|size| size.parse().ok()).unwrap_or(0);
    path.bytes().chain([b' ']).cycle().take(size).collect()
}

fn serve(client: &TcpStream, asked: &AtomicU64) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut reader = BufReader::new(client);
    let mut writer = client;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::from("-");
        while !header.trim().is_empty() {
            header.clear();
            reader.read_line(&mut header)?;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        let path = request.split(' ').nth(1).unwrap_or("/");
        let (body, control) = (body(path), if path.contains("/once/") { "no-store" } else { "public, max-age=86400" });
        let mut response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\nCache-Control: {control}\r\n\
             ETag: \"1\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n",
            body.len()
        )
        .into_bytes();
        response.extend_from_slice(&body);
        writer.write_all(&response)?;
    }
}
