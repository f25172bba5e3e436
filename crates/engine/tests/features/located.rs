//! Where objects lie: the device has their bytes there.

use std::{sync::Arc, time::Duration};

use futures_executor::block_on;
use picaflor::{
    Error, Expiry, Extent, Mode, Place, PutOptions, Store,
    device::{AlignedBuf, Clock, Device, MemoryDevice},
};

use crate::common::{KIB, MIB, body, by_hand, key, plain};

/// What devices have at these places.
fn at(devices: &[Arc<MemoryDevice>], extents: &[Extent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for extent in extents {
        let (start, end) = (extent.offset / 4096 * 4096, (extent.offset + extent.len).next_multiple_of(4096));
        let mut buf = AlignedBuf::zeroed((end - start) as usize);
        devices[extent.volume].read(start, &mut buf).unwrap();
        bytes.extend_from_slice(&buf[(extent.offset - start) as usize..][..extent.len as usize]);
    }
    bytes
}

fn lens(i: u64) -> usize {
    [0, 100, 5000, 40_000, 64 << 10, 300_000][i as usize % 6]
}

#[test]
fn the_device_has_an_object_where_the_store_says() {
    for mode in [Mode::Cache, Mode::Store] {
        let devices = [32, 32].map(|size| Arc::new(MemoryDevice::new(size * MIB)));
        let options = || {
            let places = devices.iter().map(|device| Place::Device(device.clone())).collect();
            by_hand(Arc::new(MemoryDevice::new(0))).mode(mode).with(|options| options.places = places)
        };
        let store = Store::open(options()).unwrap();
        for i in 0..120 {
            let put = PutOptions::new().metadata("of some length").neighbour(key(i / 6 * 6));
            store.put_with(&key(i), &body(i, lens(i)), &put).unwrap();
        }
        (0..120).step_by(7).for_each(|i| store.put(&key(i), &body(i + 1, lens(i))).unwrap());
        store.delete(&key(5)).unwrap();
        store.flush().unwrap();
        let verify = |store: &Store| {
            for i in 0..120 {
                let Some(extents) = store.locate(&key(i)).unwrap() else {
                    assert_eq!(i, 5, "it is there");
                    continue;
                };
                let seed = i + u64::from(i % 7 == 0);
                assert!(
                    at(&devices, &extents) == body(seed, lens(i)),
                    "{mode:?} {i} of {} bytes: {extents:?}",
                    lens(i)
                );
                assert_eq!(extents.len() > 1, lens(i) >= 64 << 10, "{i}: {extents:?}");
            }
        };
        verify(&store);
        // From the device, after that.
        store.close().unwrap();
        let store = Store::open(options()).unwrap();
        verify(&store);
        assert_eq!(block_on(store.locate_async(&key(3))).unwrap(), store.locate(&key(3)).unwrap());
        let stats = store.stats();
        assert_eq!((stats.memory_objects, stats.counts.gets), (0, 0), "asking where is no get: {stats:?}");
        for i in 0..120 {
            store.get(&key(i)).unwrap();
        }
        // And where memory has the clusters that they lie in.
        verify(&store);
    }
}

#[test]
fn what_has_no_place_yet_or_is_not_there_is_said_so() {
    let device = Arc::new(MemoryDevice::new(32 * MIB));
    let clock = Clock::virtual_at(1_000_000);
    let options = by_hand(device.clone()).with(|options| options.clock = clock.clone());
    let store = Store::open(options).unwrap();
    store.put(&key(1), &body(1, 100)).unwrap();
    assert_eq!(store.locate(&key(1)).unwrap(), Some(Vec::new()), "it is in memory");
    assert_eq!(store.locate(&key(2)).unwrap(), None);
    store.put_with(&key(3), &body(3, 100), &plain().expiry(Expiry::After(Duration::from_secs(1)))).unwrap();
    store.put(&key(4), &body(4, 200 * KIB as usize)).unwrap();
    store.flush().unwrap();
    assert_eq!(at(std::slice::from_ref(&device), &store.locate(&key(3)).unwrap().unwrap()), body(3, 100));
    clock.advance(Duration::from_secs(2));
    assert_eq!(store.locate(&key(3)).unwrap(), None, "it has expired");
    assert_eq!(store.locate(&key(4)).unwrap().unwrap().len(), 4);
    store.delete(&key(4)).unwrap();
    assert_eq!(store.locate(&key(4)).unwrap(), None);
    store.clone().close().unwrap();
    assert!(matches!(store.locate(&key(1)), Err(Error::Closed)));
}
