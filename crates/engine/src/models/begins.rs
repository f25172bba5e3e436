//! A checkpoint begins while a put that waits takes the place of a version in an open buffer: what the index tells by
//! then, the checkpoint knows, and the version before does not come back.

use super::{
    finds, holds,
    shuttle::thread,
    waiting::{KEY, open, put},
};
use crate::{PutOptions, log::unfinished};

/// The fault: what replaced objects of the buffer is looked at first, and then whether one was.
fn model(fault: bool) {
    let store = open();
    store.put_with(KEY, &[1; 100], &PutOptions::new().bypass_memory(true)).unwrap();
    let other = store.clone();
    let puts = thread::spawn(move || put(&other, KEY, 2));
    let volume = &store.volumes()[0];
    let hash = store.hasher().key(KEY).short();
    let is_replaced = || volume.catalog.waiting().get(hash).is_some();
    let was_replaced = is_replaced();
    let (begun, ..) = unfinished::begin(volume.parts(), &volume.appender);
    let is_known = begun.replaced.iter().any(|(replaced, _)| *replaced == hash);
    let was_replaced = if fault { is_replaced() } else { was_replaced };
    assert!(is_known || !was_replaced, "the version before comes back");
    puts.join().unwrap();
}

#[test]
fn begins() {
    holds("begins", || model(false));
}

#[test]
fn canary_begins() {
    finds("canary_begins", "the version before comes back", || model(true));
}
