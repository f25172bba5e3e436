//! Crashes at every operation of the device, with unsynced writes torn, lost and reordered, against an oracle.
//!
//! The oracle knows, for each key, the states that are allowed: the last one that was acknowledged as durable and those
//! after it. What is found after a crash must be one of them, and from then on it is the only one.
//!
//! `HTOD_SEEDS=from..to` runs other seeds than the few of every day.

use std::{collections::BTreeMap, sync::Arc};

use picaflor_device::{Device, MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};
use picaflor_table::{
    Error, Result,
    blocks::BlockOptions,
    htod::{Batch, Durable, HashTables, HtodOptions, HtodStats, Mended, Table},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{key, options, value};

/// A key's allowed states: the version, or none.
pub(super) type States = Vec<Option<u64>>;

#[derive(Clone, Default)]
pub(super) struct Oracle {
    keys: BTreeMap<u64, States>,
}

impl Oracle {
    pub(super) fn states(&mut self, number: u64) -> &mut States {
        self.keys.entry(number).or_insert_with(|| vec![None])
    }

    /// All keys with their states.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &States)> {
        self.keys.iter().map(|(&number, states)| (number, states))
    }

    /// A call came to its end.
    pub(super) fn done(&mut self, number: u64, state: Option<u64>, durable: bool) {
        let states = self.states(number);
        states.push(state);
        if durable {
            *states = vec![state];
        }
    }

    /// All that was done is durable.
    fn commit(&mut self) {
        for states in self.keys.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    /// Compares a table with what is allowed, and takes what it finds for the truth.
    pub(super) fn check(&mut self, table: &Table) -> std::result::Result<(), String> {
        let mut live = 0;
        for (&number, states) in &mut self.keys {
            let got = table.get(&key(number)).map_err(|error| format!("get {number}: {error}"))?;
            let allowed = states.iter().rev().find(|state| state.map(|version| value(number, version)) == got);
            let Some(&state) = allowed else {
                let got = got.map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned());
                return Err(format!("key {number} is {got:?}, allowed is {states:?}"));
            };
            *states = vec![state];
            live += u64::from(state.is_some());
        }
        let mut met = BTreeMap::new();
        for pair in table.pairs() {
            let (met_key, met_value) = pair.map_err(|error| format!("going through: {error}"))?;
            if met.insert(met_key.clone(), met_value).is_some() {
                return Err(format!("{met_key:?} is met twice"));
            }
        }
        if met.len() as u64 != live {
            return Err(format!("{} keys are met, {live} are there", met.len()));
        }
        Ok(())
    }
}

/// One workload on one device, crash after crash.
struct Trial {
    device: Arc<dyn Device>,
    durable: Durable,
    batch: Batch,
    seed: u64,
    random: SmallRng,
    oracle: Oracle,
    version: u64,
}

impl Trial {
    fn new(device: Arc<dyn Device>, seed: u64) -> Self {
        let durable = if seed.is_multiple_of(2) { Durable::EachCall } else { Durable::AtCommit };
        let batch = if seed % 4 < 2 { Batch::BestFit } else { Batch::ByLists };
        let random = SmallRng::seed_from_u64(seed);
        Self { device, durable, batch, seed, random, oracle: Oracle::default(), version: 0 }
    }

    fn open(&self) -> Result<HashTables> {
        let mut blocks = if self.seed % 8 < 4 { BlockOptions::sparing() } else { BlockOptions::default() };
        // Batches are laid into small free blocks too, and into one several.
        blocks.batch_threshold = 512;
        let options = HtodOptions { batch: self.batch, ..options(self.durable) };
        HashTables::open(Arc::clone(&self.device), blocks, options).map(|(it, _)| it)
    }

    /// Puts and removes; the first calls fill enough pages that doubling goes on among the later ones.
    fn work(&mut self, calls: u64) -> Result<()> {
        let tables = self.open()?;
        let table = tables.table("t")?;
        let durable = self.durable == Durable::EachCall;
        for _ in 0..calls {
            self.version += 1;
            let version = self.version;
            // Keys in use grow with the calls, and some are used again and again.
            let number = self.random.random_range(0..20 + version);
            match self.random.random_range(0..12) {
                10 => self.put_many(&table, durable)?,
                11 => self.remove_many(&table, durable)?,
                0..=6 => {
                    self.oracle.states(number).push(Some(version));
                    table.put(&key(number), &value(number, version))?;
                    self.oracle.states(number).pop();
                    self.oracle.done(number, Some(version), durable);
                }
                7..=8 => {
                    self.oracle.states(number).push(None);
                    table.remove(&key(number))?;
                    self.oracle.states(number).pop();
                    self.oracle.done(number, None, durable);
                }
                _ => {
                    tables.commit()?;
                    self.oracle.commit();
                }
            }
        }
        if self.random.random_range(0..4) == 0 {
            tables.mend()?;
        }
        if self.random.random_range(0..2) == 0 {
            tables.close()?;
            self.oracle.commit();
        }
        Ok(())
    }

    /// Keys side by side, some of which are twice among them.
    fn draw(&mut self) -> Vec<u64> {
        let (first, count) = (self.random.random_range(0..20 + self.version), self.random.random_range(1..12));
        (0..count).map(|step| first + step * 3 % 7).collect()
    }

    fn put_many(&mut self, table: &Table, durable: bool) -> Result<()> {
        let mut puts = Vec::new();
        for number in self.draw() {
            self.version += 1;
            puts.push((number, self.version, key(number), value(number, self.version)));
        }
        for &(number, version, ..) in &puts {
            self.oracle.states(number).push(Some(version));
        }
        let entries: Vec<(&[u8], &[u8])> = puts.iter().map(|(.., key, value)| (&key[..], &value[..])).collect();
        table.put_many(&entries)?;
        puts.iter().for_each(|&(number, version, ..)| self.oracle.done(number, Some(version), durable));
        Ok(())
    }

    fn remove_many(&mut self, table: &Table, durable: bool) -> Result<()> {
        let numbers = self.draw();
        numbers.iter().for_each(|&number| self.oracle.states(number).push(None));
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        table.remove_many(&names)?;
        numbers.iter().for_each(|&number| self.oracle.done(number, None, durable));
        Ok(())
    }

    fn check(&mut self) -> std::result::Result<HtodStats, String> {
        let tables = self.open().map_err(|error| format!("reopen: {error}"))?;
        let table = tables.table("t").map_err(|error| format!("open the table: {error}"))?;
        self.oracle.check(&table)?;
        Ok(tables.stats())
    }

    /// Everything is there and nothing is left over.
    fn finish(&mut self) -> std::result::Result<Mended, String> {
        let tables = self.open().map_err(|error| format!("reopen: {error}"))?;
        let table = tables.table("t").map_err(|error| format!("open the table: {error}"))?;
        let mended = tables.mend().map_err(|error| format!("mend: {error}"))?;
        if table.len() != table.keys().count() as u64 {
            return Err(format!("{} keys are counted, {} met", table.len(), table.keys().count()));
        }
        self.oracle.check(&table)?;
        drop((table, tables));
        let tables = self.open().map_err(|error| format!("reopen: {error}"))?;
        let again = tables.mend().map_err(|error| format!("mend again: {error}"))?;
        if again.freed != 0 {
            return Err(format!("{} blocks were left over after mending", again.freed));
        }
        Ok(mended)
    }
}

fn faulty(seed: u64) -> FaultyDevice {
    let block = if seed % 4 < 2 { 512 } else { 4096 };
    FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(16 << 20, block)), seed)
}

/// What the trials of a seed met, for a test that can tell that they met enough.
#[derive(Default, Debug)]
struct Met {
    points: u64,
    restored: u64,
    freed: u64,
}

/// Crashes at every `stride`-th operation of a workload and twice more behind it.
fn every_point(seed: u64, calls: u64, stride: u64) -> std::result::Result<Met, String> {
    let mut met = Met::default();
    let mut point = 1 + seed % stride;
    loop {
        let device = faulty(seed.wrapping_mul(1000) + point);
        let mut trial = Trial::new(Arc::new(device.clone()), seed);
        let at = |what: String| format!("seed {seed}, crash at operation {point}: {what}");
        let mut next = point;
        let mut reached = false;
        for round in 0..3 {
            device.add(Rule::nth(Fault::Crash(On::Any), next));
            let ended = trial.work(calls);
            device.clear_rules();
            match ended {
                Ok(()) => {}
                Err(_) if device.is_crashed() => {
                    reached |= round == 0;
                    device.revive().map_err(|error| at(error.to_string()))?;
                }
                Err(error) => return Err(at(format!("round {round}: {error}"))),
            }
            let stats = trial.check().map_err(|what| at(format!("round {round}: {what}")))?;
            met.restored += stats.restored;
            // Checking opens, which changes the place; half of the rounds crash again right there.
            device.crash().and_then(|_| device.revive()).map_err(|error| at(error.to_string()))?;
            next = 1 + trial.random.random_range(0..400);
        }
        met.freed += trial.finish().map_err(&at)?.freed;
        met.points += 1;
        if !reached {
            return Ok(met);
        }
        point += stride;
    }
}

/// Those of every day, if no others were asked for.
pub(super) fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let asked = std::env::var("HTOD_SEEDS").ok();
    let ends = asked.as_deref().and_then(|text| text.split_once(".."));
    ends.map_or(usual, |(from, to)| from.parse().unwrap()..to.parse().unwrap())
}

#[test]
fn nothing_acknowledged_is_lost_wherever_a_crash_comes() {
    let mut all = Met::default();
    for seed in seeds(0..4) {
        let met = every_point(seed, 260, 7).unwrap_or_else(|what| panic!("{what}"));
        all.points += met.points;
        all.restored += met.restored;
        all.freed += met.freed;
    }
    println!("{all:?}");
    assert!(all.points > 100, "{all:?}");
    assert!(all.restored > 10, "an index word without its entry must be among what was met: {all:?}");
    assert!(all.freed > 10, "so must entries that no page names: {all:?}");
}

#[test]
fn a_short_workload_survives_a_crash_at_each_operation() {
    for seed in 90..94 {
        every_point(seed, 12, 1).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn the_harness_catches_a_device_that_does_not_sync() {
    let mut caught = 0;
    for seed in 0..40u64 {
        let device = faulty(seed);
        device.add(Rule::rate(Fault::LostSync, 1.0));
        let mut trial = Trial::new(Arc::new(device.clone()), seed * 2);
        trial.work(100).unwrap();
        device.crash().and_then(|_| device.revive()).unwrap();
        caught += u64::from(trial.check().is_err());
    }
    assert!(caught > 20, "caught {caught} of 40 lies");
}

#[test]
fn a_device_that_fails_stops_the_writing_and_loses_nothing() {
    for seed in 0..30u64 {
        let device = faulty(seed * 2);
        let mut trial = Trial::new(Arc::new(device.clone()), seed * 2);
        let fault = if seed % 2 == 0 { Fault::WriteError } else { Fault::SyncError };
        device.add(Rule::nth(fault, 40 + seed * 3));
        let ended = trial.work(200);
        assert!(matches!(ended, Err(Error::Io { .. })), "seed {seed}: {ended:?}");
        device.clear_rules();
        device.crash().and_then(|_| device.revive()).unwrap();
        trial.check().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        trial.finish().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn a_device_that_failed_is_still_read_one_by_one_and_many_at_once() {
    let device = faulty(7);
    let options = options(Durable::EachCall);
    let (tables, _) = HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options).unwrap();
    let table = tables.table("t").unwrap();
    (0..100).for_each(|number| table.put(&key(number), &key(number)).unwrap());
    device.add(Rule::rate(Fault::SyncError, 1.0));
    assert!(table.put(b"one more", b"").is_err() && tables.failure().is_some());
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let many = table.get_many(&names).unwrap();
    for (key, found) in keys.iter().zip(many) {
        let found = found.unwrap();
        assert_eq!(found.as_ref(), Some(key));
        assert_eq!(table.get(key).unwrap(), found);
    }
}

#[test]
fn an_opening_answers_though_the_device_takes_no_writes() {
    let device = faulty(9);
    let open = || {
        let options = options(Durable::EachCall);
        HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options).unwrap().0
    };
    let (tables, names) = (open(), (0..300).map(key).collect::<Vec<_>>());
    let table = tables.table("t").unwrap();
    names.iter().for_each(|name| table.put(name, name).unwrap());
    drop((tables, table));
    device.add(Rule::rate(Fault::WriteError, 1.0));
    let tables = open();
    let table = tables.table("t").unwrap();
    let all_there = |table: &Table| names.iter().all(|name| table.get(name).unwrap().as_ref() == Some(name));
    assert!(all_there(&table) && tables.failure().is_none());
    assert!(matches!(table.put(b"one more", b""), Err(Error::Io { .. })) && tables.failure().is_some());
    assert!(all_there(&table) && table.get(b"one more").unwrap().is_none());
    device.clear_rules();
    let tables = open();
    let table = tables.table("t").unwrap();
    table.put(b"one more", b"").unwrap();
    assert!(all_there(&table) && table.get(b"one more").unwrap().is_some());
}
