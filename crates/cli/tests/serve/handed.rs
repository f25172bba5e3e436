//! A socket that another process listens at outlives the proxy: a restart refuses no client.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use crate::kit::{Origin, ok};

/// Hands this socket over as service managers do, in descriptor 3.
fn serve(folder: &Path, socket: &TcpListener, listen: SocketAddr, origin: SocketAddr) -> Child {
    let text = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 exec {} serve --listen {listen} --admin 127.0.0.1:0 --origin http://{origin} \
         --capacity 64MiB --memory 32MiB --workers 2 3<&0",
        env!("CARGO_BIN_EXE_picaflor")
    );
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", &text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap()))).spawn().unwrap()
}

fn is_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("Cache-Status")).unwrap();
    thread::spawn(move || lines.for_each(drop));
}

/// The answer to one request on a connection of its own.
fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET /a HTTP/1.1\r\nhost: test.example\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_restart_at_a_socket_that_was_handed_over_refuses_no_client() {
    let origin = Origin::start(|_| ok("cache-control: max-age=600", b"body"));
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut first = serve(folder.path(), &socket, address, origin.address);
    is_ready(&mut first);
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut second = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let answer = ask(address).unwrap();
                    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("body"), "{answer:?}");
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
        let eventually = |count: usize| {
            let (from, begun) = (answered.load(SeqCst), Instant::now());
            while answered.load(SeqCst) < from + count && begun.elapsed() < Duration::from_secs(30) {
                thread::sleep(Duration::from_millis(5));
            }
        };
        eventually(50);
        assert!(Command::new("kill").arg(first.id().to_string()).status().unwrap().success());
        assert!(first.wait().unwrap().success());
        let mut second = serve(folder.path(), &socket, address, origin.address);
        is_ready(&mut second);
        eventually(50);
        over.store(true, SeqCst);
        second
    });
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(origin.heads().len(), 1, "the second one has what the first one stored");
}

#[test]
fn a_socket_at_no_listener_s_address_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let other = SocketAddr::from(([127, 0, 0, 1], 0));
    let output = serve(folder.path(), &socket, other, other).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(&format!("a socket at {address} was handed over")), "{said}");
    assert!(!folder.path().join("picaflor.store").exists(), "no store is made for a proxy that cannot be");
}
