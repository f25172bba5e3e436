//! What waits to be packed: a put or delete of a key that moves into a cluster meanwhile finds the version before it,
//! though another object takes its number.

use std::sync::Arc;

use picaflor_device::{Clock, MemoryDevice};

use super::{draw, finds, holds, shuttle::thread};
use crate::{Daemons, Durability, Mode, Options, PutOptions, Store, index::Location};

pub(super) const KEY: &[u8] = b"moves";

pub(super) fn open() -> Store {
    let options = Options::on(Arc::new(MemoryDevice::new(3 << 20))).memory(2 << 20).mode(Mode::Cache);
    let store = Store::open(options.durability(Durability::None).with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(1_000_000);
    }));
    let store = store.unwrap();
    // As if so many puts had named a neighbour that others wait for theirs.
    (0..500).for_each(|_| store.volumes()[0].catalog.placer.note_named(true));
    store
}

pub(super) fn put(store: &Store, key: &[u8], version: u8) {
    let options = PutOptions::new().neighbour(&b"page"[..]);
    store.put_with(key, &[version; 100], &options).unwrap();
}

/// The fault: a look at the index and then at what waits, as if nothing moved in between.
fn is_seen(store: &Store) -> bool {
    let volume = &store.volumes()[0];
    let hash = store.hasher().key(KEY).short();
    volume.catalog.index.candidates(hash).into_iter().any(|entry| match entry.location() {
        Location::Buffered { slot, .. } => {
            let staged = volume.catalog.buffers.staging().and_then(|staging| staging.get(slot));
            staged.is_none_or(|staged| staged.frame.key() == KEY)
        }
        Location::OnDisk { .. } => true,
    })
}

/// Replaces or deletes it, or deletes it and puts it again, and looks.
fn write(store: &Store, fault: bool) {
    let (deletes, puts) = [(true, false), (false, true), (true, true)][draw(0..3) as usize];
    if deletes && !(fault && !is_seen(store)) {
        store.delete(KEY).unwrap();
    }
    if puts {
        put(store, KEY, 2);
    }
    let found = || store.get(KEY).unwrap().map(|object| object.body().unwrap()[0]);
    let is_right = |found: Option<u8>| found == puts.then_some(2);
    let found = [found(), found()];
    assert!(found.into_iter().all(is_right), "the version before: {found:?}, deleted: {deletes}, put: {puts}");
}

fn model(fault: bool) {
    let store = open();
    put(&store, KEY, 1);
    let other = store.clone();
    let packs = thread::spawn(move || {
        other.flush().unwrap();
        put(&other, b"another", 1);
    });
    write(&store, fault);
    packs.join().unwrap();
    let last = store.get(KEY).unwrap().map(|object| object.body().unwrap()[0]);
    assert_ne!(last, Some(1), "the version before, in the end");
}

#[test]
fn waiting() {
    holds("waiting", || model(false));
}

#[test]
fn canary_waiting() {
    finds("canary_waiting", "the version before", || model(true));
}
