//! One store and several processes: `picaflor share` and those that ask it, as processes that live and are killed.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use picaflor_shared::{Client, Error};

fn picaflor(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_picaflor"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    picaflor(folder, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn good(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    output.stdout
}

fn bad(folder: &Path, arguments: &[&str], code: i32, word: &str) {
    let output = run(folder, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(word), "{word:?} in {said:?}");
}

/// A server, ended with the test.
struct Shared {
    folder: PathBuf,
    child: Child,
}

impl Shared {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut arguments = vec!["share", "a.store", "--capacity", "256MiB", "--memory", "32MiB"];
        arguments.extend(more);
        let mut child = picaflor(folder, &arguments).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let listening = lines.map_while(Result::ok).any(|line| line.starts_with("listen"));
        assert!(listening, "it ended: {:?}", child.wait());
        Self { folder: folder.to_owned(), child }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("a.store.sock")
    }

    fn client(&self) -> Client {
        Client::connect(self.socket()).unwrap()
    }

    /// Most bytes of memory that it has used so far.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn body(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((seed * 131 + at * 7919) >> 5) as u8).collect()
}

#[test]
fn the_tools_take_a_socket_where_they_take_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let shared = Shared::start(at, &["--store-mode"]);
    assert_eq!(shared.socket().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let large = body(1, 3 << 20);
    fs::write(at.join("large"), &large).unwrap();
    fs::write(at.join("meta"), "image/png").unwrap();
    good(at, &["put", "a.store.sock", "large", "large", "--metadata", "meta", "--group", "4", "--ttl", "1h"]);
    let mut put = picaflor(at, &["put", "a.store.sock", "small"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b"a few words").unwrap();
    assert!(put.wait().unwrap().success());
    assert!(good(at, &["get", "a.store.sock", "large"]) == large);
    assert_eq!(good(at, &["get", "a.store.sock", "large", "--range", "1000000-1000099"]), large[1_000_000..1_000_100]);
    assert_eq!(good(at, &["get", "a.store.sock", "small", "--range=-5"]), b"words");
    assert_eq!(good(at, &["get", "a.store.sock", "large", "--metadata"]), b"image/png");
    good(at, &["get", "a.store.sock", "large", "-o", "copy"]);
    assert!(fs::read(at.join("copy")).unwrap() == large);
    let mut keys: Vec<_> = text(&good(at, &["ls", "a.store.sock"])).lines().map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["large", "small"]);
    let json = text(&good(at, &["ls", "a.store.sock", "--format", "json", "--prefix", "la"]));
    assert!(json.contains(r#""size":3145728"#) && json.contains(r#""group":4"#) && json.lines().count() == 1, "{json}");
    good(at, &["rm", "a.store.sock", "small"]);
    bad(at, &["get", "a.store.sock", "small"], 1, "small is not there");
    bad(at, &["rm", "a.store.sock", "small"], 1, "1 key was not there");
    bad(at, &["get", "a.store", "large"], 1, "in use by another process");
    bad(at, &["put", "a.store.sock", "k", "meta", "--create"], 2, "--create is for a file");
    bad(at, &["share", "a.store.sock"], 2, "it is served already");
    bad(at, &["share", "b.store", "--socket", "a.store.sock", "--capacity", "16MiB"], 1, "another server listens");
    assert!(!at.join("b.store").exists(), "a store that nobody is served is not made");
    bad(at, &["stats", "a.store.sock"], 2, "is the socket of `picaflor share`");
    fs::write(at.join("huge"), vec![0; 70 << 20]).unwrap();
    bad(at, &["put", "a.store.sock", "huge", "huge"], 1, "too large");
    shared.terminate();
    assert!(!at.join("a.store.sock").exists());
    assert!(good(at, &["get", "a.store", "large"]) == large, "closed as it should be");
}

#[test]
fn policies_of_the_layout_are_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let shared = Shared::start(at, &["--pack-order", "lru-head", "--unpacked", "1MiB"]);
    (0..60).for_each(|i| shared.client().put(&[b'a' + i], &body(i.into(), 100_000)).unwrap());
    shared.terminate();
    let shared = Shared::start(at, &["--written-age", "1s", "--next-cluster", "overwrite"]);
    // Not asked for: what is in memory stays.
    let left = || text(&good(at, &["ls", "a.store.sock", "--format", "json"])).lines().count();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while left() > 0 {
        assert!(std::time::Instant::now() < deadline, "{} are older than a second", left());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    shared.terminate();
    bad(at, &["share", "b.store", "--pack-order", "last"], 2, "lru-tail");
    bad(at, &["share", "b.store", "--next-cluster", "nearest"], 2, "closest-to-access");
    bad(at, &["share", "b.store", "--written-age", "1s", "--unused-age", "1s"], 2, "cannot be used with");
    bad(at, &["share", "b.store", "--store-mode", "--unused-age", "1s"], 2, "cluster_age");
}

#[test]
fn where_every_put_is_durable_every_delete_is() {
    let folder = tempfile::tempdir().unwrap();
    // Once as it made the store, and once as it found it.
    for key in [b"first", b"again"] {
        let shared = Shared::start(folder.path(), &["--durability", "every-put"]);
        let client = shared.client();
        client.put(key, &body(1, 3000)).unwrap();
        client.delete(key).unwrap();
        shared.kill();
        let shared = Shared::start(folder.path(), &["--durability", "every-put"]);
        assert!(shared.client().get(key).unwrap().is_none(), "a deleted object is back");
        shared.terminate();
    }
}

#[test]
fn a_killed_server_is_started_again_and_its_clients_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Shared::start(folder.path(), &["--store-mode"]);
    let client = shared.client();
    for i in 0..200_usize {
        client.put(format!("kept {i}").as_bytes(), &body(i, 3000 + i)).unwrap();
    }
    client.delete(b"kept 7").unwrap();
    client.flush().unwrap();
    // Others are in the middle of everything when it dies: each ends with an error that names the socket.
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..4_usize)
            .map(|thread| {
                let client = shared.client();
                scope.spawn(move || {
                    for i in 0.. {
                        let key = format!("{thread} {i}");
                        let done = client.put(key.as_bytes(), &body(i, 9000));
                        if let Err(error) = done.and_then(|()| client.get(key.as_bytes()).map(drop)) {
                            return error;
                        }
                    }
                    unreachable!("the server is killed")
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let socket = shared.socket();
        shared.kill();
        for other in others {
            let error = other.join().unwrap();
            assert!(matches!(error, Error::Lost { .. } | Error::NoServer { .. }), "{error}");
            assert!(error.to_string().contains(&socket.display().to_string()), "{error}");
        }
    });
    let gone = client.get(b"kept 1").unwrap_err();
    assert!(gone.to_string().contains("start one with `picaflor share`"), "{gone}");
    bad(folder.path(), &["get", "a.store.sock", "kept 1"], 1, "no server at");
    let again = Shared::start(folder.path(), &[]);
    for i in 0..200_usize {
        let found = client.get(format!("kept {i}").as_bytes()).unwrap();
        assert!(if i == 7 { found.is_none() } else { found.unwrap() == body(i, 3000 + i) }, "{i}");
    }
    again.terminate();
}

#[test]
fn clients_that_die_or_sleep_disturb_nobody_and_memory_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let shared = Shared::start(at, &["--connections", "12"]);
    let client = shared.client();
    let large = body(3, 48 << 20);
    client.put(b"large", &large).unwrap();
    // Killed in the middle of a put.
    let mut dying = picaflor(at, &["put", "a.store.sock", "half"]).stdin(Stdio::piped()).spawn().unwrap();
    dying.stdin.as_mut().unwrap().write_all(&large[..6 << 20]).unwrap();
    dying.kill().unwrap();
    dying.wait().unwrap();
    // Killed in the middle of a get, and others that ask and take nothing.
    let mut reading = picaflor(at, &["get", "a.store.sock", "large", "-o", "-"]).spawn().unwrap();
    reading.stdout.as_mut().unwrap().read_exact(&mut [0; 100_000]).unwrap();
    reading.kill().unwrap();
    reading.wait().unwrap();
    let sleeping: Vec<_> = (0..6)
        .map(|_| {
            let mut stream = UnixStream::connect(shared.socket()).unwrap();
            stream.write_all(b"picaflor\x01\0\0\0\x1a\0\0\0\x01\x05\0\0\0large").unwrap();
            stream.write_all(&[[0; 8], [0xff; 8]].concat()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let (shared, large) = (&shared, &large);
            scope.spawn(move || {
                let client = shared.client();
                for i in 0..25 {
                    let key = format!("{thread} {i}");
                    client.put(key.as_bytes(), &body(i, 20_000)).unwrap();
                    assert!(client.get(key.as_bytes()).unwrap().unwrap() == body(i, 20_000));
                }
                let mut whole = Vec::new();
                client.get_stream(b"large", 0..u64::MAX).unwrap().unwrap().read_to_end(&mut whole).unwrap();
                assert!(whole == *large);
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(25), "nobody waited for those who sleep, who have 30 s");
    assert!(client.get(b"half").unwrap().is_none(), "what was not whole is not there");
    let peak = shared.peak();
    assert!(peak < 96 << 20, "{} MiB, with 32 MiB for the store and nine large answers", peak >> 20);
    drop(sleeping);
    shared.terminate();
}

#[test]
fn another_user_does_not_get_in() {
    // Only root can be another user; any other is told of the socket's mode in the tests of the crate.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let shared = Shared::start(folder.path(), &[]);
    shared.client().put(b"key", b"body").unwrap();
    let own = fs::metadata(shared.socket()).unwrap();
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return shared.terminate();
    }
    let program = folder.path().join("picaflor");
    fs::copy(env!("CARGO_BIN_EXE_picaflor"), &program).unwrap();
    let ask = || {
        let get = format!("{} get {} key", program.display(), shared.socket().display());
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &get])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = ask();
    assert!(said.contains("Permission denied"), "{said}");
    // Even where the mode lets it in, the kernel says who it is.
    fs::set_permissions(shared.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let said = ask();
    assert!(said.contains("serves another user"), "{said}");
    shared.terminate();
}
