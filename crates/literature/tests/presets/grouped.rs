//! Objects in groups, which the tests of `damelo` and of its pages share.

use picaflor::{Daemons, Options, PutOptions, Store};

use crate::common::{body, read};

pub(crate) fn key(group: u32, i: u64) -> Vec<u8> {
    format!("/group-{group:02}/object-{i:06}").into_bytes()
}

pub(crate) fn in_group(group: u32) -> PutOptions {
    PutOptions::new().group(group)
}

pub(crate) fn put(store: &Store, group: u32, i: u64, len: usize) {
    store.put_with(&key(group, i), &body(i, len), &in_group(group)).unwrap();
}

/// Whether eight threads delete it.
pub(crate) fn is_gone(i: u64) -> bool {
    i % 11 == 3
}

/// In a fresh store that is `prepared`, eight threads put 1,600 objects in five groups, read one that they put before
/// or just now, and delete every eleventh. `seen` is told the number of the put, that of the object read, and what was
/// found; `then` comes last each time, with group, thread and number. Then everything is there that should be, before a
/// restart and after it, and the store is clean.
pub(crate) fn eight_threads(
    options: &Options,
    len: impl Fn(u64) -> usize + Sync,
    prepared: impl FnOnce(&Store),
    seen: impl Fn(u64, u64, Option<Vec<u8>>) + Sync,
    then: impl Fn(&Store, u32, u64, u64) + Sync,
) {
    let mode = options.mode;
    let store = Store::open(options.clone()).unwrap();
    prepared(&store);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (store, len, seen, then) = (&store, &len, &seen, &then);
            scope.spawn(move || {
                let group = 1 + (thread % 5) as u32;
                for i in (thread..1600).step_by(8) {
                    put(store, group, i, len(i));
                    let back = i / 2 / 8 * 8 + thread;
                    seen(i, back, read(store, &key(group, back)));
                    if is_gone(i) {
                        assert!(store.delete(&key(group, i)).unwrap());
                    }
                    then(store, group, thread, i);
                }
            });
        }
    });
    let verify = |store: &Store| {
        for i in 0..1600u64 {
            let group = 1 + (i % 8 % 5) as u32;
            let wanted = (!is_gone(i)).then(|| body(i, len(i)));
            assert_eq!(read(store, &key(group, i)), wanted, "{mode:?} {i}");
        }
    };
    verify(&store);
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    verify(&store);
    store.close().unwrap();
    // What is in memory is no longer on the device only, so before anything is read.
    let store = Store::open(options.clone().with(|o| o.daemons = Daemons::Manual)).unwrap();
    let report = store.check(|_, _| {});
    assert!(report.is_clean(), "{report:?}");
}
