//! Put, get, delete, contains, keys, flush, close, open again.

use std::{sync::Arc, time::Duration};

use picaflor::{
    Extent, Mode, Store, TryGet,
    device::{AlignedBuf, CountedDevice, Device},
};

use crate::common::{IN_PLACE, MIB, body, by_hand, key, memory, plain, read};

fn lengths(i: u64) -> usize {
    match i % 50 {
        0 => 0,
        1 => 200_000,
        2 => 90_000,
        _ => 100 + (i as usize * 37) % 9000,
    }
}

/// Every third is replaced, every fifth deleted.
fn expected(i: u64) -> Option<Vec<u8>> {
    match i {
        _ if i.is_multiple_of(5) => None,
        _ if i.is_multiple_of(3) => Some(body(i + 1, 777)),
        _ => Some(body(i, lengths(i))),
    }
}

fn fill(store: &Store, count: u64) {
    for i in 0..count {
        store.put(&key(i), &body(i, lengths(i))).unwrap();
    }
    for i in (0..count).step_by(3) {
        store.put(&key(i), &body(i + 1, 777)).unwrap();
    }
    for i in (0..count).step_by(5) {
        assert!(store.delete(&key(i)).unwrap(), "{i}");
        assert!(!store.delete(&key(i)).unwrap(), "{i}");
    }
}

fn verify(store: &Store, count: u64) {
    for i in 0..count {
        assert_eq!(read(store, &key(i)), expected(i), "{i}");
        assert_eq!(store.contains(&key(i)).unwrap(), expected(i).is_some(), "{i}");
    }
}

#[test]
fn what_is_put_is_found_replaced_deleted_and_there_again() {
    for preset in IN_PLACE {
        for block in [512, 4096] {
            let device = memory(48 * MIB, block);
            let options = by_hand(preset, device);
            let store = Store::open(options.clone()).unwrap();
            fill(&store, 1500);
            verify(&store, 1500);
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{preset} {stats:?}");
            assert!(stats.counts.hits_device > 0 && stats.counts.cluster_reads == 0, "{preset} {stats:?}");
            store.close().unwrap();
            let store = Store::open(options).unwrap();
            assert!(store.receipt().volumes[0].clean, "{preset} {}", store.receipt());
            verify(&store, 1500);
            let mut keys: Vec<_> = store.keys().map(|entry| (entry.key.to_vec(), entry.len as usize)).collect();
            keys.sort();
            let all = (0..1500).filter_map(|i| expected(i).map(|body| (key(i), body.len())));
            assert_eq!(keys, all.collect::<Vec<_>>(), "{preset}");
            let report = store.check(|_, _| {});
            assert!(report.is_clean() && report.orphans == 0, "{preset} {report:?}");
            while store.step().unwrap() {}
            verify(&store, 1500);
        }
    }
}

#[test]
fn on_a_real_file_with_threads() {
    let folder = tempfile::tempdir().unwrap();
    for preset in IN_PLACE {
        let path = folder.path().join(preset);
        let options = picaflor_literature::preset(preset)
            .unwrap()
            .place(&path)
            .with(|o| o.read_batch_time = Duration::from_millis(3));
        let options = options.capacity(48 * MIB).memory(8 * MIB).mode(Mode::Store);
        let store = Store::open(options.clone()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let store = &store;
                scope.spawn(move || {
                    for i in (thread..800).step_by(4) {
                        store.put(&key(i), &body(i, lengths(i))).unwrap();
                        assert_eq!(read(store, &key(i)).unwrap(), body(i, lengths(i)), "{preset} {i}");
                    }
                });
            }
        });
        for i in (0..800).step_by(5) {
            assert!(store.delete(&key(i)).unwrap());
        }
        store.close().unwrap();
        let other = picaflor_literature::preset("picaflor").unwrap().place(&path).mode(Mode::Store);
        let refused = Store::open(other).unwrap_err().to_string();
        assert!(refused.contains("open it without a preset"), "{refused}");
        let store = Store::open(options.with(|o| o.read_only = true)).unwrap();
        for i in 0..800u64 {
            let wanted = (!i.is_multiple_of(5)).then(|| body(i, lengths(i)));
            assert_eq!(read(&store, &key(i)), wanted, "{preset} {i}");
        }
    }
}

#[test]
fn memory_keeps_what_was_asked_for_last() {
    let options = by_hand("stream", memory(48 * MIB, 4096));
    let store = Store::open(options).unwrap();
    for i in 0..1000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
        // Asked for again and again, it stays.
        assert!(matches!(store.try_get(&key(0)), TryGet::Hit(_)), "{i}");
    }
    assert!(matches!(store.try_get(&key(999)), TryGet::Hit(_)));
    assert!(matches!(store.try_get(&key(1)), TryGet::OnDevice));
    let bypass = plain().bypass_memory(true);
    store.put_with(b"past", b"memory", &bypass).unwrap();
    assert!(matches!(store.try_get(b"past"), TryGet::OnDevice));
}

/// On the ring the entry of some goes to another key of its place; as long as they are in memory they are there. Places
/// of their own say whose they are.
#[test]
fn a_delete_says_truly_whether_gets_found_the_object() {
    const COUNT: u64 = 80_000;
    for (preset, most) in [("picaflor", 60), ("buddy", 0)] {
        let store = Store::open(by_hand(preset, memory(512 * MIB, 4096)).mode(Mode::Cache).memory(256 * MIB)).unwrap();
        (0..COUNT).for_each(|i| store.put(&key(i), &body(i, 100)).unwrap());
        let displaced = COUNT - store.stats().objects;
        assert!((most.min(1)..=most).contains(&displaced), "{preset}: {displaced} of {COUNT} took another key's entry");
        for i in 0..COUNT {
            let was_there = store.get(&key(i)).unwrap().is_some();
            assert_eq!(store.delete(&key(i)).unwrap(), was_there, "{preset} {i}");
            assert!(!store.delete(&key(i)).unwrap());
        }
    }
}

#[test]
fn where_an_object_lies_is_said_of_those_that_lie_on_a_device_by_themselves() {
    for preset in ["stream", "stream-pack", "buddy", "lazy-reads-loc", "simple", "pmflf-pfl"] {
        let folder = tempfile::tempdir().unwrap();
        let device = memory(48 * MIB, 4096);
        let options = by_hand(preset, device.clone()).capacity(48 * MIB).with(|options| {
            if preset == "simple" {
                options.places = vec![folder.path().into()];
            }
        });
        let store = Store::open(options).unwrap();
        fill(&store, 200);
        store.flush().unwrap();
        let mut all = AlignedBuf::zeroed(48 << 20);
        device.read(0, &mut all).unwrap();
        for i in 0..200 {
            let extents = store.locate(&key(i)).unwrap();
            let Some(wanted) = expected(i) else {
                assert_eq!(extents, None, "{preset} {i}");
                continue;
            };
            let extents = extents.unwrap();
            if matches!(preset, "simple" | "pmflf-pfl") {
                assert!(extents.is_empty(), "{preset}");
                continue;
            }
            let of = |extent: &Extent| all[extent.offset as usize..][..extent.len as usize].to_vec();
            assert!(extents.iter().flat_map(of).eq(wanted), "{preset} {i}: {extents:?}");
        }
    }
}

#[test]
fn what_was_put_since_the_opening_is_deleted_without_a_read_and_large_objects_whole() {
    const N: u64 = 1500;
    for preset in IN_PLACE {
        for mode in [Mode::Cache, Mode::Store] {
            // Blocks as short as slots: neither a commit nor a wipe reads what lies beside.
            let device = Arc::new(CountedDevice::new(memory(64 * MIB, 512)));
            let options = by_hand(preset, Arc::clone(&device) as Arc<dyn Device>).mode(mode);
            let store = Store::open(options.clone()).unwrap();
            store.put(&key(N), &body(N, 5 << 20)).unwrap();
            let large = store.stats().live_bytes;
            (0..N).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
            store.flush().unwrap();
            let before = device.counts().reads;
            for i in 0..N {
                assert_eq!(store.delete(&key(i)).unwrap(), i < N, "{preset} {mode:?} {i}");
                assert!(!store.delete(&key(N + 1 + i)).unwrap(), "{preset} {mode:?}: {i} was never there");
            }
            assert_eq!(device.counts().reads, before, "{preset} {mode:?}");
            assert_eq!(store.stats().live_bytes, large, "{preset} {mode:?}");
            assert!(store.delete(&key(N)).unwrap(), "{preset} {mode:?}");
            assert_eq!(store.stats().live_bytes, 0, "{preset} {mode:?}: its pieces went with it");
            // What an opening found is looked at: it may be large.
            store.put(&key(N), &body(N, 5 << 20)).unwrap();
            store.put(&key(0), &body(7, 3000)).unwrap();
            store.close().unwrap();
            let store = Store::open(options).unwrap();
            assert!((1..N).all(|i| read(&store, &key(i)).is_none()), "{preset} {mode:?}");
            assert!(store.delete(&key(0)).unwrap() && store.delete(&key(N)).unwrap(), "{preset} {mode:?}");
            assert_eq!(store.stats().live_bytes, 0, "{preset} {mode:?}");
        }
    }
}
