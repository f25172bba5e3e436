//! A daemon that panics is noticed: puts and waits fail by its name, gets go on, and the next opening recovers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use picaflor::{Counts, Durability, Error, Mode, Options, Store, device::MemoryDevice};
use picaflor_sim::{HookedDevice, kill};

use crate::common::{MIB, body, bypass, key, read};

/// Whether the thread that is to panic does so now.
type Armed = Arc<AtomicBool>;

/// Of a device on which a thread of this name panics, once it is armed.
fn deadly(thread: &'static str) -> (Armed, Options) {
    let armed = Armed::default();
    let is_armed = Arc::clone(&armed);
    let device = HookedDevice::new(Arc::new(MemoryDevice::new(16 * MIB)), move |_| {
        if is_armed.load(Relaxed) && std::thread::current().name() == Some(thread) {
            // Without a word from the panic's hook.
            std::panic::resume_unwind(Box::new("met a defect"));
        }
    });
    let options = Options::on(Arc::new(device)).memory(8 * MIB).mode(Mode::Cache);
    (armed, options.with(|options| options.cluster = 64 << 10))
}

/// The counts of a store that failed, when its daemons have ended: those that wait are told before.
fn counts_at_close(store: Store) -> Counts {
    let counted = store.clone();
    assert!(matches!(store.close(), Err(Error::Daemon { .. })));
    counted.stats().counts
}

#[test]
fn a_daemon_that_panics_is_named_by_whoever_would_wait_for_it() {
    for name in ["flusher", "reclaimer", "keeper"] {
        let thread = ["picaflor-flusher", "picaflor-reclaimer", "picaflor-keeper"]
            .into_iter()
            .find(|thread| thread.ends_with(name))
            .unwrap();
        let (armed, options) = deadly(thread);
        let store = Store::open(options.clone()).unwrap();
        (0..100).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
        store.flush().unwrap();
        armed.store(true, Relaxed);
        // Twice what the device takes is more than enough for each of them to have work to do.
        let failed = (100..200_000).find_map(|i| store.put_with(&key(i), &body(i, 3000), &bypass()).err());
        match failed {
            Some(Error::Daemon { daemon, why, .. }) => assert_eq!((daemon, why.as_str()), (name, "met a defect")),
            failed => panic!("{name}: {failed:?}"),
        }
        assert!(matches!(store.flush(), Err(Error::Daemon { .. })), "{name}");
        assert!(matches!(store.put(b"late", b"x"), Err(Error::Daemon { .. })), "{name}");
        assert!(matches!(&store.failures()[..], [Error::Daemon { daemon, .. }] if *daemon == name), "{name}");
        let said = store.stats().volumes[0].failed.clone().unwrap();
        assert!(said.contains(&format!("the {name} ended: met a defect")), "{said}");
        let found = (0..200_000).take_while(|i| *i < 100).filter(|i| read(&store, &key(*i)).is_some()).count();
        assert!(name == "reclaimer" || found > 0, "{name}: gets go on");
        let counts = counts_at_close(store);
        assert_eq!(counts.daemons_ended, 1, "{name}");
        armed.store(false, Relaxed);
        let store = Store::open(options).unwrap();
        assert!(!store.receipt().volumes[0].dropped.cold_start, "{name}");
        store.put(b"new", b"body").unwrap();
        store.close().unwrap();
    }
}

#[test]
fn who_waits_for_durability_is_told() {
    let (armed, options) = deadly("picaflor-flusher");
    let store = Store::open(options.durability(Durability::EveryPut)).unwrap();
    store.put(b"first", b"x").unwrap();
    armed.store(true, Relaxed);
    // The flusher does it for tasks.
    let put = futures_executor::block_on(store.put_async(b"second", b"y"));
    assert!(matches!(put, Err(Error::Daemon { daemon: "flusher", .. })), "{put:?}");
    assert!(store.close().is_err());
}

#[test]
fn who_waits_for_a_commit_is_told_if_the_caller_that_makes_it_panics() {
    let (armed, options) = deadly("putter");
    let store = Store::open(options.durability(Durability::EveryPut)).unwrap();
    store.put(b"first", b"x").unwrap();
    armed.store(true, Relaxed);
    let own = store.clone();
    let putter = std::thread::Builder::new().name("putter".into());
    assert!(putter.spawn(move || own.put(b"second", b"y")).unwrap().join().is_err(), "the panic is its caller's");
    let (sender, receiver) = std::sync::mpsc::channel();
    let own = store.clone();
    std::thread::spawn(move || sender.send(own.put(b"third", b"z")));
    let put = receiver.recv_timeout(Duration::from_secs(30)).expect("no wait for ever");
    assert!(matches!(put, Err(Error::Daemon { daemon: "commit", .. })), "{put:?}");
    assert_eq!(store.stats().counts.daemons_ended, 0);
    assert_eq!(read(&store, b"first").unwrap(), b"x", "gets go on");
}

#[test]
fn the_keeper_of_tables_is_noticed_too() {
    let (armed, options) = deadly("picaflor-keeper");
    let options = options.rows(picaflor_literature::ROWS).as_preset("pmflf-ts").unwrap().mode(Mode::Store);
    let store = Store::open(options.clone()).unwrap();
    (0..100).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
    // As `kill -9` leaves it, with work for the keeper.
    kill(store);
    armed.store(true, Relaxed);
    let store = Store::open(options).unwrap();
    let failed = (0..100_000_000_u64).find_map(|_| store.flush().err());
    assert!(matches!(failed, Some(Error::Daemon { daemon: "keeper", .. })), "{failed:?}");
    assert_eq!(read(&store, &key(7)).unwrap(), body(7, 3000), "gets go on");
    assert_eq!(counts_at_close(store).daemons_ended, 1);
}
