//! Get or fetch: one fetch for all that miss the same key, whatever becomes of it.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use picaflor::{Daemons, Error, Expiry, FetchError, Fetched, Object, Refusal, Store};
use picaflor_sim::kill;

use crate::common::{MIB, body, by_hand, counted, plain, read};

fn store() -> Store {
    let (_, options) = counted(32 * MIB);
    Store::open(options.with(|options| options.daemons = Daemons::Threads)).unwrap()
}

fn fetched(len: usize) -> Fetched {
    Fetched::new(body(1, len))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end; an executor of one task.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

const CALLERS: usize = 64;

/// Lets 64 threads ask at once. `fetch` is run by the leaders.
fn ask(
    store: &Store,
    fetch: &(impl Fn() -> Result<Fetched, String> + Sync),
) -> Vec<Result<Object, FetchError<String>>> {
    let start = Barrier::new(CALLERS);
    thread::scope(|scope| {
        let call = || {
            start.wait();
            store.get_or_fetch(b"key", fetch)
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn sixty_four_threads_share_one_fetch() {
    for len in [0, 3000, 300_000] {
        let (store, fetches) = (store(), AtomicUsize::new(0));
        let fetch = || {
            fetches.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(100));
            Ok(fetched(len))
        };
        for found in ask(&store, &fetch) {
            assert_eq!(found.unwrap().body().unwrap(), body(1, len));
        }
        assert_eq!(fetches.load(Relaxed), 1);
        let counts = store.stats().counts;
        assert_eq!(counts.fetches, 1);
        assert!(counts.fetches_shared > 0, "{counts:?}");
        assert!(ask(&store, &|| Err("not asked again".into())).iter().all(Result::is_ok));
    }
}

#[test]
fn a_failed_fetch_fails_those_who_waited_and_nobody_after() {
    let (store, fetches) = (store(), AtomicUsize::new(0));
    let fetch = || {
        fetches.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_millis(200));
        Err("no route to origin".to_owned())
    };
    for found in ask(&store, &fetch) {
        assert!(matches!(&found, Err(FetchError::Fetch(why)) if **why == "no route to origin"), "{found:?}");
    }
    // Threads that came when the first had failed fetched for themselves.
    assert!(fetches.load(Relaxed) < CALLERS / 2, "{fetches:?}");
    assert!(store.get_or_fetch(b"key", || Ok::<_, String>(fetched(10))).is_ok());
}

#[test]
fn a_leader_that_panics_lets_the_others_know() {
    let store = store();
    let (led, panicked) = (Barrier::new(2), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let fetch = || -> Result<Fetched, String> {
                led.wait();
                thread::sleep(Duration::from_millis(100));
                // Without the hook's report, which would look like a failed test.
                std::panic::resume_unwind(Box::new("the origin is on fire"));
            };
            panicked.fetch_add(
                catch_unwind(AssertUnwindSafe(|| store.get_or_fetch(b"key", fetch))).is_err().into(),
                Relaxed,
            );
        });
        led.wait();
        let waited = store.get_or_fetch(b"key", || Ok::<_, String>(fetched(10)));
        assert!(matches!(waited, Err(FetchError::Abandoned)), "{waited:?}");
    });
    assert_eq!(panicked.load(Relaxed), 1);
    assert!(store.get_or_fetch(b"key", || Ok::<_, String>(fetched(10))).is_ok());
}

/// Ready at the second poll, so that others find it running.
async fn soon() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn tasks_share_one_fetch_too() {
    let (store, fetches) = (store(), AtomicUsize::new(0));
    let fetch = || async {
        fetches.fetch_add(1, Relaxed);
        soon().await;
        Ok::<_, String>(fetched(300_000))
    };
    let mut first = pin!(store.get_or_fetch_async(b"key", fetch()));
    let mut second = pin!(store.get_or_fetch_async(b"key", fetch()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(block_on(first).unwrap().body().unwrap(), body(1, 300_000));
    assert_eq!(block_on(second).unwrap().body().unwrap(), body(1, 300_000));
    assert_eq!(fetches.load(Relaxed), 1);
    assert_eq!(block_on(store.get_async(b"key")).unwrap().unwrap().len(), 300_000);
    let again = block_on(store.get_or_fetch_async(b"key", async { Err::<Fetched, _>("not asked again") }));
    assert_eq!(again.unwrap().len(), 300_000);
    let failed = block_on(store.get_or_fetch_async(b"other", async { Err::<Fetched, _>("down") }));
    assert!(matches!(failed, Err(FetchError::Fetch(why)) if *why == "down"));
}

#[test]
fn a_cancelled_leader_lets_the_others_know() {
    let store = store();
    let mut context = Context::from_waker(Waker::noop());
    let mut leader = Box::pin(store.get_or_fetch_async(b"key", std::future::pending::<Result<Fetched, String>>()));
    assert!(leader.as_mut().poll(&mut context).is_pending());
    let waiting = {
        let store = store.clone();
        thread::spawn(move || block_on(store.get_or_fetch_async(b"key", async { Err::<Fetched, _>("not led") })))
    };
    while store.stats().counts.fetches_shared == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(leader);
    assert!(matches!(waiting.join().unwrap(), Err(FetchError::Abandoned)));
    let again = block_on(store.get_or_fetch_async(b"key", async { Ok::<_, String>(fetched(10)) }));
    assert_eq!(again.unwrap().len(), 10);
}

#[test]
fn what_the_store_refuses_is_returned_all_the_same() {
    let (_, options) = counted(32 * MIB);
    let metadata = bytes::Bytes::from_static(b"type: text");
    let whole = body(3, 9_000_000);
    let fetch = || Ok::<_, String>(Fetched::with(whole.clone(), plain().metadata(metadata)));
    let store = Store::open(options).unwrap();
    let object = store.get_or_fetch(b"too large", fetch).unwrap();
    assert_eq!((object.key(), object.metadata(), object.len()), (&b"too large"[..], &b"type: text"[..], 9_000_000));
    assert_eq!(object.body_in_memory().unwrap(), whole);
    assert!(store.get(b"too large").unwrap().is_none());
    let closed = store.clone();
    store.close().unwrap();
    let object = closed.get_or_fetch(b"closed", || Ok::<_, String>(fetched(100))).unwrap();
    assert_eq!(object.body().unwrap(), body(1, 100));
    let (_, mut options) = counted(32 * MIB);
    options.admission = Some(Arc::new(|_, _| false));
    let store = Store::open(options).unwrap();
    assert_eq!(store.get_or_fetch(b"a", || Ok::<_, String>(fetched(100))).unwrap().len(), 100);
    assert!(read(&store, b"a").is_none());
}

/// A body in pieces of 100 KB on its way into the store.
fn streamed(store: &Store, key: &[u8], len: usize) -> Result<Fetched, Error> {
    let mut stream = store.put_stream(key, None, plain())?;
    body(1, len).chunks(100_000).try_for_each(|piece| stream.write(piece))?;
    Ok(Fetched::stream(stream))
}

#[test]
fn what_is_fetched_may_be_a_stream() {
    let store = store();
    for len in [0, 3000, 3_000_000] {
        let [a, b] = [format!("a{len}"), format!("b{len}")];
        let object = store.get_or_fetch(a.as_bytes(), || streamed(&store, a.as_bytes(), len)).unwrap();
        assert!(object.body().unwrap() == body(1, len), "{len}");
        let fetch = async { streamed(&store, b.as_bytes(), len) };
        let object = block_on(store.get_or_fetch_async(b.as_bytes(), fetch)).unwrap();
        assert!(block_on(object.body_async()).unwrap() == body(1, len), "{len}");
        assert!(store.contains(a.as_bytes()).unwrap() && store.contains(b.as_bytes()).unwrap());
    }
    let another = store.get_or_fetch(b"this", || streamed(&store, b"that", 10));
    assert!(matches!(another, Err(FetchError::Store(Error::Option { name: "key", .. }))), "{another:?}");
    assert!(!store.contains(b"this").unwrap() && !store.contains(b"that").unwrap());
    // Nothing has it but the store, which does not take it.
    let refused = store.get_or_fetch(b"large", || streamed(&store, b"large", 9_000_000));
    let Err(FetchError::Fetch(why)) = &refused else { panic!("{refused:?}") };
    assert!(matches!(**why, Error::Refused(Refusal::TooLarge)), "{refused:?}");
}

#[test]
fn the_error_of_a_fetch_is_the_callers_own_type() {
    #[derive(Debug, PartialEq)]
    struct NotThere(u32);
    let store = store();
    let mut context = Context::from_waker(Waker::noop());
    let fail = || async {
        soon().await;
        Err::<Fetched, _>(NotThere(404))
    };
    let mut first = pin!(store.get_or_fetch_async(b"key", fail()));
    let mut second = pin!(store.get_or_fetch_async(b"key", fail()));
    // It cannot be told of an error that is of a type that it does not know.
    let mut third = pin!(store.get_or_fetch_async(b"key", async { Err::<Fetched, _>("its own") }));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    assert!(matches!(block_on(first), Err(FetchError::Fetch(why)) if *why == NotThere(404)));
    assert!(matches!(block_on(second), Err(FetchError::Fetch(why)) if *why == NotThere(404)));
    assert!(matches!(block_on(third), Err(FetchError::Fetch(why)) if *why == "its own"));
}

#[test]
fn every_put_can_be_awaited() {
    for daemons in [Daemons::Threads, Daemons::Manual] {
        let (device, options) = counted(32 * MIB);
        let options = options.durability(picaflor::Durability::EveryPut).with(|options| options.daemons = daemons);
        let store = Store::open(options).unwrap();
        for i in 0..30u64 {
            block_on(store.put_async(&i.to_le_bytes(), &body(i, 3000))).unwrap();
            block_on(store.flush_async()).unwrap();
        }
        assert!(device.counts().syncs > 30);
        kill(store);
        let store = Store::open(by_hand(Arc::new(device))).unwrap();
        assert!((0..30u64).all(|i| read(&store, &i.to_le_bytes()) == Some(body(i, 3000))));
    }
}

#[test]
fn what_was_fetched_and_not_stored_is_whole_and_expires() {
    let store = store();
    let options = plain().expiry(Expiry::After(Duration::from_secs(5)));
    let len = 20 * MIB as usize;
    let fetch = || Ok::<_, String>(Fetched::with(body(1, len), options.clone()));
    let object = store.get_or_fetch(b"too large for the device", fetch).unwrap();
    assert_eq!(object.len(), len as u64);
    assert!(object.expires().is_some());
    assert!(object.body_in_memory().unwrap() == body(1, len) && object.body().unwrap() == body(1, len));
    let part: Vec<u8> = object.chunks(7..9).flat_map(|piece| piece.unwrap().to_vec()).collect();
    assert_eq!(part, body(1, len)[7..9]);
    assert_eq!(object.metadata(), b"");
}

#[test]
fn who_comes_as_a_fetch_ends_does_not_fetch_again() {
    // The second caller misses, and before it can lead the first one has put.
    let store = store();
    let fetches = AtomicUsize::new(0);
    let fetch = || {
        fetches.fetch_add(1, Relaxed);
        Ok::<_, String>(fetched(100))
    };
    for round in 0..200 {
        let key = format!("{round}");
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    store.get_or_fetch(key.as_bytes(), fetch).unwrap();
                });
            }
        });
    }
    assert_eq!(fetches.load(Relaxed), 200);
}
