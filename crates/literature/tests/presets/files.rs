//! A file for each object: where it is, and that a folder is opened again.

use std::path::Path;

use picaflor::{Daemons, Durability, Mode, Options, Store, device::Clock};
use picaflor_sim::kill;

use crate::common::{MIB, body, key, plain, read};

const FILES: [&str; 3] = ["simple", "squid", "multiple-dirs"];

fn options(preset: &str, path: &Path) -> Options {
    let options =
        picaflor_literature::preset(preset).unwrap().place(path).memory(3 * MIB).mode(Mode::Store).capacity(48 * MIB);
    options.with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(1_000_000);
    })
}

/// Paths of all files, in the folder's order.
fn files(path: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                dirs.push(entry);
            } else {
                all.push(entry.strip_prefix(path).unwrap().display().to_string());
            }
        }
    }
    all.retain(|file| !file.starts_with("store-") && file != "clean");
    all
}

fn expected(i: u64) -> Option<Vec<u8>> {
    match i {
        _ if i.is_multiple_of(5) => None,
        _ if i.is_multiple_of(3) => Some(body(i + 1, 777)),
        _ => Some(body(i, i as usize * 30)),
    }
}

fn verify(store: &Store, what: &str) {
    for i in 0..400 {
        assert_eq!(read(store, &key(i)), expected(i), "{what} {i}");
    }
}

#[test]
fn what_is_put_is_found_replaced_deleted_and_there_again() {
    let folder = tempfile::tempdir().unwrap();
    for preset in FILES {
        for durability in [Durability::None, Durability::default()] {
            let path = folder.path().join(format!("{preset}-{durability:?}"));
            let options = options(preset, &path).durability(durability);
            let store = Store::open(options.clone()).unwrap();
            for i in 0..400 {
                let server = plain().server(1 + i as u32 % 7);
                store.put_with(&key(i), &body(i, i as usize * 30), &server).unwrap();
            }
            for i in (0..400).step_by(3) {
                store.put(&key(i), &body(i + 1, 777)).unwrap();
            }
            for i in (0..400).step_by(5) {
                assert!(store.delete(&key(i)).unwrap());
            }
            verify(&store, preset);
            store.flush().unwrap();
            let all = files(&path);
            assert_eq!(all.len(), 400 - 80, "{preset}: one for each object");
            let depth = |file: &String| file.split('/').count();
            match preset {
                "simple" => assert!(all.iter().all(|file| depth(file) == 1)),
                "squid" => assert!(all.iter().all(|file| depth(file) == 3)),
                _ => assert_eq!(
                    std::fs::read_dir(&path).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count(),
                    8
                ),
            }
            // Not closed: the next opening reads what this run wrote.
            kill(store.clone());
            let copy = folder.path().join("copy");
            assert!(std::process::Command::new("cp").arg("-r").args([&path, &copy]).status().unwrap().success());
            let crashed = Store::open(options.clone().with(|o| o.places = vec![picaflor::Place::Path(copy.clone())]));
            let crashed = crashed.unwrap();
            assert!(!crashed.receipt().volumes[0].clean);
            verify(&crashed, preset);
            crashed.close().unwrap();
            std::fs::remove_dir_all(&copy).unwrap();
        }
        let path = folder.path().join(preset);
        let store = Store::open(options(preset, &path)).unwrap();
        store.put(b"large", &body(9, 700_000)).unwrap();
        store.close().unwrap();
        let store = Store::open(options(preset, &path)).unwrap();
        assert!(store.receipt().volumes[0].clean, "{}", store.receipt());
        assert_eq!(read(&store, b"large").unwrap(), body(9, 700_000));
        assert_eq!(store.keys().count(), 1);
        assert!(store.check(|_, _| {}).is_clean());
        store.close().unwrap();
        let other = Store::open(options(if preset == "squid" { "simple" } else { "squid" }, &path)).unwrap_err();
        assert!(other.to_string().contains(preset), "{other}");
    }
}

#[test]
fn a_cache_of_files_keeps_to_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for preset in FILES {
        let path = folder.path().join(preset);
        let store = Store::open(options(preset, &path).mode(Mode::Cache).capacity(4 * MIB)).unwrap();
        for i in 0..1500 {
            store.put(&key(i), &body(i, 4000)).unwrap();
        }
        let bytes: u64 = files(&path).iter().map(|file| path.join(file).metadata().unwrap().len()).sum();
        assert!(bytes <= 4 * MIB, "{preset} {bytes}");
        assert_eq!(read(&store, &key(1499)).unwrap(), body(1499, 4000));
        assert_eq!(read(&store, &key(0)), None);
        let stats = store.stats();
        assert!(stats.counts.evicted > 300 && stats.memory_used <= stats.memory_limit, "{preset} {stats:?}");
        store.close().unwrap();
    }
}

#[test]
fn a_torn_file_gives_way_to_the_version_before() {
    let folder = tempfile::tempdir().unwrap();
    for preset in FILES {
        let path = folder.path().join(preset);
        let store = Store::open(options(preset, &path)).unwrap();
        store.put(b"key", &body(1, 3000)).unwrap();
        store.flush().unwrap();
        let first = files(&path);
        store.put(b"key", &body(2, 3000)).unwrap();
        // Nothing is durable yet, so the version before is still there.
        let second = files(&path).into_iter().find(|file| !first.contains(file)).unwrap();
        assert_eq!(files(&path).len(), 2);
        let copy = folder.path().join(format!("{preset}-copy"));
        assert!(std::process::Command::new("cp").arg("-r").args([&path, &copy]).status().unwrap().success());
        std::fs::write(copy.join(second), b"").unwrap();
        let torn = Store::open(options(preset, &copy)).unwrap();
        assert_eq!(read(&torn, b"key").unwrap(), body(1, 3000), "{preset}");
        assert_eq!(files(&copy).len(), 1);
    }
}
