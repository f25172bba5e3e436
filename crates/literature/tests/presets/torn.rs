//! Files that a crash tears: of what no sync covered a name may be left with nothing behind it, whatever was read under
//! that name before the power went.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use picaflor::{
    Durability, Options, Place, Store,
    device::{Folder, RealFolder},
};
use picaflor_sim::kill;

use crate::common::{IN_PLACE, MIB, body, by_hand, key, memory, plain, read};

/// A folder on a machine that loses its power: contents that no sync followed are gone then, names are there.
struct Powered {
    inner: RealFolder,
    /// Written since the last sync.
    volatile: Mutex<BTreeSet<String>>,
    /// The next write of a superblock is the last thing that reaches the disk.
    fails_at_superblock: AtomicBool,
    is_off: AtomicBool,
    /// Done before the next read.
    before_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Powered {
    fn check(&self) -> io::Result<()> {
        if self.is_off.load(Relaxed) { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn lose_power(&self) {
        self.is_off.store(false, Relaxed);
        for path in std::mem::take(&mut *self.volatile.lock().unwrap()) {
            std::fs::write(self.inner.path().join(path), b"").unwrap();
        }
    }
}

impl Folder for Powered {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.check().and_then(|()| self.inner.make_dir(path))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.inner.write(path, bytes)?;
        let is_last = path.starts_with("store-") && self.fails_at_superblock.swap(false, Relaxed);
        // The kernel may write files in any order.
        if !is_last {
            self.volatile.lock().unwrap().insert(path.into());
        }
        self.is_off.store(is_last, Relaxed);
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let before = self.before_read.lock().unwrap().take();
        before.into_iter().for_each(|before| before());
        self.check().and_then(|()| self.inner.read(path))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.check()?;
        self.volatile.lock().unwrap().remove(path);
        self.inner.remove(path)
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.check().and_then(|()| self.inner.list(each))
    }

    fn sync(&self) -> io::Result<()> {
        self.check()?;
        self.volatile.lock().unwrap().clear();
        self.inner.sync()
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

fn powered(preset: &str, path: &Path) -> (Arc<Powered>, Options) {
    let folder = Arc::new(Powered {
        inner: RealFolder::open(path.join(preset)).unwrap(),
        volatile: Mutex::default(),
        fails_at_superblock: AtomicBool::new(false),
        is_off: AtomicBool::new(false),
        before_read: Mutex::default(),
    });
    let options = by_hand(preset, memory(8 * MIB, 512)).durability(Durability::default()).capacity(8 * MIB);
    let place = Place::Folder(folder.clone());
    (folder, options.with(|options| options.places = vec![place]))
}

#[test]
fn what_an_opening_read_after_a_kill_is_durable_before_the_superblock_vouches_for_it() {
    let path = tempfile::tempdir().unwrap();
    for preset in ["simple", "squid", "multiple-dirs"] {
        let (folder, options) = powered(preset, path.path());
        let store = Store::open(options.clone()).unwrap();
        store.put(&key(1), &body(1, 700)).unwrap();
        store.flush().unwrap();
        store.put(&key(2), &body(2, 7)).unwrap();
        // The process is killed: the kernel still has all it wrote.
        kill(store);
        folder.fails_at_superblock.store(true, Relaxed);
        let error = Store::open(options.clone()).unwrap_err();
        assert!(error.to_string().contains("the power is off"), "{preset}: {error}");
        folder.lose_power();
        let store = Store::open(options).unwrap();
        assert_eq!(read(&store, &key(1)), Some(body(1, 700)), "{preset}");
        assert!(store.check(|_, _| {}).is_clean(), "{preset}: a file with nothing in it is believed");
        assert!(read(&store, &key(2)).is_none_or(|found| found == body(2, 7)), "{preset}");
    }
}

#[test]
fn a_superblock_that_is_lost_takes_no_doubt_from_what_its_run_wrote() {
    let path = tempfile::tempdir().unwrap();
    for preset in ["simple", "squid", "multiple-dirs"] {
        let (folder, options) = powered(preset, path.path());
        // The second one finds a superblock alone, and writes both.
        for _ in 0..2 {
            Store::open(options.clone()).unwrap().close().unwrap();
        }
        let store = Store::open(options.clone()).unwrap();
        store.put(&key(2), &body(2, 7)).unwrap();
        kill(store);
        folder.lose_power();
        // The newer superblock, of the run that wrote the file, rots.
        let superblock = ["store-a", "store-b"].map(|name| path.path().join(preset).join(name));
        let number = |path: &PathBuf| std::fs::read(path).unwrap()[16..24].to_vec();
        let newer = superblock.iter().max_by_key(|path| number(path)).unwrap();
        std::fs::write(newer, [0xa5; 4096]).unwrap();
        let store = Store::open(options).unwrap();
        assert!(store.check(|_, _| {}).is_clean(), "{preset}: a file with nothing in it is believed");
        assert_eq!(read(&store, &key(2)), None, "{preset}");
    }
}

#[test]
fn what_lies_over_the_pieces_of_a_deleted_object_before_a_kill_is_no_damage() {
    for preset in IN_PLACE.into_iter().filter(|preset| *preset != "buddy-scan") {
        let mut outdated = 0;
        for more in (0..120).step_by(5) {
            let options = by_hand(preset, memory(8 * MIB, 512));
            let store = Store::open(options.clone()).unwrap();
            store.put(b"large", &body(1, 700_000)).unwrap();
            store.close().unwrap();
            let store = Store::open(options.clone()).unwrap();
            assert!(store.delete(b"large").unwrap());
            store.flush().unwrap();
            (0..more).for_each(|i| store.put(&key(i), &body(i, 60_000)).unwrap());
            kill(store);
            let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
            let report = store.check(|_, _| {});
            assert!(report.is_clean(), "{preset}, {more}: {report:?}");
            outdated += report.outdated;
        }
        assert!(outdated > 0, "{preset}: nothing was written over");
    }
}

#[test]
fn a_get_whose_file_is_replaced_or_deleted_beneath_it_finds_the_new_one_or_none() {
    let path = tempfile::tempdir().unwrap();
    for preset in ["simple", "squid", "multiple-dirs"] {
        let (folder, options) = powered(preset, path.path());
        let store = Store::open(options).unwrap();
        let old = plain().bypass_memory(true);
        for replacement in [None, Some(body(2, 300))] {
            store.put_with(&key(1), &body(1, 700), &old).unwrap();
            store.flush().unwrap();
            let (other, new) = (store.clone(), replacement.clone());
            let change = move || {
                match new {
                    Some(new) => other.put(&key(1), &new).unwrap(),
                    None => assert!(other.delete(&key(1)).unwrap()),
                }
                other.flush().unwrap();
            };
            *folder.before_read.lock().unwrap() = Some(Box::new(change));
            assert_eq!(read(&store, &key(1)), replacement, "{preset}");
            assert!(folder.before_read.lock().unwrap().is_none(), "{preset}: the file was read");
        }
    }
}
