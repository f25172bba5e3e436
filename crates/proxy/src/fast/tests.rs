//! Turns: how much of what one client sends ahead is answered before others are served.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Wake},
};

use http::{HeaderMap, StatusCode};
use picaflor::PutOptions;

use super::{FastIo, TURN};
use crate::{
    Low, Server,
    clock::unix_millis,
    conn::{Client, Conn},
    head::{self, Note},
    key,
    key::Side,
    proxy::Worker,
    rules::Policy,
    stream::Stream,
};

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_client_that_sends_requests_ahead_has_its_turn_and_then_others_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let text = "workers = 1\n[store]\ncapacity = \"64MiB\"\nmemory = \"32MiB\"\n";
    let mut low = Low::parse("test.toml", text).unwrap();
    low.listen = Some(vec![([127, 0, 0, 1], 0).into()]);
    low.admin.listen = Some(([127, 0, 0, 1], 0).into());
    low.store.path = Some(folder.path().join("store"));
    let server = Server::start(low.resolve().unwrap()).unwrap();
    let proxy = server.proxy().clone();
    let now = unix_millis();
    let policy = Policy {
        birth: now,
        lifetime: 3_600_000,
        no_cache: false,
        must_revalidate: false,
        stale_while_revalidate: 0,
        stale_if_error: None,
    };
    let metadata = head::encode(
        StatusCode::OK,
        &HeaderMap::new(),
        &Note { policy: &policy, received: now, seq: 0, tags: &[] },
        head::Body::Here,
    );
    let mut key = Vec::new();
    key::url(&mut key, Side::Forward, b"a", b"/").unwrap();
    proxy.store.put_with(&key, b"body", &PutOptions::new().metadata(metadata)).unwrap();
    drop(proxy.store.get(&key).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counters = Arc::<crate::metrics::Counters>::default();
    let answered = || counters.sent_bytes.get();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        client.write_all(&b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2 * TURN)).unwrap();
        stream.readable().await.unwrap();
        let worker = Arc::new(Worker::new(proxy.clone(), counters.clone()));
        let peer = Client::peer(peer.ip(), &proxy.config);
        let conn = Arc::new(Conn::new(&peer, worker.clock.tick()));
        let mut io = FastIo::new(Stream::Plain(stream), worker, conn);
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = woken.clone().into();
        assert!(io.poll_own(&mut Context::from_waker(&waker)).is_pending());
        let first = answered();
        assert!(first > 0 && woken.0.load(SeqCst), "it goes on when others had their turn");
        assert!(io.poll_own(&mut Context::from_waker(&waker)).is_pending());
        assert!(answered() > first, "all at once: {first} bytes");
    });
    drop(proxy);
    server.stop().unwrap();
}
