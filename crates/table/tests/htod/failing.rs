//! A device that fails a write or a sync, at every single operation: nothing acknowledged is lost, the error says where
//! and what to do, and the tables go on or say clearly that they do not.

use std::sync::Arc;

use picaflor_device::{CountedDevice, MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice, Rule};
use picaflor_table::{
    Error, Result,
    blocks::BlockOptions,
    htod::{Batch, Durable, HashTables, HtodOptions, Table},
};

use super::{crash::Oracle, key, options, value};

/// One call of the workload; what it changes was told to the oracle as possible.
fn call(table: &Table, step: u64, oracle: &mut Oracle) -> Result<()> {
    let version = step + 1;
    match step % 6 {
        // All pages of a table, and new extents, need more keys than one at a time.
        0 => {
            let numbers: Vec<u64> = (0..50).map(|at| 100 + step * 9 + at).collect();
            numbers.iter().for_each(|&number| oracle.states(number).push(Some(version)));
            let puts: Vec<_> = numbers.iter().map(|&number| (key(number), value(number, version))).collect();
            let slices: Vec<(&[u8], &[u8])> = puts.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            table.put_many(&slices)?;
            numbers.iter().for_each(|&number| oracle.done(number, Some(version), true));
        }
        3 => {
            let number = step / 2;
            oracle.states(number).push(None);
            table.remove(&key(number))?;
            oracle.done(number, None, true);
        }
        5 => {
            let numbers = [100 + step, 101 + step, step / 3];
            numbers.iter().for_each(|&number| oracle.states(number).push(None));
            let keys = numbers.map(key);
            table.remove_many(&[&keys[0], &keys[1], &keys[2]])?;
            numbers.iter().for_each(|&number| oracle.done(number, None, true));
        }
        _ => {
            let number = step % 13;
            oracle.states(number).push(Some(version));
            table.put(&key(number), &value(number, version))?;
            oracle.done(number, Some(version), true);
        }
    }
    Ok(())
}

#[derive(Default, Debug)]
struct Met {
    points: u64,
    went_on: u64,
    refused: u64,
}

/// A run whose device fails as the rule says. False if the rule never came to it.
fn fails(rule: Rule, fault: Fault, seed: u64, met: &mut Met) -> bool {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(8 << 20, 512)), seed);
    let counted = CountedDevice::new(Arc::new(device.clone()));
    let batch = if seed.is_multiple_of(2) { Batch::BestFit } else { Batch::ByLists };
    let open = || {
        let mut blocks = BlockOptions::sparing();
        // Homes are written often, and batches share free blocks.
        (blocks.checkpoint_every, blocks.batch_threshold) = (8, 512);
        let options = HtodOptions { batch, ..options(Durable::EachCall) };
        HashTables::open(Arc::new(counted.clone()), blocks, options).map(|(tables, _)| tables)
    };
    let what = format!("{rule:?}");
    let mut oracle = Oracle::default();
    let tables = open().unwrap();
    let table = tables.table("t").unwrap();
    device.add(rule);
    let mut failed = 0;
    for step in 0..30 {
        let before = counted.counts();
        let had_failed = tables.failure().is_some();
        let Err(error) = call(&table, step, &mut oracle) else {
            // What failed behind a put that was done is for the next call to say.
            assert!(!had_failed, "{what}: it says that it failed, and goes on");
            continue;
        };
        let (Error::Io { place, .. }, text) = (&error, error.to_string()) else { panic!("{what}: {error}") };
        assert!(place.len() > 10 && text.len() > place.len(), "{what}: {text}");
        if tables.failure().is_some() {
            assert!(text.contains("open it again"), "{what}: {text}");
            let cost = counted.counts() - before;
            assert!(failed == 0 || cost.writes + cost.syncs == 0, "{what}: {text}, and writes: {cost:?}");
        }
        failed += 1;
        // What can be read is still right; of what failed it may be gone when the place is opened again.
        oracle.clone().check(&table).unwrap_or_else(|why| panic!("{what}, step {step}: {why}"));
    }
    if device.injected(fault) == 0 {
        return false;
    }
    met.points += 1;
    match tables.failure() {
        None => met.went_on += 1,
        Some(_) => {
            met.refused += 1;
            assert!(table.put(b"one more", b"").is_err() && tables.commit().is_err() && failed > 0, "{what}");
        }
    }
    drop((table, tables));
    // What a failed sync did not keep is gone with the power.
    device.clear_rules();
    device.crash().and_then(|_| device.revive()).unwrap();
    let tables = open().unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    let table = tables.table("t").unwrap();
    oracle.check(&table).unwrap_or_else(|why| panic!("{what}, opened again: {why}"));
    tables.mend().unwrap_or_else(|error| panic!("{what}: {error}"));
    (100..130).for_each(|step| call(&table, step, &mut oracle).unwrap());
    oracle.check(&table).unwrap_or_else(|why| panic!("{what}, used again: {why}"));
    tables.close().unwrap();
    true
}

#[test]
fn whichever_write_or_sync_fails_nothing_acknowledged_is_lost() {
    for fault in [Fault::WriteError, Fault::SyncError, Fault::NoSpace] {
        let mut met = Met::default();
        for once in [true, false] {
            for point in 1.. {
                let rule = if once { Rule::nth(fault, point) } else { Rule::since(fault, point) };
                if !fails(rule, fault, point, &mut met) {
                    break;
                }
            }
        }
        println!("{fault:?}: {met:?}");
        assert!(met.points > 60 && met.refused > 60, "{fault:?} {met:?}");
    }
}

#[test]
fn a_read_that_fails_behind_a_put_is_not_the_puts() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(64 << 20, 512)), 3);
    let options = options(Durable::EachCall);
    let (tables, _) = HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options).unwrap();
    let table = tables.table("t").unwrap();
    let puts: Vec<_> = (0..6000).map(|number| (key(number), value(number, 1))).collect();
    let slices: Vec<(&[u8], &[u8])> = puts.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    table.put_many(&slices).unwrap();
    let mut failed = 0;
    for number in 6000..8000 {
        device.add(Rule::nth(Fault::ReadError, 1 + number % 3));
        let put = table.put(&key(number), b"");
        device.clear_rules();
        assert_eq!(table.contains(&key(number)).unwrap(), put.is_ok(), "put {number}: {put:?}");
        failed += u64::from(put.is_err());
    }
    assert!(failed > 100 && table.len() == 8000 - failed, "{failed}");
    let pages = table.pages();
    table.put(b"one more", b"").unwrap();
    assert!(table.len() <= table.pages() * 95, "{} keys, and {pages} pages", table.len());
}
