//! A place that is given to the next version of a key while a read of the version before is under way there: no get
//! that begins later is given what that read brings, be it by the read or by memory.

use std::{
    future::Future,
    io,
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use futures_executor::block_on;
use picaflor::{
    Error, Extent, Mode, Object, Store,
    device::{AlignedBuf, Device, Done, MemoryDevice, Op, Request},
};

use crate::common::{IN_PLACE, MIB, body, by_hand, key, plain};

const KEY: &[u8] = b"again and again";
const CLUSTER: u64 = 64 << 10;
/// More than half of a cluster, so that each lies at the beginning of one.
const LEN: usize = 40_000;
/// After so many puts of it it has come to lie where it lay.
const PUTS: u64 = 1000;

/// So many others take its place in memory, and leave it its place on the device.
const OTHERS: u64 = 60;

/// A read that was made, and has not come back.
type Under = (Done, io::Result<AlignedBuf>);

/// What is done behind a read of these bytes of the device.
type Behind = (Range<u64>, Box<dyn FnOnce() + Send>);

/// Holds back the answers to reads while it is told to.
struct Late {
    inner: MemoryDevice,
    holds: Mutex<bool>,
    held: Mutex<Vec<Under>>,
    behind: Mutex<Option<Behind>>,
}

impl Late {
    fn new() -> Arc<Self> {
        let inner = MemoryDevice::new(8 * MIB);
        Arc::new(Self { inner, holds: Mutex::default(), held: Mutex::default(), behind: Mutex::default() })
    }
}

impl Device for Late {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> usize {
        self.inner.block_size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buf)?;
        let behind = self.behind.lock().unwrap().take_if(|(of, _)| *of == (offset..offset + buf.len() as u64));
        behind.into_iter().for_each(|(_, act)| act());
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn submit(&self, batch: Vec<Request>) {
        for request in batch {
            match request.op {
                Op::Read(mut buf) if *self.holds.lock().unwrap() => {
                    let read = self.inner.read(request.offset, &mut buf);
                    self.held.lock().unwrap().push((request.done, read.map(|()| buf)));
                }
                op => self.inner.submit(vec![Request { op, ..request }]),
            }
        }
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

/// Where the object lies, if it is on the device.
fn place(store: &Store) -> Option<Vec<Extent>> {
    store.locate(KEY).unwrap().filter(|place| !place.is_empty())
}

fn put(store: &Store, key: &[u8], version: u64) {
    match store.put_with(key, &body(version, LEN), &plain().bypass_memory(true)) {
        Ok(()) | Err(Error::Full { .. } | Error::Refused(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Puts other objects, and the key anew, until it lies there again. Returns its version.
fn come_back(store: &Store, there: &[Extent], others: u64) -> Option<u64> {
    (2..PUTS).find(|version| {
        (0..version.wrapping_mul(0x9e37_79b9) >> 9 & 7).for_each(|other| put(store, &key(version * 8 + other), 1));
        store.delete(KEY).unwrap();
        store.flush().unwrap();
        put(store, KEY, *version);
        store.flush().unwrap();
        store.step().unwrap();
        if !place(store).is_some_and(|place| place == there) {
            return false;
        }
        // It leaves memory.
        (0..others).for_each(|other| put(store, &key(PUTS * 8 + version * OTHERS + other), 1));
        store.flush().unwrap();
        place(store).is_some_and(|place| place == there)
    })
}

/// What gets of later found of the versions before; `None` if it did not come to lie there again.
fn read_across(preset: &str) -> Option<Vec<&'static str>> {
    let device = Late::new();
    let options = || by_hand(preset, device.clone()).mode(Mode::Cache);
    if options().wants_folder() {
        return None;
    }
    let store = Store::open(options()).unwrap();
    put(&store, KEY, 1);
    store.close().unwrap();
    let store = Store::open(options()).unwrap();
    let there = place(&store)?;

    *device.holds.lock().unwrap() = true;
    let (mut first, mut second) = (pin!(store.get_async(KEY)), pin!(store.get_async(KEY)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending(), "{preset}: nothing was read");
    *device.holds.lock().unwrap() = false;
    if device.held.lock().unwrap().is_empty() {
        // It waits for others first.
        return None;
    }

    // Where objects lie in place, others soon take the place of one that is not asked for.
    let others = if IN_PLACE.contains(&preset) { 0 } else { OTHERS };
    let version = come_back(&store, &there, others)?;
    let is_last = |object: &Object| object.body().unwrap() == body(version, LEN);
    let early = second.as_mut().poll(&mut context);
    let held = std::mem::take(&mut *device.held.lock().unwrap());
    let before = &body(1, LEN)[..64];
    let brings_it = |read: &io::Result<AlignedBuf>| read.as_ref().unwrap().windows(64).any(|bytes| bytes == before);
    assert!(held.iter().any(|(_, read)| brings_it(read)), "{preset}: the read under way is not of the version before");
    held.into_iter().for_each(|(done, read)| done(read));
    let second = match early {
        Poll::Ready(found) => found,
        Poll::Pending => block_on(second),
    };
    block_on(first).unwrap();
    let found = [("by that read", second.unwrap()), ("by memory", store.get(KEY).unwrap())];
    let old = found.iter().filter(|(_, object)| !object.as_ref().is_some_and(is_last));
    Some(old.map(|(how, _)| *how).collect())
}

#[test]
fn what_a_read_brings_of_a_place_that_was_given_anew_is_given_to_no_later_get() {
    let came = picaflor_literature::presets().filter_map(|preset| Some((preset, read_across(preset)?)));
    let (kept, lost): (Vec<_>, Vec<_>) = came.partition(|(_, old)| old.is_empty());
    assert!(lost.is_empty(), "versions before are found: {lost:?}; not by {kept:?}");
    assert!(kept.len() >= 5, "the place was given anew by these only: {kept:?}");
}

#[test]
fn the_scrubber_drops_nothing_that_came_to_lie_where_it_read_damage() {
    let device = Late::new();
    let options = || by_hand("picaflor", device.clone()).mode(Mode::Cache);
    let store = Store::open(options()).unwrap();
    put(&store, KEY, 1);
    (0..OTHERS).for_each(|other| put(&store, &key(other), 1));
    store.checkpoint().unwrap();
    let there = place(&store).unwrap();
    // A crash, for then the scrubber looks at everything; and damage.
    std::mem::forget(store);
    let (block, at) = (4096, there[0].offset / 4096 * 4096 + 8192);
    device.write(at, &vec![9; block]).unwrap();

    let store = Store::open(options()).unwrap();
    let cluster = at / CLUSTER * CLUSTER;
    let (last, other) = (Arc::new(Mutex::new(None)), store.clone());
    let came = Arc::clone(&last);
    let come_back = move || *came.lock().unwrap() = come_back(&other, &there, OTHERS);
    *device.behind.lock().unwrap() = Some((cluster..cluster + CLUSTER, Box::new(come_back)));
    for _ in 0..1000 {
        store.step().unwrap();
    }
    let version = last.lock().unwrap().expect("it came to lie there while the scrubber looked");
    let found = store.get(KEY).unwrap().map(|object| object.body().unwrap());
    assert!(found.is_some_and(|found| found == body(version, LEN)), "the new version is gone");
}
