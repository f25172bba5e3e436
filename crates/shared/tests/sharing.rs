//! Clients and a server over a real socket: every verb, many at once, streams, limits, peers that misbehave.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    collections::HashSet,
    io::{Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use picaflor::{CheckpointInterval, Expiry, Mode, Options, PutOptions, Store, device::MemoryDevice};
use picaflor_shared::{Client, Error, Kind, Limits, Server, serve};
use picaflor_sim::{Fault, FaultyDevice, Rule};

struct Place {
    folder: tempfile::TempDir,
    store: Store,
    server: Option<Server>,
}

impl Place {
    fn new(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("store")).capacity(64 << 20).memory(16 << 20).mode(Mode::Store);
        let store = Store::open(options).unwrap();
        let server = Some(serve(store.clone(), folder.path().join("sock"), limits).unwrap());
        Self { folder, store, server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    fn client(&self) -> Client {
        Client::connect(self.socket()).unwrap()
    }

    /// A peer that speaks as it likes, past the hello.
    fn raw(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(b"picaflor\x02\0\0\0").unwrap();
        let mut hello = [0; 13];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"picaflor\x02\0\0\0\0");
        stream
    }

    /// Waits until the server has so many connections.
    fn settles_at(&self, connections: usize) {
        let began = Instant::now();
        while self.server.as_ref().unwrap().connections() != connections {
            assert!(began.elapsed() < Duration::from_secs(20), "never {connections} connections");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn body(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((seed * 131 + at * 7919) >> 5) as u8).collect()
}

fn plain() -> PutOptions {
    PutOptions::default()
}

#[test]
fn every_verb_does_what_it_does_in_the_process() {
    let place = Place::new(Limits::default());
    let client = place.client();
    assert_eq!(client.get(b"page").unwrap(), None);
    assert!(client.get_stream(b"page", 0..9).unwrap().is_none());
    let options = plain()
        .metadata(b"text/html".as_slice())
        .expiry(Expiry::After(Duration::from_secs(3600)))
        .group(3)
        .neighbour(b"index".as_slice());
    client.put_with(b"page", &body(1, 5000), &options).unwrap();
    client.put(b"empty", b"").unwrap();
    assert_eq!(client.get(b"page").unwrap().unwrap(), body(1, 5000));
    assert_eq!(client.get(b"empty").unwrap().unwrap(), b"");
    let object = place.store.get(b"page").unwrap().unwrap();
    assert_eq!((object.group(), object.metadata()), (3, &b"text/html"[..]));
    assert!(object.expires().is_some());
    let mut incoming = client.get_stream(b"page", 100..200).unwrap().unwrap();
    let head = incoming.head().clone();
    assert_eq!((head.len, head.group, head.metadata.as_slice()), (5000, 3, &b"text/html"[..]));
    assert_eq!((head.generation, Some(head.expires)), (object.generation(), object.expires()));
    let mut part = Vec::new();
    incoming.read_to_end(&mut part).unwrap();
    assert_eq!(part, body(1, 5000)[100..200]);
    assert!(client.contains(b"page").unwrap() && !client.contains(b"pages").unwrap());
    client.collocate(b"page", b"empty").unwrap();
    client.love(3).unwrap();
    assert_eq!(place.store.group(3).priority(), picaflor::Priority::Loved);
    client.hate(3).unwrap();
    assert_eq!(place.store.group(3).priority(), picaflor::Priority::Hated);
    client.set_checkpoint_interval(3, Some(Duration::from_millis(200))).unwrap();
    assert_eq!(place.store.group(3).checkpoint_interval(), CheckpointInterval::Every(Duration::from_millis(200)));
    client.set_checkpoint_interval(3, None).unwrap();
    assert_eq!(place.store.group(3).checkpoint_interval(), CheckpointInterval::Off);
    let mut keys: Vec<_> =
        client.keys().unwrap().map(|entry| entry.unwrap()).map(|e| (e.key, e.len, e.group)).collect();
    keys.sort();
    assert_eq!(keys, [(b"empty".to_vec(), 0, 0), (b"page".to_vec(), 5000, 3)]);
    assert!(client.delete(b"page").unwrap() && !client.delete(b"page").unwrap());
    let syncs = place.store.stats().counts.device_syncs;
    client.flush().unwrap();
    assert!(place.store.stats().counts.device_syncs > syncs);
    assert_eq!(place.server.as_ref().unwrap().connections(), 1, "one connection served all that");
}

#[test]
fn errors_come_with_their_kind_and_the_connection_goes_on() {
    let place = Place::new(Limits::default());
    let client = place.client();
    let kind = |error| match error {
        Error::Store { kind, text } => (kind, text),
        other => panic!("{other}"),
    };
    assert_eq!(kind(client.put(b"", b"a").unwrap_err()).0, Kind::Limit);
    assert_eq!(kind(client.put(&[1; 9000], b"a").unwrap_err()).0, Kind::Limit);
    let expired = plain().expiry(Expiry::At(5));
    assert_eq!(kind(client.put_with(b"a", b"a", &expired).unwrap_err()).0, Kind::Expired);
    let large = vec![0; 20 << 20];
    assert_eq!(kind(client.put(b"large", &large).unwrap_err()).0, Kind::TooLarge);
    let mut full = Ok(());
    for i in 0..400_u32 {
        full = client.put_with(&i.to_le_bytes(), &large[..1 << 20], &plain().no_wait(true));
        if full.is_err() {
            break;
        }
    }
    assert!(matches!(kind(full.unwrap_err()).0, Kind::Full | Kind::NoCleanSpace | Kind::Busy));
    assert_eq!(place.server.as_ref().unwrap().connections(), 1);
    // What no correct client would ask.
    let (refused, text) = kind(client.love(0).unwrap_err());
    assert!(refused == Kind::BadFrame && text.contains("group 0"), "{text}");
    assert!(!client.contains(b"a").unwrap(), "a new connection");
}

#[test]
fn large_objects_stream_both_ways_and_an_abandoned_one_was_never_there() {
    let place = Place::new(Limits::default());
    let client = place.client();
    let whole = body(9, 9 << 20);
    let mut outgoing = client.put_stream(b"large", Some(whole.len() as u64), &plain()).unwrap();
    for piece in whole.chunks(100_001) {
        outgoing.write(piece).unwrap();
        assert!(!place.store.contains(b"large").unwrap());
    }
    outgoing.finish().unwrap();
    let mut back = Vec::new();
    client.get_stream(b"large", 0..u64::MAX).unwrap().unwrap().read_to_end(&mut back).unwrap();
    assert!(back == whole);
    assert!(client.get(b"large").unwrap().unwrap() == whole);
    let mut abandoned = client.put_stream(b"never", None, &plain()).unwrap();
    abandoned.write(&whole[..3 << 20]).unwrap();
    drop(abandoned);
    let mut short = client.put_stream(b"short", Some(100), &plain()).unwrap();
    short.write(b"only this").unwrap();
    assert!(matches!(short.finish(), Err(Error::Store { kind: Kind::Limit, .. })));
    assert!(!client.contains(b"never").unwrap() && !client.contains(b"short").unwrap());
    assert_eq!(place.server.as_ref().unwrap().connections(), 1);
    // Half an answer costs the connection and nothing else.
    let mut incoming = client.get_stream(b"large", 0..u64::MAX).unwrap().unwrap();
    incoming.read_exact(&mut [0; 1000]).unwrap();
    drop(incoming);
    assert!(client.contains(b"large").unwrap());
    place.settles_at(1);
}

#[test]
fn many_clients_read_what_any_has_written() {
    let place = Place::new(Limits::default());
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let client = place.client();
            scope.spawn(move || {
                for i in 0..300_usize {
                    let key = format!("{thread}/{}", i % 40);
                    let now = body(thread * 1000 + i, 50 + i * 30);
                    client.put(key.as_bytes(), &now).unwrap();
                    assert!(client.get(key.as_bytes()).unwrap().unwrap() == now);
                    // Another's: some version of it, whole.
                    let other = (thread + 1) % 8;
                    if let Some(found) = client.get(format!("{other}/{}", i % 40).as_bytes()).unwrap() {
                        let at = (found.len() - 50) / 30;
                        assert!(found == body(other * 1000 + at, 50 + at * 30));
                    }
                }
            });
        }
        // One client, several threads.
        let client = place.client();
        for thread in 0..4 {
            let client = client.clone();
            scope.spawn(move || {
                for i in 0..200 {
                    let key = format!("shared/{thread}/{i}");
                    client.put(key.as_bytes(), &body(i, 100)).unwrap();
                    assert!(client.get(key.as_bytes()).unwrap().unwrap() == body(i, 100));
                }
            });
        }
    });
    // One that was moved to make room meanwhile is told twice.
    let keys: HashSet<_> = place.client().keys().unwrap().map(|entry| entry.unwrap().key).collect();
    assert_eq!(keys.len(), 8 * 40 + 4 * 200);
}

/// Sends bytes and reads until the server hangs up.
fn answered(mut stream: UnixStream, bytes: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn bad_frames_are_named_and_end_their_connection_only() {
    let place = Place::new(Limits::default());
    let client = place.client();
    client.put(b"key", b"body").unwrap();
    let frame = |kind: u8, fields: &[u8]| {
        let mut bytes = (fields.len() as u32 + 1).to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(fields);
        bytes
    };
    for (bad, word) in [
        (vec![0xff; 64], "more than"),
        (vec![0, 0, 0, 0], "without a kind"),
        (frame(99, b""), "no frame has kind 99"),
        (frame(6, b"\x09\0\0\0key"), "too short"),
        (frame(6, b"\x03\0\0\0key!"), "longer than its fields"),
        (frame(9, b"\x01\0\0\0\x07"), "value that it cannot have"),
        (frame(4, b""), "no request"),
        (frame(32, b""), "no request"),
        ([frame(2, &[0; 38]), frame(12, b"")].concat(), "a body is Data"),
    ] {
        let said = answered(place.raw(), &bad);
        assert!(String::from_utf8_lossy(&said).contains(word), "{word}: {:?}", String::from_utf8_lossy(&said));
    }
    // Half a frame, half a hello, no hello, something else altogether.
    assert_eq!(answered(place.raw(), &[5, 0, 0, 0, 6]), b"");
    let connect = || UnixStream::connect(place.socket()).unwrap();
    assert_eq!(answered(connect(), b"picaf"), b"");
    assert_eq!(answered(connect(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").len(), 13);
    assert_eq!(answered(connect(), b"picaflor\x02\0\0\0").len(), 13, "another version is told ours");
    // Noise.
    let mut seed = 1_u64;
    for _ in 0..200 {
        let noise: Vec<u8> = (0..300)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        answered(place.raw(), &frame(noise[0] % 40, &noise[1..]));
    }
    assert_eq!(client.get(b"key").unwrap().unwrap(), b"body");
    place.settles_at(1);
}

#[test]
fn too_many_clients_are_told_so_and_a_place_is_free_again() {
    let place = Place::new(Limits::default().connections(3));
    let clients: Vec<_> = (0..3).map(|_| place.client()).collect();
    match Client::connect(place.socket()) {
        Err(Error::Declined { why, .. }) => assert!(why.contains("as many clients")),
        other => panic!("{other:?}"),
    }
    assert!(!clients[2].contains(b"a").unwrap());
    drop(clients);
    place.settles_at(0);
    assert!(!place.client().contains(b"a").unwrap());
}

#[test]
fn a_slow_client_holds_up_nobody_and_is_cut_off() {
    let place = Place::new(Limits::default().patience(Duration::from_millis(700)));
    let client = place.client();
    client.put(b"large", &body(1, 12 << 20)).unwrap();
    // Asks for it and takes nothing; begins a frame, and a put, and says no more.
    let mut ask = 26_u32.to_le_bytes().to_vec();
    ask.extend_from_slice(b"\x01\x05\0\0\0large");
    ask.extend_from_slice(&0_u64.to_le_bytes());
    ask.extend_from_slice(&u64::MAX.to_le_bytes());
    let mut slow: Vec<_> = (0..4).map(|_| place.raw()).collect();
    slow[0].write_all(&ask).unwrap();
    slow[1].write_all(&ask[..9]).unwrap();
    let mut outgoing = client.put_stream(b"half", None, &plain()).unwrap();
    outgoing.write(&body(2, 1 << 20)).unwrap();
    let began = Instant::now();
    let other = place.client();
    for i in 0..200 {
        other.put(b"key", &body(i, 3000)).unwrap();
        assert!(other.get(b"key").unwrap().unwrap() == body(i, 3000));
    }
    // Those in the middle of something are gone, those that ask for nothing stay: two silent ones and `other`.
    place.settles_at(3);
    assert!(began.elapsed() >= Duration::from_millis(500));
    let mut taken = Vec::new();
    let _ = slow[0].read_to_end(&mut taken);
    assert!(taken.len() > 1000 && taken.len() < 12 << 20, "what lay in the socket: {}", taken.len());
    assert!(outgoing.write(&body(2, 1 << 20)).and_then(|()| outgoing.finish()).is_err());
    assert!(!other.contains(b"half").unwrap());
    assert!(slow[3].write_all(b"\x01\0\0\0\x0c").is_ok(), "a ping after all the silence");
    let mut answer = [0; 5];
    slow[3].read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"\x01\0\0\0\x20");
}

#[test]
fn a_client_outlives_its_server_and_says_what_is_wrong_meanwhile() {
    let mut place = Place::new(Limits::default());
    let client = place.client();
    client.put(b"key", b"body").unwrap();
    place.server.take().unwrap().stop();
    assert!(!place.socket().exists());
    match client.get(b"key").unwrap_err() {
        Error::NoServer { path, .. } => assert_eq!(path, place.socket()),
        other => panic!("{other}"),
    }
    place.server = Some(serve(place.store.clone(), place.socket(), Limits::default()).unwrap());
    assert_eq!(client.get(b"key").unwrap().unwrap(), b"body");
    let mut outgoing = client.put_stream(b"other", None, &plain()).unwrap();
    outgoing.write(b"begun").unwrap();
    place.server.take().unwrap().stop();
    place.server = Some(serve(place.store.clone(), place.socket(), Limits::default()).unwrap());
    assert!(outgoing.finish().is_err(), "nobody has its beginning");
    assert!(!client.contains(b"other").unwrap());
    let outgoing = client.put_stream(b"other", None, &plain()).unwrap();
    outgoing.finish().unwrap();
    assert!(client.contains(b"other").unwrap());
}

#[test]
fn a_listing_that_is_not_whole_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20)), 1);
    let options = Options::on(Arc::new(device.clone()))
        .memory(16 << 20)
        .mode(Mode::Store)
        .rows(picaflor_literature::ROWS)
        .as_preset("pmflf-ts")
        .unwrap();
    let store = Store::open(options).unwrap();
    (0..50).for_each(|i| store.put(format!("{i}").as_bytes(), &body(i, 4000)).unwrap());
    let server = serve(store, folder.path().join("sock"), Limits::default()).unwrap();
    let client = Client::connect(server.path()).unwrap();
    device.add(Rule::since(Fault::ReadError, 1));
    let mut entries: Vec<_> = client.keys().unwrap().collect();
    match entries.pop() {
        Some(Err(Error::Store { kind: Kind::Io, text })) => assert!(text.contains("could not be read"), "{text}"),
        other => panic!("{other:?}"),
    }
    device.clear_rules();
    assert_eq!(client.keys().unwrap().filter(|entry| entry.is_ok()).count(), 50);
}

#[test]
fn a_server_that_does_not_answer_in_time_is_asked_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        // It says hello, takes what comes, and says nothing.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Relaxed);
            std::thread::spawn(move || {
                stream.write_all(b"picaflor\x02\0\0\0\0").unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    let client = Client::connect_within(&path, Duration::from_millis(300)).unwrap();
    match client.put(b"key", b"body").unwrap_err() {
        Error::Lost { source, .. } => assert_eq!(source.kind(), std::io::ErrorKind::TimedOut),
        other => panic!("{other}"),
    }
    assert_eq!(connections.load(Relaxed), 1, "a put that may still be done is not done again behind it");
    assert!(client.get(b"key").is_err());
    assert_eq!(connections.load(Relaxed), 2, "nor is the connection used again");
}

#[test]
fn the_socket_is_the_owners_and_never_taken_from_another() {
    let place = Place::new(Limits::default());
    let mode = place.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = serve(place.store.clone(), place.socket(), Limits::default());
    assert!(again.err().unwrap().to_string().contains("another server listens"));
    let file = place.folder.path().join("file");
    std::fs::write(&file, "a letter").unwrap();
    assert!(serve(place.store.clone(), &file, Limits::default()).err().unwrap().to_string().contains("no socket"));
    assert_eq!(std::fs::read(&file).unwrap(), b"a letter");
    // What a killed server leaves is in no one's way.
    let stale = place.folder.path().join("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(matches!(Client::connect(&stale), Err(Error::NoServer { .. })));
    let second = serve(place.store.clone(), &stale, Limits::default()).unwrap();
    assert!(!Client::connect(&stale).unwrap().contains(b"a").unwrap());
    second.stop();
    assert!(matches!(Client::connect(place.folder.path().join("none")), Err(Error::NoServer { .. })));
}
