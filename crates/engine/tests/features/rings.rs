//! Gets through a thread's own ring, beside gets that go other ways.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    thread,
};

use picaflor::{Object, Options, Result, Store, ThreadRing};
use rand::Rng;

use crate::common::{MIB, body, key, rng};

const OBJECTS: u64 = 3000;

fn body_of(i: u64) -> Vec<u8> {
    body(i, 500 + (i * 37 % 20_000) as usize)
}

/// A store in a file, much larger than its memory.
fn filled() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    // Of two keys that share a place in the index a cache keeps one; with this seed there are none.
    let options = Options::new(folder.path().join("store")).capacity(64 * MIB).memory(6 * MIB);
    let store = Store::open(options.with(|options| options.seed = Some(7))).unwrap();
    for i in 0..OBJECTS {
        store.put(&key(i), &body_of(i)).unwrap();
    }
    store.flush().unwrap();
    (folder, store)
}

fn check(i: u64, found: Option<Object>) {
    assert!(found.unwrap().body().unwrap() == body_of(i), "object {i}");
}

type Get = (u64, Pin<Box<dyn Future<Output = Result<Option<Object>>>>>);

/// Polls all of them until so many are over; these are taken out.
async fn until(gets: &mut Vec<Get>, over: usize) {
    let left = gets.len() - over;
    poll_fn(|context| {
        gets.retain_mut(|(i, get)| match get.as_mut().poll(context) {
            Poll::Ready(found) => {
                check(*i, found.unwrap());
                false
            }
            Poll::Pending => true,
        });
        if gets.len() <= left { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn gets_of_one_ring_of_others_and_of_none_see_the_same_objects() {
    let (_folder, store) = filled();
    let stop = Arc::new(AtomicBool::new(false));
    let with_ring = |seed: u64| {
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        move || {
            let ring = ThreadRing::new().unwrap();
            let (mut rng, mut gets) = (rng(seed), Vec::<Get>::new());
            while !stop.load(Relaxed) {
                while gets.len() < 20 {
                    // Often the same, so that reads are shared, also with threads that have no ring.
                    let i = rng.random_range(0..OBJECTS / 10);
                    gets.push((i, Box::pin(store.get_async(&key(i)))));
                }
                ring.block_on(until(&mut gets, 5));
                // A get that blocks, of what is perhaps under way here.
                let i = rng.random_range(0..OBJECTS / 10);
                check(i, store.get(&key(i)).unwrap());
                // These are not waited for any more.
                gets.truncate(10);
            }
            assert!(store.stats().counts.hits_device > 0);
        }
    };
    let without = |seed: u64| {
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        move || {
            let mut rng = rng(seed);
            for _ in 0..3000 {
                let i = rng.random_range(0..OBJECTS / 10);
                check(i, store.get(&key(i)).unwrap());
            }
            stop.store(true, Relaxed);
        }
    };
    // Where the system refuses rings there is nothing to see.
    if ThreadRing::new().is_err() {
        return;
    }
    let threads = [thread::spawn(with_ring(1)), thread::spawn(with_ring(2)), thread::spawn(without(3))];
    for thread in threads {
        thread.join().unwrap();
    }
    store.close().unwrap();
}

#[test]
fn a_get_may_begin_on_a_thread_with_a_ring_and_end_elsewhere() {
    let (_folder, store) = filled();
    let Ok(ring) = ThreadRing::new() else { return };
    for i in 0..200 {
        let mut get = Box::pin(store.get_async(&key(i)));
        let begun = ring.block_on(poll_fn(|context| Poll::Ready(get.as_mut().poll(context))));
        match begun {
            Poll::Ready(found) => check(i, found.unwrap()),
            Poll::Pending => {
                let other = thread::spawn(move || {
                    let ring = ThreadRing::new().unwrap();
                    check(i, ring.block_on(pin!(get)).unwrap());
                });
                ring.block_on(poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if other.is_finished() { Poll::Ready(()) } else { Poll::Pending }
                }));
                other.join().unwrap();
            }
        }
    }
}
