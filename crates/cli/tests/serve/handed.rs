//! What a service manager hands over and is told: a socket that it listens at outlives the proxy, so that a restart
//! refuses no client.

use std::{
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use crate::kit::{Origin, Serve, ask, command, eventually, ok};

/// Hands this socket over as service managers do, in descriptor 3.
fn handed(socket: &TcpListener, folder: &Path, origin: SocketAddr, more: &str) -> Command {
    let more = ["--capacity 64MiB --workers 2", more, "3<&0"];
    let mut command = command("LISTEN_PID=$$ LISTEN_FDS=1", folder, origin, &more);
    command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
    command
}

#[test]
fn a_restart_at_a_socket_that_was_handed_over_refuses_no_client() {
    let origin = Origin::start(|_| ok("cache-control: max-age=600", b"body"));
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen {}", socket.local_addr().unwrap());
    let start = || Serve::run(handed(&socket, folder.path(), origin.address, &listen));
    let first = start();
    let address = first.listen.clone();
    let (over, answered, begun) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    let second = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // A failure is not a test that never ends.
                while !over.load(SeqCst) && begun.elapsed() < Duration::from_secs(120) {
                    let (head, body) = ask(&address, "GET", "/a", "");
                    assert!(head.starts_with("HTTP/1.1 200 ") && body == "body", "{head} {body}");
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
        let all_go_on = || {
            let before = answered.load(SeqCst);
            eventually("fifty answers more", || answered.load(SeqCst) >= before + 50);
        };
        all_go_on();
        first.stop();
        let second = start();
        all_go_on();
        over.store(true, SeqCst);
        second
    });
    second.kill();
    assert_eq!(origin.heads().len(), 1, "the second one has what the first one stored");
}

#[test]
fn a_socket_at_no_listener_s_address_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let output = handed(&socket, folder.path(), address, "").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(&format!("a socket at {address} was handed over")), "{said}");
    assert!(!folder.path().join("picaflor.store").exists(), "no store is made for a proxy that cannot be");
}

#[test]
fn a_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let origin = Origin::start(|_| ok("cache-control: max-age=600", b"body"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let told = || {
        let mut message = [0; 1024];
        let len = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let first = format!("NOTIFY_SOCKET={}", path.display());
    let serve = Serve::start_after(&first, folder.path(), origin.address, &["--capacity 64MiB"]);
    assert!(told().starts_with("READY=1\n"));
    assert!(serve.get("/a").0.starts_with("HTTP/1.1 200 "));
    serve.stop();
    assert_eq!(told(), "STOPPING=1\n");
}
