//! Many puts and removes at once: what they say, what they cost the device, what a crash leaves of them.

use std::sync::Arc;

use picaflor_device::{CountedDevice, MemoryDevice};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Batch, Durable, HashTables, HtodOptions, Table},
};

use super::{key, value};

fn place(batch: Batch, durable: Durable) -> (CountedDevice, HashTables, Table) {
    let device = CountedDevice::new(Arc::new(MemoryDevice::with_block_size(32 << 20, 512)));
    let options = HtodOptions { cache: 4 << 20, durable, seed: Some(1), batch };
    let mut blocks = BlockOptions::default();
    // Else the allocator notes where it stands every so many calls, with a write more.
    blocks.checkpoint_every = 1 << 30;
    let (tables, _) = HashTables::open(Arc::new(device.clone()), blocks, options).unwrap();
    let table = tables.table("t").unwrap();
    (device, tables, table)
}

fn put_all(table: &Table, entries: &[(Vec<u8>, Vec<u8>)]) {
    let slices: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    table.put_many(&slices).unwrap();
}

fn entries(numbers: std::ops::Range<u64>, len: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    numbers.map(|number| (key(number), vec![number as u8; len])).collect()
}

#[test]
fn what_is_put_many_at_once_is_there_and_the_last_of_a_key_stays() {
    for batch in [Batch::ByLists, Batch::BestFit] {
        for durable in [Durable::EachCall, Durable::AtCommit] {
            let (_, tables, table) = place(batch, durable);
            // Far more than are looked for at once, and enough that pages are divided in between.
            let mut all: Vec<_> = (0..3000).map(|number| (key(number), value(number, 1))).collect();
            all.extend((0..500).map(|number| (key(number * 3), value(number * 3, 2))));
            put_all(&table, &all);
            tables.commit().unwrap();
            let version = |number: u64| if number.is_multiple_of(3) && number < 1500 { 2 } else { 1 };
            for number in 0..3000 {
                assert_eq!(table.get(&key(number)).unwrap(), Some(value(number, version(number))), "{number}");
            }
            assert_eq!((table.len(), table.keys().count()), (3000, 3000));
            let gone: Vec<Vec<u8>> = (2900..3100).chain([2900]).map(key).collect();
            let gone: Vec<&[u8]> = gone.iter().map(Vec::as_slice).collect();
            let said = table.remove_many(&gone).unwrap();
            assert!(said[..100].iter().all(|&there| there) && said[100..].iter().all(|&there| !there));
            assert_eq!(table.len(), 2900);
            assert!(table.put_many(&[(b"fine", b"1"), (b"", b"2")]).is_err(), "no key");
            assert!(table.get(b"fine").unwrap().is_none(), "nothing was put");
        }
    }
}

#[test]
fn many_puts_are_one_batch_and_one_sync() {
    for batch in [Batch::ByLists, Batch::BestFit] {
        let (device, tables, table) = place(batch, Durable::EachCall);
        assert!(table.get(&key(0)).unwrap().is_none());
        let before = device.counts();
        // 90 blocks of 1,024 bytes, one behind the other, and their page.
        put_all(&table, &entries(0..90, 600));
        let cost = device.counts() - before;
        assert_eq!((cost.writes, cost.syncs, cost.reads, cost.batches), (2, 1, 0, 1), "{batch:?} {cost:?}");
        let before = device.counts();
        put_all(&table, &entries(0..60, 600));
        let cost = device.counts() - before;
        // The former entries lie side by side, and are one read; the page is the only one that changes.
        assert_eq!((cost.writes, cost.syncs, cost.reads, cost.batches), (2, 1, 1, 2), "{batch:?} {cost:?}");
        // Replaced versions are durably free before what replaced them is.
        tables.commit().unwrap();
        let before = device.counts();
        let keys: Vec<Vec<u8>> = (0..90).map(key).collect();
        table.remove_many(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let cost = device.counts() - before;
        // The page, and the headers of 90 blocks; entries side by side are read at once, as far as one look reaches.
        assert_eq!((cost.writes, cost.syncs, cost.reads), (91, 1, 3), "{batch:?} {cost:?}");
        assert_eq!(table.len(), 0);
    }
}

#[test]
fn a_batch_that_fits_best_shares_a_large_free_block_at_the_price_of_a_sync() {
    let mut taken = Vec::new();
    for batch in [Batch::ByLists, Batch::BestFit] {
        let (device, tables, table) = place(batch, Durable::EachCall);
        put_all(&table, &entries(0..2, 200_000));
        table.remove(&key(0)).unwrap();
        // It is free with the next commit, durably so with the one behind it.
        tables.commit().unwrap();
        tables.commit().unwrap();
        let (before, space) = (device.counts(), tables.space().unwrap());
        put_all(&table, &entries(10..60, 3000));
        let (cost, now) = (device.counts() - before, tables.space().unwrap());
        taken.push(now.taken - space.taken);
        let expected = match batch {
            // Sizes with a list of their own, which is empty: the paper's order takes the tail.
            Batch::ByLists => (2, 1, 0),
            Batch::BestFit => (2, 2, 50),
        };
        assert_eq!((cost.writes, cost.syncs, now.splits - space.splits), expected, "{batch:?} {cost:?}");
    }
    assert_eq!(taken, [50 * 3584, 0], "all of it lies in what was free");
}
