//! What tasks call neither waits nor reads the device on their executor's thread, whichever executor that is.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    thread::ThreadId,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use picaflor::{
    Durability, Mode, Options, Place, Put, Store,
    device::{Folder, MemoryDevice, RealFolder},
};
use picaflor_sim::{Asked, HookedDevice};

use crate::common::{MIB, body, bypass, in_group, key, plain};

/// What one thread may not wait for, and where the reclaimer waits while the gate is shut.
#[derive(Default)]
struct Guard {
    executor: Mutex<Option<ThreadId>>,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Guard {
    fn pass(&self) {
        let thread = std::thread::current();
        assert_ne!(*self.executor.lock(), Some(thread.id()), "the executor's thread waits for the device");
        if thread.name() == Some("picaflor-reclaimer") {
            let mut shut = self.shut.lock();
            while *shut {
                self.opened.wait(&mut shut);
            }
        }
    }

    fn set_shut(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }
}

/// A folder that the same thread may not wait for.
struct GuardedFolder {
    inner: RealFolder,
    guard: Arc<Guard>,
}

impl Folder for GuardedFolder {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.guard.pass();
        self.inner.make_dir(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.guard.pass();
        self.inner.write(path, bytes)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.guard.pass();
        self.inner.read(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.guard.pass();
        self.inner.remove(path)
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.guard.pass();
        self.inner.list(each)
    }

    fn sync(&self) -> io::Result<()> {
        self.guard.pass();
        self.inner.sync()
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

/// One of each kind of layout, on the guarded device or a folder as it is.
const PRESETS: [&str; 4] = ["picaflor", "stream", "pmflf-ts", "simple"];

fn guarded_as(preset: &str, folder: &std::path::Path) -> (Arc<Guard>, Options) {
    let (guard, options) = guarded(32 * MIB, Mode::Store);
    let mut options =
        options.rows(picaflor_literature::ROWS).as_preset(preset).unwrap().durability(Durability::EveryPut);
    if options.wants_folder() {
        let inner = RealFolder::open(folder).unwrap();
        options.places = vec![Place::Folder(Arc::new(GuardedFolder { inner, guard: guard.clone() }))];
        options = options.capacity(32 * MIB);
    }
    (guard, options)
}

fn guarded(bytes: u64, mode: Mode) -> (Arc<Guard>, Options) {
    let guard = Arc::new(Guard::default());
    let own = guard.clone();
    let pass = move |asked: Asked| {
        if !asked.is_submitted {
            own.pass()
        }
    };
    let device = HookedDevice::new(Arc::new(MemoryDevice::new(bytes)), pass);
    let options = Options::on(Arc::new(device)).memory(4 * MIB).mode(mode);
    (guard, options.with(|options| options.cluster = 64 << 10))
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Two executors that run everything on the thread that calls them.
const EXECUTORS: [fn(Task); 2] = [
    |task| futures_executor::block_on(task),
    |task| {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task);
    },
];

#[test]
fn every_verb_has_a_form_for_tasks() {
    for executor in EXECUTORS {
        for preset in PRESETS {
            let folder = tempfile::tempdir().unwrap();
            let (guard, options) = guarded_as(preset, folder.path());
            let store = Store::open(options.clone()).unwrap();
            (0..50).for_each(|i| store.put_with(&key(i), &body(i, 3000), &in_group(3)).unwrap());
            store.put(b"large", &body(7, 500_000)).unwrap();
            // Nothing of it is in memory.
            store.close().unwrap();
            let store = Store::open(options).unwrap();
            let keys: Vec<_> = store.keys().map(|entry| entry.key).collect();
            *guard.executor.lock() = Some(std::thread::current().id());
            let own = store.clone();
            let held = guard.clone();
            executor(Box::pin(async move {
                let store = own;
                store.put_async(&key(0), b"new").await.unwrap();
                assert!(store.delete_async(&key(1)).await.unwrap() && !store.delete_async(&key(1)).await.unwrap());
                assert!(store.contains_async(&key(2)).await.unwrap() && !store.contains_async(&key(1)).await.unwrap());
                assert_eq!(store.group_of_async(&key(2)).await.unwrap(), Some(3));
                let large = store.get_async(b"large").await.unwrap().unwrap();
                let (mut pieces, mut read) = (large.chunks(0..u64::MAX), Vec::new());
                while let Some(piece) = pieces.next_async().await {
                    read.extend_from_slice(&piece.unwrap());
                }
                assert!(read == body(7, 500_000), "{preset}");
                let new = key(60);
                let many = [Put::new(&new, b"one"), Put::new(b"2", b"")];
                store.put_many_async(&many).await.unwrap();
                let deleted = store.delete_many_async(&[&key(4), b"2", b"3"]).await.unwrap();
                assert_eq!(deleted, [true, true, false], "{preset}");
                assert!(
                    store.get_async(&new).await.unwrap().is_some() && !store.contains_async(&key(4)).await.unwrap()
                );
                let mut stream = store.put_stream(b"large", None, plain()).unwrap();
                for piece in body(8, 600_000).chunks(10_000) {
                    stream.write_async(Bytes::copy_from_slice(piece)).await.unwrap();
                }
                stream.finish_async().await.unwrap();
                store.put_async(b"large too", &body(9, 300_000)).await.unwrap();
                store.put_async(&key(3), &body(10, 300_000)).await.unwrap();
                store.flush_async().await.unwrap();
                let mut found = 0;
                let mut listing = store.keys();
                while let Some(entry) = listing.next_async().await {
                    found += usize::from(keys.contains(&entry.key));
                }
                assert_eq!((found, listing.unreadable()), (keys.len() - 2, 0), "{preset}");
                *held.executor.lock() = None;
            }));
            let read = |key: &[u8]| store.get(key).unwrap().map(|object| object.body().unwrap().to_vec());
            assert_eq!(read(&key(0)).unwrap(), b"new");
            assert_eq!((read(&key(1)), read(&key(2))), (None, Some(body(2, 3000))));
            assert_eq!(read(b"large").unwrap(), body(8, 600_000), "{preset}");
            assert_eq!(read(b"large too").unwrap(), body(9, 300_000));
            assert_eq!(read(&key(3)).unwrap(), body(10, 300_000));
            store.close().unwrap();
        }
    }
}

#[test]
fn opening_checking_and_closing_are_done_aside() {
    for executor in EXECUTORS {
        for preset in PRESETS {
            let folder = tempfile::tempdir().unwrap();
            let (guard, options) = guarded_as(preset, folder.path());
            let store = Store::open(options.clone().durability(Durability::None)).unwrap();
            (0..20).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
            *guard.executor.lock() = Some(std::thread::current().id());
            let again = options.clone();
            executor(Box::pin(async move {
                store.close_async().await.unwrap();
                let store = Store::open_async(again).await.unwrap();
                assert!(store.check_async(|_, _| {}).await.is_clean(), "{preset}");
                store.close_async().await.unwrap();
            }));
            *guard.executor.lock() = None;
            let store = Store::open(options).unwrap();
            let found = (0..20).filter(|i| store.contains(&key(*i)).unwrap()).count();
            assert_eq!(found, 20, "{preset}");
            store.close().unwrap();
        }
    }
}

#[test]
fn a_delete_that_needs_no_look_at_the_device_is_done_by_the_call() {
    let (guard, options) = guarded(32 * MIB, Mode::Cache);
    let store = Store::open(options.clone()).unwrap();
    store.put(b"long", &body(1, 30_000)).unwrap();
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    // The opening is over.
    assert_eq!(store.stats().objects, 1);
    store.put(b"in memory", b"body").unwrap();
    *guard.executor.lock() = Some(std::thread::current().id());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for key in [&b"in memory"[..], b"never put"] {
        let mut delete = Box::pin(store.delete_async(key));
        let Poll::Ready(found) = delete.as_mut().poll(&mut context) else {
            panic!("{:?} was left to another thread", String::from_utf8_lossy(key))
        };
        assert_eq!(found.unwrap(), key == b"in memory");
    }
    // Its entry may be another key's: a delete looks, on another thread.
    let found = futures_executor::block_on(store.delete_async(b"long")).unwrap();
    *guard.executor.lock() = None;
    assert!(found && !store.contains(b"long").unwrap() && !store.contains(b"in memory").unwrap());
    store.close().unwrap();
}

/// Runs two tasks on one thread, until the first is done.
async fn beside(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let mut more = true;
    poll_fn(|context| {
        let done = first.as_mut().poll(context);
        more = more && second.as_mut().poll(context).is_pending();
        done
    })
    .await;
}

async fn yielded() {
    let mut once = false;
    poll_fn(|context| {
        if std::mem::replace(&mut once, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn who_waits_for_clean_space_lets_the_other_tasks_go_on() {
    for executor in EXECUTORS {
        for streamed in [true, false] {
            let (guard, options) = guarded(16 * MIB, Mode::Cache);
            let store = Store::open(options).unwrap();
            guard.set_shut(true);
            let (put, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let (progress, ended) = (put.clone(), over.clone());
            let puts = async move {
                // Twice what there is room for.
                for i in 0..64 {
                    if streamed {
                        let mut stream = store.put_stream(&key(i), Some(500_000), bypass()).unwrap();
                        stream.write_async(body(i, 500_000).into()).await.unwrap();
                        stream.finish_async().await.unwrap();
                    } else {
                        for n in 0..10 {
                            store.put_with_async(&key(i * 10 + n), &body(i, 50_000), &bypass()).await.unwrap();
                        }
                    }
                    progress.fetch_add(1, Relaxed);
                }
                ended.store(true, Relaxed);
            };
            let gate = guard.clone();
            let opener = async move {
                let (mut before, mut still) = (0, 0);
                while still < 300 {
                    let now = put.load(Relaxed);
                    still = if now == before { still + 1 } else { 0 };
                    before = now;
                    std::thread::sleep(Duration::from_millis(1));
                    yielded().await;
                }
                assert!(!over.load(Relaxed), "nobody had to wait");
                gate.set_shut(false);
            };
            executor(Box::pin(beside(puts, opener)));
        }
    }
}

#[test]
fn what_a_task_does_not_want_to_wait_for_is_done_or_refused_at_once() {
    let (_, options) = guarded(16 * MIB, Mode::Cache);
    let store = Store::open(options).unwrap();
    let at_once = plain().no_wait(true);
    drop(store.begin_put(b"key", b"body", &at_once));
    drop(store.begin_put(b"large", &body(1, 200_000), &at_once));
    assert!(store.contains(b"key").unwrap() && store.contains(b"large").unwrap());
    drop(store.begin_delete(b"key"));
    assert!(!store.contains(b"key").unwrap());
    store.close().unwrap();
}

#[test]
fn a_future_that_is_not_polled_has_done_nothing() {
    let (_, options) = guarded(16 * MIB, Mode::Cache);
    let store = Store::open(options).unwrap();
    store.put(b"old", b"body").unwrap();
    let at_once = plain().no_wait(true);
    drop(store.put_async(b"key", b"body"));
    drop(store.put_with_async(b"key", b"body", &at_once));
    drop(store.put_many_async(&[Put::new(b"key", b"body")]));
    drop(store.delete_async(b"old"));
    drop(store.delete_many_async(&[b"old"]));
    drop(store.clone().close_async());
    assert!(!store.contains(b"key").unwrap() && store.contains(b"old").unwrap());
    store.close().unwrap();
}
