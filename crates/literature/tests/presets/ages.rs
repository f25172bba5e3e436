//! Clusters that leave a cache by age, though nothing needs their place.

use std::{sync::Arc, time::Duration};

use picaflor::{ClusterAge, Departure, Error, Mode, Options, Store, device::Device};

use crate::common::{MIB, body, by_hand, key, memory, read};

const LIMIT: Duration = Duration::from_secs(100);

fn cache(preset: &str, age: ClusterAge) -> Options {
    let device: Arc<dyn Device> = memory(96 * MIB, 4096);
    by_hand(preset, device).mode(Mode::Cache).with(|options| options.cluster_age = age)
}

/// Objects 0 to 199 are put, and then for so many seconds others, 120 KB each second. `asked` are read every second.
fn live(store: &Store, options: &Options, seconds: u64, asked: std::ops::Range<u64>) {
    (0..200).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
    store.flush().unwrap();
    for second in 1..=seconds {
        options.clock.advance(Duration::from_secs(1));
        for i in 0..40 {
            let other = 1000 * second + i;
            store.put(&key(other), &body(other, 3000)).unwrap();
        }
        for i in asked.clone() {
            assert_eq!(read(store, &key(i)).unwrap(), body(i, 3000), "{i} after {second} s");
        }
        while store.step().unwrap() {}
    }
}

fn there(store: &Store) -> Vec<u64> {
    (0..200).filter(|i| store.contains(&key(*i)).unwrap()).collect()
}

#[test]
fn clusters_leave_so_long_after_they_were_written_and_not_before() {
    for preset in ["picaflor", "hummingbird", "damelo"] {
        for (age, stays) in
            [(ClusterAge::Unlimited, 200), (ClusterAge::Written(LIMIT), 0), (ClusterAge::Written(LIMIT * 9), 200)]
        {
            let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let listener = Arc::clone(&heard);
            let options = cache(preset, age).with(|options| {
                options.eviction_listener = Some(Arc::new(move |_: &[u8], why| listener.lock().push(why)));
            });
            let store = Store::open(options.clone()).unwrap();
            live(&store, &options, 320, 0..0);
            assert_eq!(there(&store).len(), stays, "{preset} {age:?}");
            let counts = store.stats().counts;
            // What waits to be packed has no cluster, and what is young has one.
            assert_eq!(counts.expired > 4000, age == ClusterAge::Written(LIMIT), "{preset} {age:?} {counts:?}");
            assert_eq!((counts.evicted, counts.damaged), (0, 0), "room was never short: {preset} {age:?}");
            assert!(heard.lock().iter().all(|why| *why == Departure::Expired));
            assert_eq!(heard.lock().len() as u64, counts.expired, "each is told of");
        }
    }
}

#[test]
fn clusters_of_which_something_is_asked_for_stay_while_others_leave() {
    for preset in ["picaflor", "hummingbird", "damelo"] {
        let options = cache(preset, ClusterAge::Unused(LIMIT));
        let store = Store::open(options.clone()).unwrap();
        // Those lie in one or two clusters, of about fifteen.
        live(&store, &options, 320, 40..44);
        let left = there(&store);
        assert!((40..44).all(|i| left.contains(&i)), "{preset}: {left:?}");
        assert!(left.len() < 80, "{preset}: {}", left.len());
        assert_eq!(store.stats().counts.evicted, 0, "{preset}");
    }
}

#[test]
fn ages_begin_anew_at_an_opening() {
    let options = cache("hummingbird", ClusterAge::Written(LIMIT));
    let store = Store::open(options.clone()).unwrap();
    (0..200).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
    store.close().unwrap();
    options.clock.advance(LIMIT * 2);
    let store = Store::open(options.clone()).unwrap();
    while store.step().unwrap() {}
    assert_eq!(there(&store).len(), 200);
}

#[test]
fn who_never_evicts_has_no_ages() {
    for (preset, mode) in [("picaflor", Mode::Store), ("damelo", Mode::Store), ("buddy", Mode::Cache)] {
        let options = cache(preset, ClusterAge::Unused(LIMIT)).mode(mode);
        assert!(matches!(Store::open(options), Err(Error::Option { name: "cluster_age", .. })), "{preset} {mode:?}");
    }
}
