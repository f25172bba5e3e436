//! What each verb costs the device, counted.

use std::sync::Arc;

use picaflor_device::{CountedDevice, MemoryDevice};
use picaflor_sim::kill;
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Durable, HashTables, HtodOptions},
};

use super::key;

fn counted(mib: u64, cache: usize, durable: Durable) -> (CountedDevice, HashTables) {
    let device = CountedDevice::new(Arc::new(MemoryDevice::with_block_size(mib << 20, 512)));
    let options = HtodOptions { cache, durable, seed: Some(1), ..HtodOptions::default() };
    // Else the allocator notes where it stands every so many calls, with a write more.
    let mut blocks = BlockOptions::default();
    blocks.checkpoint_every = 1 << 30;
    let (tables, _) = HashTables::open(Arc::new(device.clone()), blocks, options).unwrap();
    (device, tables)
}

#[test]
fn a_put_is_one_write_for_the_entry_one_for_the_page_and_one_sync() {
    let (device, tables) = counted(16, 1 << 20, Durable::EachCall);
    let table = tables.table("t").unwrap();
    // Brings the page into memory.
    assert!(table.get(&key(0)).unwrap().is_none());
    // Fewer than a page takes before it is divided: neighbours in it cost nothing.
    for number in 0..80 {
        let before = device.counts();
        table.put(&key(number), &[7; 300]).unwrap();
        let cost = device.counts() - before;
        assert_eq!((cost.writes, cost.syncs, cost.reads), (2, 1, 0), "put {number}: {cost:?}");
        assert_eq!(cost.batches, 1, "both at once");
    }
    let before = device.counts();
    table.put(&key(3), &[8; 300]).unwrap();
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs, cost.reads), (2, 1, 1), "{cost:?}");
    let before = device.counts();
    tables.commit().unwrap();
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs), (1, 1), "the old entry is freed with the next commit: {cost:?}");
    let before = device.counts();
    assert!(table.remove(&key(4)).unwrap());
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs, cost.reads), (2, 1, 1), "its page, and the header of what it had: {cost:?}");
    assert_eq!(cost.batches, 1, "both at once");
    let before = device.counts();
    tables.commit().unwrap();
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs), (0, 1), "{cost:?}");
    let before = device.counts();
    assert!(table.get(&key(5)).unwrap().is_some());
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs, cost.reads), (0, 0, 1), "{cost:?}");
    let before = device.counts();
    assert!(table.get(&key(4)).unwrap().is_none());
    let cost = device.counts() - before;
    assert_eq!(cost.reads, 0, "what is not there costs no read: {cost:?}");
}

#[test]
fn an_opening_that_only_reads_syncs_once_and_writes_nothing_until_the_first_put() {
    let (device, tables) = counted(64, 4 << 20, Durable::EachCall);
    drop(tables);
    let open = || {
        let shared = Arc::new(device.clone());
        HashTables::open(shared, BlockOptions::default(), HtodOptions::default()).unwrap()
    };
    let (tables, _) = open();
    let (table, other) = (tables.table("t").unwrap(), tables.table("other").unwrap());
    let entries: Vec<Vec<u8>> = (0..2000).map(key).collect();
    let entries: Vec<(&[u8], &[u8])> = entries.iter().map(|key| (&key[..], &[7; 300][..])).collect();
    entries.chunks(50).for_each(|some| table.put_many(some).unwrap());
    other.put(b"one", b"of it").unwrap();
    // As `kill -9` leaves it: nothing is closed.
    kill((tables, table, other));
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let before = device.counts();
        let (tables, receipt) = open();
        let table = tables.table("t").unwrap();
        assert_eq!(table.get(&key(7)).unwrap().as_deref(), Some(&[7; 300][..]));
        let cost = device.counts() - before;
        // Homes, what lies behind the tail; of the list of tables header, page and entry; of the table the same, and
        // the first pages that might be more. However many extents it has: nothing of them is read.
        assert_eq!((cost.reads, cost.writes, cost.syncs), (9, 0, 1), "{cost:?}");
        epochs.push(receipt.epoch);
        kill((tables, table));
    }
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "none of them left a trace: {epochs:?}");
    let (tables, _) = open();
    let table = tables.table("t").unwrap();
    assert!(table.get(&key(7)).unwrap().is_some());
    let before = device.counts();
    table.put(&key(5000), &[8; 300]).unwrap();
    let cost = device.counts() - before;
    // One home; the other, and the headers of the list of tables and of this one; the entry and its page.
    assert_eq!((cost.writes, cost.syncs), (1 + 3 + 2, 3), "{cost:?}");
    let before = device.counts();
    let other = tables.table("other").unwrap();
    let cost = device.counts() - before;
    assert_eq!((cost.writes, cost.syncs), (1, 1), "a table that is opened later notes its header at once: {cost:?}");
    assert!(other.get(b"one").unwrap().is_some());
    kill((tables, table, other));
    let (tables, receipt) = open();
    assert_eq!(receipt.epoch, epochs[0] + 1);
    let table = tables.table("t").unwrap();
    assert_eq!(table.get(&key(5000)).unwrap().as_deref(), Some(&[8; 300][..]));
}

#[test]
fn a_remove_after_a_crash_is_one_batch_and_one_sync_too_and_looks_for_nothing() {
    let (device, tables) = counted(64, 4 << 20, Durable::EachCall);
    let table = tables.table("t").unwrap();
    for number in 0..2000 {
        table.put(&key(number), &[7; 300]).unwrap();
    }
    kill((tables, table));
    let mut blocks = BlockOptions::sparing();
    blocks.checkpoint_every = 1 << 30;
    let options = HtodOptions::default();
    let (tables, _) = HashTables::open(Arc::new(device.clone()), blocks, options).unwrap();
    let table = tables.table("t").unwrap();
    // Brings the pages into memory, and begins.
    (0..2000).for_each(|number| assert!(table.contains(&key(number)).unwrap()));
    assert!(table.remove(&key(1999)).unwrap());
    for number in 0..500 {
        let before = device.counts();
        assert!(table.remove(&key(number)).unwrap());
        let cost = device.counts() - before;
        // The entry; its page, and the header of what was removed before.
        assert_eq!((cost.reads, cost.writes, cost.syncs, cost.batches), (1, 2, 1, 1), "remove {number}: {cost:?}");
    }
    assert!(tables.space().unwrap().discovering);
    // Puts that take the tail for what is free look for it, until they need not.
    let taken = tables.space().unwrap().taken;
    for number in (0..700).map(|step| 500 + step * 7919 % 1499) {
        assert!(table.remove(&key(number)).unwrap());
        table.put(&key(number), &[8; 300]).unwrap();
    }
    let grown = tables.space().unwrap().taken - taken;
    assert!(grown < 700 * 512 / 4, "{grown} bytes of the tail, for what replaced as much");
    (0..2000).for_each(|number| assert_eq!(table.get(&key(number)).unwrap().is_some(), (500..1999).contains(&number)));
}

#[test]
fn doubling_costs_a_write_in_ninety_puts() {
    let (device, tables) = counted(256, 8 << 20, Durable::EachCall);
    let table = tables.table("t").unwrap();
    table.put(&key(0), &[7; 100]).unwrap();
    let puts = 20_000;
    let before = device.counts();
    let mut dearest = 0;
    for number in 1..=puts {
        let before = device.counts();
        table.put(&key(number), &[7; 100]).unwrap();
        dearest = dearest.max((device.counts() - before).writes);
    }
    let cost = device.counts() - before;
    let pages = table.pages();
    // The page, and the header that says that it is there.
    assert!(cost.writes <= 2 * puts + 2 * pages + 400, "{} writes for {puts} puts and {pages} pages", cost.writes);
    assert!(cost.syncs <= puts + 400, "{} syncs", cost.syncs);
    assert!(dearest <= 8, "no put pays for a doubling, one took {dearest} writes");
}

#[test]
fn a_get_from_a_large_table_is_one_read_for_the_page_and_one_for_the_entry() {
    // The index has about 220 pages; 16 of them in memory.
    let (device, tables) = counted(256, 16 * 4096, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    for number in 0..20_000 {
        table.put(&key(number), &[7; 100]).unwrap();
    }
    tables.commit().unwrap();
    let before = device.counts();
    for number in (0..20_000).step_by(13) {
        assert!(table.get(&key(number)).unwrap().is_some());
    }
    let cost = device.counts() - before;
    let gets = 20_000u64.div_ceil(13);
    assert!(cost.reads <= 2 * gets, "{} reads for {gets} gets", cost.reads);
    assert_eq!(cost.writes, 0);
    assert!(tables.stats().cached_pages <= 32);
}

#[test]
fn going_through_a_table_is_a_few_long_reads() {
    let (device, tables) = counted(64, 4 << 20, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    let count = 10_000;
    for number in 0..count {
        table.put(&key(number), &super::value(number, 3)).unwrap();
    }
    tables.close().unwrap();
    let options = HtodOptions { cache: 4 << 20, ..HtodOptions::default() };
    let (tables, _) = HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options).unwrap();
    let table = tables.table("t").unwrap();
    let before = device.counts();
    let mut met = 0;
    for pair in table.pairs() {
        let (met_key, met_value) = pair.unwrap();
        let number = (0..count).find(|&number| key(number) == met_key).unwrap();
        assert_eq!(met_value, super::value(number, 3));
        met += 1;
    }
    assert_eq!(met, count);
    let cost = device.counts() - before;
    let held = tables.space().unwrap().taken;
    println!("{cost:?}, {held} bytes taken");
    assert!(cost.reads < count / 15, "an entry and a page each alone were {}: {cost:?}", count + table.pages());
    assert!(cost.read_bytes < held + held / 10, "the device is gone over once: {cost:?} of {held}");
}

#[test]
fn a_thousand_gets_at_once_are_two_batches_and_what_lies_together_is_one_read() {
    let (device, tables) = counted(64, 16 << 20, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    for number in 0..10_000 {
        table.put(&key(number), &super::value(number, 3)).unwrap();
    }
    tables.close().unwrap();
    let options = HtodOptions::default();
    let (tables, _) = HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options).unwrap();
    let table = tables.table("t").unwrap();
    for (from, step, most_reads) in [(0, 7, 1000 + 200), (2000, 1, 200)] {
        let keys: Vec<Vec<u8>> = (0..1000).map(|number| key((from + number * step) % 10_000)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let before = device.counts();
        let values = table.get_many(&keys).unwrap();
        let cost = device.counts() - before;
        println!("{cost:?}");
        assert!(cost.batches <= 2 + 1 && cost.reads < most_reads, "{cost:?}");
        for (number, value) in (0..1000).zip(values) {
            assert_eq!(value.unwrap(), Some(super::value((from + number * step) % 10_000, 3)));
        }
    }
}

#[test]
fn many_gets_at_once_are_two_batches_of_the_reads_that_they_take_alone() {
    let (device, tables) = counted(256, 16 * 4096, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    for number in 0..20_000 {
        table.put(&key(number), &super::value(number, 3)).unwrap();
    }
    tables.commit().unwrap();
    for from in (0..21_000).step_by(1500) {
        let keys: Vec<Vec<u8>> = (0..64).map(|step| key((from + step * 331) % 21_000)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let before = device.counts();
        let values = table.get_many(&keys).unwrap();
        let cost = device.counts() - before;
        assert!(cost.batches == 2 && cost.reads <= 128 + 16, "pages that were there may leave: {cost:?}");
        assert!(values.iter().any(|value| value.as_ref().unwrap().is_some()));
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value.unwrap(), table.get(key).unwrap());
        }
    }
    assert!(tables.stats().cached_pages <= 32, "{:?}", tables.stats());
}
