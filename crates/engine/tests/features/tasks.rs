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
    Durability, Mode, Options, PutOptions, Store,
    device::{Device, MemoryDevice, Request},
};

use crate::common::{MIB, body, bypass, in_group, key, plain};

/// A device that one thread may not wait for, and at which the reclaimer waits while the gate is shut.
struct Guarded {
    inner: MemoryDevice,
    executor: Mutex<Option<ThreadId>>,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Guarded {
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

impl Device for Guarded {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> usize {
        self.inner.block_size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pass();
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.pass();
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.pass();
        self.inner.sync()
    }

    // Nobody waits for it.
    fn submit(&self, batch: Vec<Request>) {
        self.inner.submit(batch);
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

fn guarded(bytes: u64, mode: Mode) -> (Arc<Guarded>, Options) {
    let inner = MemoryDevice::new(bytes);
    let device = Guarded { inner, executor: Mutex::new(None), shut: Mutex::new(false), opened: Condvar::new() };
    let device = Arc::new(device);
    let options = Options::on(device.clone()).memory(4 * MIB).mode(mode);
    (device, options.with(|options| options.cluster = 64 << 10))
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
        for preset in ["picaflor", "stream", "pmflf-ts"] {
            let (device, options) = guarded(32 * MIB, Mode::Store);
            let options = options.as_preset(preset).unwrap().durability(Durability::EveryPut);
            let store = Store::open(options.clone()).unwrap();
            (0..50).for_each(|i| store.put(&key(i), &body(i, 3000), &in_group(3)).unwrap());
            store.put(b"large", &body(7, 500_000), &plain()).unwrap();
            // Nothing of it is in memory.
            store.close().unwrap();
            let store = Store::open(options).unwrap();
            let keys: Vec<_> = store.keys().map(|entry| entry.key).collect();
            let tables = preset.starts_with("pmflf");
            // Of tables gets look at the device where they are polled.
            *device.executor.lock() = (!tables).then(|| std::thread::current().id());
            let own = store.clone();
            let held = device.clone();
            executor(Box::pin(async move {
                let store = own;
                store.put_async(&key(0), b"new", &plain()).await.unwrap();
                assert!(store.delete_async(&key(1)).await.unwrap() && !store.delete_async(&key(1)).await.unwrap());
                assert!(store.contains_async(&key(2)).await.unwrap() && !store.contains_async(&key(1)).await.unwrap());
                assert_eq!(store.group_of_async(&key(2)).await.unwrap(), Some(3));
                let mut stream = store.put_stream(b"large", None, plain()).unwrap();
                for piece in body(8, 600_000).chunks(10_000) {
                    stream.write_async(Bytes::copy_from_slice(piece)).await.unwrap();
                }
                stream.finish_async().await.unwrap();
                store.put_async(b"large too", &body(9, 300_000), &plain()).await.unwrap();
                store.put_async(&key(3), &body(10, 300_000), &plain()).await.unwrap();
                store.flush_async().await.unwrap();
                let mut found = 0;
                let mut listing = store.keys();
                while let Some(entry) = listing.next_async().await {
                    found += usize::from(keys.contains(&entry.key));
                }
                assert_eq!((found, listing.unreadable()), (keys.len() - 1, 0), "{preset}");
                *held.executor.lock() = None;
            }));
            let read = |key: &[u8]| store.get(key).unwrap().map(|object| object.bytes().unwrap().to_vec());
            assert_eq!(read(&key(0)).unwrap(), b"new");
            assert_eq!((read(&key(1)), read(&key(2))), (None, Some(body(2, 3000))));
            assert_eq!(read(b"large").unwrap(), body(8, 600_000), "{preset}");
            assert_eq!(read(b"large too").unwrap(), body(9, 300_000));
            assert_eq!(read(&key(3)).unwrap(), body(10, 300_000));
            store.close().unwrap();
        }
    }
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
            let (device, options) = guarded(16 * MIB, Mode::Cache);
            let store = Store::open(options).unwrap();
            device.set_shut(true);
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
                            store.put_async(&key(i * 10 + n), &body(i, 50_000), &bypass()).await.unwrap();
                        }
                    }
                    progress.fetch_add(1, Relaxed);
                }
                ended.store(true, Relaxed);
            };
            let gate = device.clone();
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
    let at_once = PutOptions { no_wait: true, ..plain() };
    drop(store.put_async(b"key", b"body", &at_once));
    drop(store.put_async(b"large", &body(1, 200_000), &at_once));
    assert!(store.contains(b"key").unwrap() && store.contains(b"large").unwrap());
    drop(store.delete_async(b"key"));
    store.close().unwrap();
}
