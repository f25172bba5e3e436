//! BUDDY's objects above the threshold are files beside its device, where a folder was given.

use std::{path::Path, sync::Arc};

use picaflor::{
    Daemons, Durability, Error, Mode, Options, Store,
    device::{Clock, Device, Folder, RealFolder},
};
use picaflor_sim::kill;

use crate::common::{MIB, body, key, memory, read};

/// Blocks of 512 bytes.
const THRESHOLD: u32 = 8;
/// Bytes of bodies that lie in slots, and that are files.
const SHORT: usize = 3000;
const LONG: usize = 25_000;

fn options(at: &Path) -> Options {
    let options = picaflor_literature::preset("buddy").unwrap().place(at.join("slots")).long_files_in(at.join("files"));
    options.memory(4 * MIB).mode(Mode::Store).capacity(16 * MIB).durability(Durability::EveryPut).with(|options| {
        options.threshold = THRESHOLD;
        options.cluster = 64 << 10;
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(1_000_000);
    })
}

/// Lengths of the files of long objects.
fn files(at: &Path) -> Vec<u64> {
    let mut all = Vec::new();
    for dir in std::fs::read_dir(at.join("files")).unwrap().map(|dir| dir.unwrap().path()).filter(|dir| dir.is_dir()) {
        all.extend(std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()));
    }
    all.sort_unstable();
    all
}

fn all(store: &Store) -> Vec<Option<Vec<u8>>> {
    (0..40).map(|i| read(store, &key(i))).collect()
}

#[test]
fn long_objects_are_files_whatever_becomes_of_them() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let store = Store::open(options(at)).unwrap();
    let len = |i: u64, turn: u64| if (i + turn).is_multiple_of(2) { LONG } else { SHORT };
    for i in 0..40 {
        store.put(&key(i), &body(i, len(i, 0))).unwrap();
    }
    assert_eq!(files(at).len(), 20, "those above the threshold");
    assert!(files(at).iter().all(|len| (LONG as u64..LONG as u64 + 200).contains(len)), "one object each");
    // Over the threshold both ways; then a third of all is deleted.
    for i in (0..40).step_by(4).chain((1..40).step_by(4)) {
        store.put(&key(i), &body(i + 100, len(i, 1))).unwrap();
    }
    for i in (0..40).step_by(3) {
        assert!(store.delete(&key(i)).unwrap());
    }
    store.flush().unwrap();
    let expected: Vec<_> = (0..40u64)
        .map(|i| {
            let replaced = i % 4 < 2;
            let now = if replaced { body(i + 100, len(i, 1)) } else { body(i, len(i, 0)) };
            (!i.is_multiple_of(3)).then_some(now)
        })
        .collect();
    let long = expected.iter().flatten().filter(|body| body.len() == LONG).count();
    assert_eq!(files(at).len(), long, "what was replaced or deleted is removed");
    assert_eq!(all(&store), expected);
    assert_eq!(store.keys().count(), expected.iter().flatten().count());
    let live = store.stats().volumes[0].live_bytes;
    // As a crash of the process leaves it: a copy, for the store that is killed keeps its locks.
    kill(store);
    let copy = tempfile::tempdir().unwrap();
    let (from, at) = (at, &copy.path().join("copy"));
    assert!(std::process::Command::new("cp").arg("-r").args([from, at]).status().unwrap().success());
    // A file of which no log tells, as a crash leaves it.
    std::fs::create_dir_all(at.join("files/7f")).unwrap();
    let number = u32::MAX >> 1 & !0xff | 0x7f;
    std::fs::write(at.join(format!("files/7f/{number:08x}")), b"left over").unwrap();
    for closed in [false, true] {
        let store = Store::open(options(at)).unwrap();
        assert_eq!(all(&store), expected, "closed before: {closed}");
        assert_eq!(store.stats().volumes[0].live_bytes, live, "files count as slots would");
        let report = store.check(|_, _| {});
        assert!(report.is_clean() && report.unsettled == 0, "{report:?}");
        assert_eq!(files(at).len(), long, "what no log tells of is removed");
        store.close().unwrap();
    }
}

#[test]
fn files_and_slots_share_the_capacity() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let store = Store::open(options(at).memory(16 * MIB).durability(Durability::default())).unwrap();
    let room = store.stats().volumes[0].room_bytes;
    let mut put = 0;
    let why = loop {
        match store.put(&key(put), &body(put, if put % 2 == 0 { LONG } else { SHORT })) {
            Ok(_) => put += 1,
            Err(why) => break why,
        }
    };
    assert!(matches!(why, Error::Full { .. }), "{why}");
    let in_files: u64 = files(at).iter().map(|len| len.next_multiple_of(512)).sum();
    let live = store.stats().volumes[0].live_bytes;
    assert!(live > room * 95 / 100 && in_files > room / 2 && in_files < live, "{in_files}, {live} of {room}");
    store.close().unwrap();
    // A cache goes on, and keeps to it.
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let store = Store::open(options(at).memory(16 * MIB).mode(Mode::Cache).durability(Durability::None)).unwrap();
    for i in 0..4 * put {
        store.put(&key(i), &body(i, if i % 2 == 0 { LONG } else { SHORT })).unwrap();
        store.step().unwrap();
    }
    assert!(store.stats().counts.evicted > put, "{:?}", store.stats().counts.evicted);
    assert!(read(&store, &key(4 * put - 2)).unwrap().len() == LONG);
    store.flush().unwrap();
    let in_files: u64 = files(at).iter().map(|len| len.next_multiple_of(512)).sum();
    assert!(in_files > room / 2 && in_files < room, "{in_files} of {room}");
    store.close().unwrap();
}

#[test]
fn a_large_object_is_files_of_the_longest_pieces() {
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    let store = Store::open(options(at)).unwrap();
    store.put(b"large", &body(5, 1_000_000)).unwrap();
    // 4 MiB of memory make pieces of 128 KiB.
    assert_eq!(files(at).len(), 8);
    store.close().unwrap();
    let store = Store::open(options(at)).unwrap();
    assert_eq!(read(&store, b"large").unwrap(), body(5, 1_000_000));
    assert!(store.delete(b"large").unwrap());
    store.flush().unwrap();
    assert_eq!(files(at).len(), 0);
    store.close().unwrap();
}

#[test]
fn the_folder_is_that_of_the_store_and_buddys_alone() {
    let at = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| at.path().join(name));
    let refused = |options: Options, word: &str| {
        let error = Store::open(options).err().unwrap_or_else(|| panic!("opened: {word}"));
        let Error::Option { name: "long_files", why } = &error else { panic!("{word}: {error}") };
        assert!(why.contains(word), "{word}: {why}");
    };
    for at in [&here, &there] {
        std::fs::create_dir(at).unwrap();
        let store = Store::open(options(at)).unwrap();
        store.put(&key(1), &body(1, LONG)).unwrap();
        store.close().unwrap();
    }
    let without = |options: Options| options.with(|options| options.long_files.clear());
    refused(without(options(&here)), "give that folder");
    refused(without(options(&here)).long_files_in(there.join("files")), "holds no files of this place");
    refused(without(options(&here)).long_files_in(at.path().join("new")), "holds no files of this place");
    refused(options(&here).long_files_in(there.join("files")), "2 folders for 1 places");
    let empty = at.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    refused(without(options(&empty)).long_files_in(there.join("files")), "choose an empty folder");
    let device: Arc<dyn Device> = memory(MIB, 512);
    refused(without(options(&empty)).long_files_in(device), "need a folder");
    // Of two places each has its own.
    let two = |names: [&str; 2]| {
        let options = without(options(&at.path().join("two-a"))).place(at.path().join("two-b"));
        names.iter().fold(options, |options, name| options.long_files_in(at.path().join(name))).capacity(32 * MIB)
    };
    std::fs::create_dir(at.path().join("two-a")).unwrap();
    let store = Store::open(two(["files-a", "files-b"])).unwrap();
    (0..20).for_each(|i| store.put(&key(i), &body(i, LONG)).unwrap());
    store.close().unwrap();
    refused(two(["files-b", "files-a"]), "holds no files of this place");
    let store = Store::open(two(["files-a", "files-b"])).unwrap();
    assert!((0..20).all(|i| read(&store, &key(i)).unwrap() == body(i, LONG)));
    store.close().unwrap();
    // All in slots, for good.
    Store::open(without(options(&empty))).unwrap().close().unwrap();
    refused(options(&empty), "give none");
    for preset in ["buddy-scan", "stream", "picaflor"] {
        let other = picaflor_literature::as_preset(options(&at.path().join("other")), preset).unwrap();
        refused(other, "choose buddy");
    }
    // None of this changed what is there, and any folder will do that is one.
    let folder: Arc<dyn Folder> = Arc::new(RealFolder::open(here.join("files")).unwrap());
    let store = Store::open(without(options(&here)).long_files_in(folder)).unwrap();
    assert_eq!(read(&store, &key(1)).unwrap(), body(1, LONG));
    store.close().unwrap();
}
