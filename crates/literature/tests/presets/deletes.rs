//! Deletes that several threads acknowledge where objects speak for themselves, in files or in slots: while one commit
//! removes what it covers, no later delete is taken for covered.

use std::{
    collections::HashMap,
    future::Future,
    io,
    path::Path,
    pin::pin,
    sync::{Arc, Condvar, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use picaflor::{
    Durability, Mode, Options, Place, Store,
    device::{Folder, MemoryDevice, RealFolder},
};
use picaflor_sim::{Asked, FaultyDevice, HookedDevice, On};

use crate::common::{MIB, body, key, read};

/// Lets everybody through until it is shut, then holds who comes.
#[derive(Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    fn set_shut(&self, shut: bool) {
        self.state.lock().unwrap().0 = shut;
        self.changed.notify_all();
    }

    fn wait_until_somebody_is_held(&self) {
        let mut state = self.state.lock().unwrap();
        while state.1 == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// A folder whose syncs go through a gate.
struct Gated(RealFolder, Arc<Gate>);

impl Folder for Gated {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.0.make_dir(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.write(path, bytes)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.0.list(each)
    }

    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }

    fn backend(&self) -> String {
        self.0.backend()
    }
}

/// A cache that commits when it is asked only.
fn options(preset: &str, count: u64) -> Options {
    let day = Duration::from_secs(86_400);
    let options = picaflor_literature::preset(preset)
        .unwrap()
        .place("nowhere")
        .memory(3 * MIB)
        .mode(Mode::Cache)
        .capacity(8 * MIB);
    options.durability(Durability::Bounded { time: day, puts: u64::MAX }).with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        (options.delete_time, options.delete_count) = (day, count);
    })
}

#[test]
fn deletes_are_volatile_until_the_commit_that_covers_them_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    for preset in ["buddy-scan", "simple", "squid", "multiple-dirs"] {
        let gate = Arc::new(Gate::default());
        let medium = FaultyDevice::new(Arc::new(MemoryDevice::new(8 * MIB)), 1);
        let path = folder.path().join(preset);
        let place = match preset {
            "buddy-scan" => {
                let own = gate.clone();
                let hook = move |asked: Asked| {
                    if asked.on == On::Sync {
                        own.pass()
                    }
                };
                Place::Device(Arc::new(HookedDevice::new(Arc::new(medium.clone()), hook)))
            }
            _ => Place::Folder(Arc::new(Gated(RealFolder::open(&path).unwrap(), gate.clone()))),
        };
        let store = Store::open(options(preset, 2).with(|options| options.places = vec![place])).unwrap();
        for i in 0..2 {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        store.flush().unwrap();
        assert!(store.delete(&key(0)).unwrap(), "{preset}");
        gate.set_shut(true);
        let second = std::thread::spawn({
            let store = store.clone();
            move || store.delete(&key(1)).unwrap()
        });
        gate.wait_until_somebody_is_held();
        // Two are volatile, and this one makes three. It is of nothing, so that nothing has to be read for it.
        let mut third = pin!(store.begin_delete(b"nothing"));
        let polled = third.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        gate.set_shut(false);
        assert!(matches!(polled, Poll::Pending), "{preset}: acknowledged before anything made it durable");
        assert!(!futures_executor::block_on(third).unwrap() && second.join().unwrap(), "{preset}");
        if preset == "buddy-scan" {
            medium.crash().unwrap();
            drop(store);
            medium.revive().unwrap();
            let again = options(preset, 2).with(|options| options.places = vec![Place::Device(Arc::new(medium))]);
            let store = Store::open(again).unwrap();
            assert!((0..2).all(|i| read(&store, &key(i)).is_none()), "{preset}");
        } else {
            assert_eq!(named(&path, b"objects"), 0, "{preset}");
        }
    }
}

/// Files under a folder that hold these bytes.
fn named(path: &Path, bytes: &[u8]) -> usize {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let holds = |found: Vec<u8>| found.windows(bytes.len()).any(|window| window == bytes);
    entries
        .map(|entry| match entry.is_dir() {
            true => named(&entry, bytes),
            // Another thread may have removed it.
            false => usize::from(std::fs::read(&entry).is_ok_and(holds)),
        })
        .sum()
}

/// Knows which keys have a file. Its syncs cost nothing, so that commits follow each other closely.
struct Known(RealFolder, Mutex<HashMap<String, Vec<u8>>>);

impl Known {
    fn has(&self, key: &[u8]) -> bool {
        let holds = |bytes: &Vec<u8>| bytes.windows(key.len()).any(|window| window == key);
        self.1.lock().unwrap().values().any(holds)
    }
}

impl Folder for Known {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.0.make_dir(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.write(path, bytes)?;
        self.1.lock().unwrap().insert(path.into(), bytes.to_vec());
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)?;
        self.1.lock().unwrap().remove(path);
        Ok(())
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.0.list(each)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn backend(&self) -> String {
        self.0.backend()
    }
}

#[test]
fn of_an_object_whose_delete_was_acknowledged_there_is_no_file() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 2000;
    let root = tempfile::tempdir().unwrap();
    // Where each put leads a commit of its own, deletes come at any moment of one.
    for (preset, durability) in
        [("simple", Durability::EveryPut), ("simple", Durability::None), ("multiple-dirs", Durability::EveryPut)]
    {
        let path = root.path().join(format!("{preset}-{durability:?}"));
        let folder = Arc::new(Known(RealFolder::open(path).unwrap(), Mutex::default()));
        let options = options(preset, 1).durability(durability);
        let store = Store::open(options.with(|options| options.places = vec![Place::Folder(folder.clone())])).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, folder) = (&store, &folder);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Every second one puts only, the same few objects again and again.
                        let deletes = thread % 2 == 1;
                        let key = key(thread * 1_000_000 + if deletes { round } else { round % 8 });
                        store.put(&key, &body(round, 300)).unwrap();
                        if !deletes {
                            continue;
                        }
                        assert!(store.delete(&key).unwrap());
                        assert!(!folder.has(&key), "{preset} {durability:?} {thread} {round}");
                    }
                });
            }
        });
        store.close().unwrap();
    }
}
