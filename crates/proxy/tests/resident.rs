//! Memory as the system counts it. One test, alone in its process, for the count is the process's; what takes little is
//! first, for it would find room in what the other leaves to the allocator.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

#[allow(dead_code)]
#[path = "proxy/kit.rs"]
mod kit;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use kit::{Origin, Proxy, eventually, ok};

/// The last bytes of every body.
const END: &[u8] = b"the end";

/// Bytes of memory of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4096
}

/// A GET on a connection of which nothing is kept but the socket.
fn get(stream: &mut TcpStream, path: &str, fields: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.ends_with(END) {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..n]);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn memory_is_taken_as_far_as_it_was_allowed() {
    connections_that_wait_take_little_and_give_it_back();
    small_objects_take_the_memory_that_was_allowed_and_little_more();
}

fn connections_that_wait_take_little_and_give_it_back() {
    const MANY: u64 = 4000;
    let origin = Origin::start(|_, stream| ok(stream, "cache-control: max-age=3600", END));
    let proxy = Proxy::before(&origin.url(), "");
    // Answered by the fast path, and, with a condition, by hyper.
    let ask = |stream: &mut TcpStream| ["", "If-None-Match: \"x\"\r\n"].iter().for_each(|with| get(stream, "/", with));
    proxy.get("/");
    (0..200).for_each(|_| ask(&mut connect(proxy.address)));
    let closed = || proxy.stats()["proxy"]["connections_closed"].as_u64().unwrap();
    eventually("the first have gone", || closed() >= 201);
    let before = resident();
    let mut streams: Vec<_> = (0..MANY).map(|_| connect(proxy.address)).collect();
    streams.iter_mut().for_each(ask);
    let each = resident().saturating_sub(before) / MANY;
    println!("{each} bytes each");
    assert!(each <= 6 << 10, "{each} bytes for each connection");
    drop(streams);
    eventually("they have gone", || closed() >= 201 + MANY);
    // A worker looks once a second whether it is worth giving back what they took.
    eventually("memory is given back", || resident() < before + (4 << 20));
    println!("{} KiB kept", resident().saturating_sub(before) >> 10);
}

fn small_objects_take_the_memory_that_was_allowed_and_little_more() {
    const MEMORY: u64 = 64 << 20;
    let origin = Origin::start(|request, stream| {
        let body = [request.path().repeat(16).as_bytes(), END].concat();
        ok(stream, "cache-control: max-age=3600\ncontent-type: text/plain\netag: \"a-tag\"", &body)
    });
    let proxy = Proxy::before(&origin.url(), "[store]\nmemory = \"64MiB\"\n");
    let before = resident();
    let mut most = 0;
    std::thread::scope(|scope| {
        let clients = [0, 1, 2, 3].map(|client| {
            let address = proxy.address;
            scope.spawn(move || {
                let mut stream = connect(address);
                for i in 0..50_000 {
                    get(&mut stream, &format!("/{client}/{i}"), "");
                    // What memory holds of the device.
                    get(&mut stream, &format!("/{client}/{}", i / 2), "");
                }
            })
        });
        // However long they take.
        while !clients.iter().all(|client| client.is_finished()) {
            most = most.max(resident());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let stored = || proxy.stats()["store"]["objects"].as_u64().unwrap();
    // What the store has no room for at this moment is not waited for: on a busy machine that is more.
    eventually("nearly all are stored", || stored() >= 160_000);
    let more = most.max(resident()) - before;
    println!("{} KiB more, {}", more >> 10, proxy.stats()["store"]["memory_used"]);
    assert!(more <= MEMORY + MEMORY / 10 + (16 << 20), "{more} bytes more");
}
