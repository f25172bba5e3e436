//! What a store says of itself: listings and statistics.

use std::{collections::HashMap, sync::Arc};

use picaflor::{
    Mode, Options, Store,
    device::{AlignedBuf, Device, MemoryDevice},
};
use picaflor_format::zone::Map;
use picaflor_sim::{Fault, FaultyDevice, On, Rule, kill};

use crate::common::{MIB, body, by_hand, bypass, counted, key};

#[test]
fn a_cold_start_that_is_cut_short_starts_cold_again() {
    let mut cut = 0;
    for nth in 1..12 {
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), nth));
        let options = || by_hand(device.clone()).mode(Mode::Cache);
        let store = Store::open(options()).unwrap();
        (0..200).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
        store.flush().unwrap();
        // As `kill -9` leaves it; then its clusters cannot be read, and the power fails.
        kill(store);
        device.add(Rule::rate(Fault::ReadError, 1.0).within(MIB..32 * MIB));
        device.add(Rule::nth(Fault::Crash(On::Write), nth));
        let opened = Store::open(options());
        if let Ok(store) = opened {
            assert!(store.receipt().volumes[0].dropped.cold_start);
            break;
        }
        device.clear_rules();
        device.revive().unwrap();
        let store = Store::open(options()).unwrap();
        let receipt = &store.receipt().volumes[0];
        let found = (0..200).filter(|i| store.contains(&key(*i)).unwrap()).count();
        assert!(found == 0 || found == 200, "write {nth}: {found} objects; {receipt:?}");
        // Or else the checkpoint of the empty store was durable by then.
        let known = receipt.dropped.cold_start || receipt.checkpoint == "current";
        assert!(found == 200 || known, "write {nth}: {receipt:?}");
        cut += u64::from(receipt.dropped.cold_start);
    }
    assert!(cut > 1, "the power failed once it had begun to empty the store");
}

/// A cache of 4 MiB, full and closed twice, that then evicts objects of its checkpoint for `more` others and is killed
/// before a commit notes which of its clusters are written again.
fn evicts_and_is_killed(device: &Arc<FaultyDevice>, more: u64) -> Options {
    let options = by_hand(Arc::clone(device) as Arc<dyn Device>);
    for (begin, end) in [(0, 2000), (2000, 2010), (2010, 2010 + more)] {
        let store = Store::open(options.clone()).unwrap();
        for i in begin..end {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        if begin < 2010 { store.close().unwrap() } else { kill(store) }
    }
    options
}

#[test]
fn what_was_evicted_before_a_crash_is_no_damage_and_its_entries_go() {
    let mut outdated = 0;
    for more in (0..600).step_by(60) {
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(4 * MIB)), more));
        let options = evicts_and_is_killed(&device, more);
        let audit = |options: &Options| {
            let store = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
            let report = store.check(|_, _| ());
            assert!(report.is_clean() && report.intact + report.outdated == report.entries, "{more}: {report:?}");
            report.outdated
        };
        outdated += audit(&options);
        let store = Store::open(options.clone()).unwrap();
        while store.step().unwrap() {}
        store.close().unwrap();
        assert_eq!(audit(&options), 0, "{more}");
    }
    assert!(outdated > 0, "no cluster was written again before its note");
}

#[test]
fn what_may_have_been_written_over_before_a_crash_is_not_called_damaged_and_what_rots_after_a_close_is() {
    for crashed in [true, false] {
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(4 * MIB)), 1));
        let options = evicts_and_is_killed(&device, 20);
        if !crashed {
            let store = Store::open(options.clone()).unwrap();
            while store.step().unwrap() {}
            store.close().unwrap();
        }
        // The crash may have kept these sectors of a later use of the cluster, and none before them.
        let mut image = AlignedBuf::zeroed(4 * MIB as usize);
        device.read(0, &mut image).unwrap();
        let last = body(1999, 3000);
        let at = image.windows(3000).position(|window| window == last).unwrap() / 512 * 512 + 1024;
        device.damage(at as u64, &[7; 1024]).unwrap();
        let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
        let report = store.check(|_, _| ());
        assert_eq!((report.damaged.len(), report.unsettled), if crashed { (0, 1) } else { (1, 0) }, "{report:?}");
    }
}

/// A store in which large objects were deleted and others of this length written over them, killed when the pages that
/// tell of that were not written.
fn writes_over_chunks_and_is_killed(device: &Arc<MemoryDevice>, large: usize, small: usize) -> Options {
    let options = by_hand(Arc::clone(device) as Arc<dyn Device>).mode(Mode::Store);
    let store = Store::open(options.clone()).unwrap();
    let count = (2_700_000 / large) as u64;
    (0..count).for_each(|i| store.put(&key(i), &body(i, large)).unwrap());
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    (0..count - 1).for_each(|i| assert!(store.delete(&key(i)).unwrap()));
    store.flush().unwrap();
    let journal = Map::new(4 * MIB, 64 << 10).unwrap().journal;
    let pages = || {
        let mut ring = AlignedBuf::zeroed(journal.len as usize);
        device.read(journal.start, &mut ring).unwrap();
        ring
    };
    let before = pages();
    for i in 20..20 + (1_200_000 / small) as u64 {
        let far_apart = bypass().group(i as u32);
        store.put_with(&key(i), &body(i, small), &far_apart).unwrap();
    }
    store.flush().unwrap();
    kill(store);
    device.write(journal.start, &before).unwrap();
    options
}

#[test]
fn a_piece_that_left_is_not_called_lost_however_many_openings_ago_its_place_was_written_again() {
    // The last piece of the longer ones lies behind what small ones fill of a cluster.
    for (large, small) in [(150_000, 2_000), (300_000, 30_000)] {
        let device = Arc::new(MemoryDevice::new(4 * MIB));
        let options = writes_over_chunks_and_is_killed(&device, large, small);
        let outdated = |what: u64| {
            let store = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
            let report = store.check(|_, _| ());
            assert!(report.is_clean(), "{large}, opening {what}: {report:?}");
            report.outdated
        };
        for opening in 0..4 {
            assert!(outdated(opening) > 0, "{large}, opening {opening}");
            // Without a step nothing is scrubbed.
            Store::open(options.clone()).unwrap().close().unwrap();
        }
        let store = Store::open(options.clone()).unwrap();
        while store.step().unwrap() {}
        store.close().unwrap();
        assert_eq!(outdated(4), 0, "{large}");
    }
}

#[test]
fn what_a_large_object_lost_before_a_crash_makes_it_a_miss_and_no_error() {
    let (mut whole, mut missed) = (0, 0);
    for more in (1..24).step_by(2) {
        for (read_only, openings) in [(false, 0), (true, 0), (false, 1), (true, 2)] {
            let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(4 * MIB)), more));
            let options = by_hand(Arc::clone(&device) as Arc<dyn Device>);
            for (begin, end) in [(0, 40), (40, 41), (41, 41 + more)] {
                let store = Store::open(options.clone()).unwrap();
                (begin..end).for_each(|i| store.put(&key(i), &body(i, 300_000)).unwrap());
                if begin < 41 { store.close().unwrap() } else { kill(store) }
            }
            // Closed before the scrubber has come to anything.
            (0..openings).for_each(|_| Store::open(options.clone()).unwrap().close().unwrap());
            let store = Store::open(options.with(|options| options.read_only = read_only)).unwrap();
            for i in 0..41 {
                match store.get(&key(i)).unwrap() {
                    Some(object) => assert_eq!(object.body().unwrap(), body(i, 300_000), "{more}, {i}"),
                    None => missed += 1,
                }
                whole += u64::from(store.contains(&key(i)).unwrap());
            }
        }
    }
    assert!(whole > 20 && missed > 20, "{whole} whole, {missed} missed");
}

#[test]
fn a_listing_has_every_object_once_and_says_how_far_it_is() {
    let (_, options) = counted(32 * MIB);
    let store = Store::open(options.mode(Mode::Store)).unwrap();
    for i in 0..3000 {
        store.put_with(&key(i), &body(i, 500 + i as usize), &bypass().group(i as u32 % 5)).unwrap();
    }
    store.put(&key(3000), &body(1, 400_000)).unwrap();
    for i in (0..3000).step_by(10) {
        store.delete(&key(i)).unwrap();
        store.put(&key(i + 1), &body(i, 50)).unwrap();
    }
    let mut keys = store.keys();
    let (mut seen, mut before) = (HashMap::new(), (0, 0));
    while let Some(entry) = keys.next() {
        let now = keys.progress();
        assert!(now.0 >= before.0 && now.0 <= now.1);
        before = now;
        assert!(seen.insert(entry.key.to_vec(), entry).is_none());
    }
    assert_eq!(keys.progress().0, before.1);
    assert_eq!(seen.len(), 3001 - 300);
    for i in 0..3000u64 {
        let expected = match i % 10 {
            0 => None,
            1 => Some((50, 0)),
            _ => Some((500 + i, i as u32 % 5)),
        };
        assert_eq!(seen.get(&key(i)).map(|entry| (entry.len, entry.group)), expected, "{i}");
    }
    assert_eq!(seen[&key(3000)].len, 400_000);
    let listed = serde_json::to_value(&seen[&key(3000)]).unwrap();
    assert_eq!(listed["key"], String::from_utf8(key(3000)).unwrap());
}

#[test]
fn statistics_are_json() {
    let (_, options) = counted(32 * MIB);
    let store = Store::open(options).unwrap();
    store.put(b"a", b"x").unwrap();
    store.get(b"a").unwrap();
    store.get(b"b").unwrap();
    let stats: serde_json::Value = serde_json::from_str(&serde_json::to_string(&store.stats()).unwrap()).unwrap();
    assert_eq!(stats["counts"]["puts"], 1);
    assert_eq!(stats["counts"]["gets"], 2);
    assert_eq!(stats["misses"]["absent"], 1);
    assert_eq!(stats["refusals"]["no clean space"], 0);
    assert_eq!(stats["volumes"][0]["backend"], "memory");
    assert_eq!(serde_json::to_value(store.receipt()).unwrap()["volumes"][0]["created"], true);
    assert!(serde_json::to_value(store.check(|_, _| ())).unwrap()["damaged"].as_array().unwrap().is_empty());
}
