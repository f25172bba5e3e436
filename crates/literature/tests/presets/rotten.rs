//! Stores of tables whose index rots: the check tells, the keeper mends, and what an opening needs it mends itself.

use picaflor::{
    Error, Options, Priority, Store,
    device::{AlignedBuf, Device, MemoryDevice},
};
use picaflor_format::{
    BLOCK,
    htod::{SECTOR, SECTORS, check_sector},
};
use picaflor_sim::kill;

use crate::common::{MIB, body, by_hand, key, memory, read};

const ENTRIES: u64 = 400;

fn filled(options: &Options) -> Store {
    let store = Store::open(options.clone()).unwrap();
    store.group(3).set(Priority::Loved);
    for i in 0..ENTRIES {
        store.put(&key(i), &body(i, 700)).unwrap();
    }
    for i in (0..ENTRIES).step_by(7) {
        assert!(store.delete(&key(i)).unwrap());
    }
    store
}

fn expected(i: u64) -> Option<Vec<u8>> {
    (!i.is_multiple_of(7)).then(|| body(i, 700))
}

/// Flips a bit in one sector of every index page of these tables, by their numbers; says of how many.
fn rot(device: &MemoryDevice, tables: &[u32]) -> u64 {
    let mut image = AlignedBuf::zeroed(device.capacity() as usize);
    device.read(0, &mut image).unwrap();
    let mut pages = 0;
    for at in (0..=image.len() - BLOCK).step_by(SECTOR) {
        let word = |offset: usize| u32::from_le_bytes(image[at + offset..][..4].try_into().unwrap());
        let (table, page) = (word(8), u64::from(word(12)) / SECTORS as u64);
        if tables.contains(&table) && (0..SECTORS).all(|it| check_sector(&image[at..], table, page, it).is_ok()) {
            let mut sector = AlignedBuf::copy_from(&image[at + 3 * SECTOR..][..SECTOR]);
            sector[200] ^= 1;
            device.write((at + 3 * SECTOR) as u64, &sector).unwrap();
            pages += 1;
        }
    }
    pages
}

#[test]
fn the_check_tells_of_pages_that_rot_and_the_keeper_makes_them_anew() {
    for crashed in [false, true] {
        let device = memory(8 * MIB, 512);
        let options = by_hand("pmflf-pfl", device.clone());
        let store = filled(&options);
        if crashed {
            kill(store);
        } else {
            store.close().unwrap();
        }
        // The list of tables and the settings of groups, which an opening needs, and the objects.
        let pages = rot(&device, &[0, 1, 2, 3, 4]);
        assert!(pages > 5, "{pages}");
        let looked = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
        let report = looked.check(|_, _| {});
        assert!(
            !report.is_clean() && report.damaged.iter().any(|it| it.contains("index page 0 of table")),
            "{report:?}"
        );
        assert!(report.damaged[0].contains("made anew"), "{report:?}");
        drop(looked);
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(store.group(3).priority(), Priority::Loved);
        assert!(store.stats().counts.pages_rebuilt >= 2 && store.stats().counting == crashed);
        let refused = (0..ENTRIES).filter(|&i| matches!(store.get(&key(i)), Err(Error::Damaged { .. }))).count();
        assert!(refused > 300, "{refused}");
        // A call that meets a page has it mended; this meets them all.
        assert!(!store.check(|_, _| {}).is_clean());
        while store.step().unwrap() {}
        let stats = store.stats();
        // Without large objects the page of their table is not asked for; after a crash all are gone through.
        let met = if crashed { pages } else { pages - 1 };
        assert_eq!((stats.counts.pages_rebuilt, stats.counting), (met, false), "{crashed}");
        for i in 0..ENTRIES {
            assert_eq!(read(&store, &key(i)), expected(i), "{i}, {crashed}");
        }
        let there = (0..ENTRIES).filter(|&i| expected(i).is_some()).count() as u64;
        assert_eq!(store.stats().objects, there);
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        assert!(store.check(|_, _| {}).is_clean());
    }
}

#[test]
fn a_table_whose_name_rots_is_damage_and_not_a_new_table() {
    for (name, crashed) in [("objects", true), ("objects", false), ("large", true)] {
        let device = memory(8 * MIB, 512);
        let options = by_hand("pmflf-ts", device.clone());
        let store = filled(&options);
        if crashed {
            kill(store);
        } else {
            store.close().unwrap();
        }
        let mut image = AlignedBuf::zeroed(device.capacity() as usize);
        device.read(0, &mut image).unwrap();
        let names = |at: &usize| image[at + 64..].starts_with(b"PFhe") && image[at + 84..].starts_with(name.as_bytes());
        let at = (0..image.len() - BLOCK).step_by(SECTOR).find(names).expect("the list names it");
        device.write(at as u64, &AlignedBuf::zeroed(SECTOR)).unwrap();
        let error = Store::open(options).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{name}, after a crash {crashed}: {error}");
        let mut after = AlignedBuf::zeroed(device.capacity() as usize);
        device.read(0, &mut after).unwrap();
        image[at..at + SECTOR].fill(0);
        assert!(image[..] == after[..], "a place that is refused is as it was");
    }
}

#[test]
fn a_count_that_a_crash_took_is_said_to_be_none() {
    let options = by_hand("pmflf-ts", memory(8 * MIB, 512));
    let store = Store::open(options.clone()).unwrap();
    assert!(!store.stats().counting);
    for i in 0..20 {
        store.put(&key(i), &body(i, 700)).unwrap();
    }
    kill(store);
    let store = Store::open(options.clone()).unwrap();
    assert!(store.stats().counting, "{:?}", store.stats());
    while store.step().unwrap() {}
    let stats = store.stats();
    assert_eq!((stats.objects, stats.counting), (20, false));
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    let stats = store.stats();
    assert_eq!((stats.objects, stats.counting), (20, false), "a clean stop leaves the count");
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json.pointer("/counting"), Some(&serde_json::Value::Bool(false)));
}
