//! Eight writers, whose puts and removes one sync makes durable, and a crash at any operation of the device.
//!
//! Each has keys of its own, and knows what was acknowledged and what was under way when the device was gone. What is
//! found must be the one or the other. Rounds follow on each other on one device, so that the space of what was
//! replaced is used again, split, and lost in crashes as well.

use std::{collections::BTreeMap, sync::Arc, thread};

use picaflor_device::{Device, MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Durable, HashTables, Table},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{key, options, value};

const WRITERS: u64 = 8;

/// What a writer knows of its keys: the state that was acknowledged, and one that was asked for and not.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, Option<u64>>,
    asked: Option<(u64, Option<u64>)>,
    version: u64,
}

impl Known {
    /// Puts and removes until the device is gone or `calls` are done.
    fn write(&mut self, table: &Table, writer: u64, seed: u64, calls: u64) {
        let mut random = SmallRng::seed_from_u64(seed ^ writer << 32);
        for _ in 0..calls {
            self.version += 1;
            let number = writer * 1000 + random.random_range(0..12);
            let state = (random.random_range(0..4) > 0).then_some(self.version);
            self.asked = Some((number, state));
            let ended = match state {
                Some(version) => table.put(&key(number), &value(number, version)),
                None => table.remove(&key(number)).map(drop),
            };
            if ended.is_err() {
                return;
            }
            self.acknowledged.insert(number, state);
            self.asked = None;
        }
    }

    /// Compares, and takes what is found for the truth.
    fn check(&mut self, table: &Table) -> Result<(), String> {
        let asked = self.asked.take();
        let mut numbers: Vec<u64> = self.acknowledged.keys().copied().collect();
        numbers.extend(asked.map(|(number, _)| number));
        for number in numbers {
            let got = table.get(&key(number)).map_err(|error| format!("get {number}: {error}"))?;
            let acknowledged = self.acknowledged.get(&number).copied().unwrap_or(None);
            let states = [Some(acknowledged), asked.filter(|it| it.0 == number).map(|it| it.1)];
            let is_it = |state: &Option<u64>| state.map(|version| value(number, version)) == got;
            let Some(found) = states.into_iter().flatten().find(is_it) else {
                let got = got.map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned());
                return Err(format!("key {number} is {got:?}, allowed is {states:?}"));
            };
            self.acknowledged.insert(number, found);
        }
        Ok(())
    }
}

/// Ten crashes on one device; how many came while writers were at work.
fn trial(seed: u64) -> Result<u64, String> {
    let block = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let device = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(4 << 20, block)), seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    let open = || -> picaflor_table::Result<(HashTables, Table)> {
        let device: Arc<dyn Device> = Arc::new(device.clone());
        let (tables, _) = HashTables::open(device, BlockOptions::default(), options(Durable::EachCall))?;
        let table = tables.table("t")?;
        Ok((tables, table))
    };
    let mut crashes = 0;
    for round in 0..10 {
        let at = |what: String| format!("seed {seed}, round {round}: {what}");
        let (tables, table) = open().map_err(|error| at(format!("open: {error}")))?;
        known.iter_mut().try_for_each(|known| known.check(&table)).map_err(at)?;
        if random.random_range(0..3) == 0 {
            tables.mend().map_err(|error| at(format!("mend: {error}")))?;
        }
        device.add(Rule::nth(Fault::Crash(On::Any), 1 + random.random_range(0..300)));
        thread::scope(|scope| {
            for (writer, known) in known.iter_mut().enumerate() {
                let table = &table;
                scope.spawn(move || known.write(table, writer as u64, seed * 100 + round, 60));
            }
        });
        device.clear_rules();
        crashes += u64::from(device.is_crashed());
        if !device.is_crashed() {
            device.crash().map_err(|error| at(error.to_string()))?;
        }
        device.revive().map_err(|error| at(error.to_string()))?;
    }
    let (_, table) = open().map_err(|error| error.to_string())?;
    known.iter_mut().try_for_each(|known| known.check(&table)).map_err(|what| format!("seed {seed}: {what}"))?;
    Ok(crashes)
}

#[test]
fn nothing_that_shared_a_sync_is_lost_wherever_a_crash_comes() {
    let (mut crashes, mut trials) = (0, 0);
    for seed in super::crash::seeds(0..40) {
        trials += 1;
        crashes += trial(seed).unwrap_or_else(|what| panic!("{what}"));
    }
    assert!(crashes > trials * 3, "{crashes} crashes came while writers were at work, in {trials} trials");
}
