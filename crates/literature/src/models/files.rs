//! Commits where nothing but files says what is there: a delete that returned with `delete_count = 1` is
//! durable, whatever else is deleted beside it.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::{
    Mutex,
    models::{draw, finds, holds},
    shuttle::thread,
};
use picaflor::{Daemons, Durability, Options, Place, Store};
use picaflor_device::{Clock, Folder};

type Files = BTreeMap<String, Vec<u8>>;

/// Files of which a crash leaves what the last sync found, or more.
#[derive(Default)]
struct Model {
    now: Mutex<Files>,
    durable: Mutex<Files>,
}

impl Folder for Model {
    fn make_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.now.lock().insert(path.into(), bytes.into());
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.now.lock().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.now.lock().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.now.lock().iter().for_each(|(path, bytes)| each(path, bytes.len() as u64));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let now = self.now.lock().clone();
        *self.durable.lock() = now;
        Ok(())
    }

    fn backend(&self) -> String {
        "files of a model".into()
    }
}

fn options(folder: Arc<Model>, preset: &str, deletes: u64) -> Options {
    // The path is not looked at: the folder takes its place.
    let mut options = crate::preset(preset).unwrap().place("nowhere").memory(4 << 20).durability(Durability::EveryPut);
    options.places = vec![Place::Folder(folder)];
    options.capacity = 64 << 20;
    options.seed = Some(7);
    options.daemons = Daemons::Manual;
    options.clock = Clock::virtual_at(1_000_000);
    options.delete_count = deletes;
    options
}

fn key(i: u64) -> String {
    format!("http://host/{i}")
}

/// Whether one of the files is this key's: its contents say so.
fn has(files: &Files, i: u64) -> bool {
    files.values().any(|bytes| bytes.windows(key(i).len()).any(|window| window == key(i).as_bytes()))
}

/// The fault: one delete may be volatile.
fn model(fault: bool) {
    let folder = Arc::new(Model::default());
    let preset = ["simple", "squid"][draw(0..2) as usize];
    let deletes = if fault { 2 } else { 1 };
    let store = Store::open(options(Arc::clone(&folder), preset, deletes)).unwrap();
    (0..4).for_each(|i| store.put(key(i).as_bytes(), b"body").unwrap());
    let threads: Vec<_> = (0..2u64)
        .map(|thread| {
            let (store, folder) = (store.clone(), Arc::clone(&folder));
            thread::spawn(move || {
                for i in [thread, thread + 2] {
                    if draw(0..2) == 0 {
                        store.put(format!("other {i}").as_bytes(), b"more").unwrap();
                    }
                    assert!(store.delete(key(i).as_bytes()).unwrap(), "it was there");
                    let left = has(&folder.durable.lock(), i);
                    assert!(!left, "a crash brings back what a delete of {preset} that returned had deleted: {i}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    (0..4).for_each(|i| assert!(store.get(key(i).as_bytes()).unwrap().is_none()));
}

#[test]
fn files() {
    holds("files", || model(false));
}

#[test]
fn canary_files() {
    finds("canary_files", "a crash brings back", || model(true));
}
