//! The faulty device: each fault does what its description says, the truth stays known, and a seed repeats.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::io::{self, ErrorKind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use picaflor_device::{AlignedBuf, Clock, CountedDevice, Device, MemoryDevice, Op, Request};
use picaflor_sim::{Crashed, Fault, FaultyDevice, On, Rule, Survivors};
use proptest::prelude::*;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 32;
const CAPACITY: u64 = BLOCKS * BLOCK as u64;

fn faulty(seed: u64) -> FaultyDevice {
    FaultyDevice::new(Arc::new(MemoryDevice::new(CAPACITY)), seed)
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

fn read(device: &FaultyDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read(offset, &mut buf).unwrap();
    buf
}

fn sectors_with(bytes: &[u8], fill: u8) -> usize {
    bytes.chunks(512).filter(|sector| sector.iter().all(|&b| b == fill)).count()
}

#[test]
fn without_rules_it_is_a_plain_device() {
    let device = faulty(1);
    device.write(at(3), &[7; 2 * BLOCK]).unwrap();
    device.sync().unwrap();
    device.discard(at(3), BLOCK as u64).unwrap();
    assert_eq!(read(&device, at(3), 2 * BLOCK), [7; 2 * BLOCK]);
    assert!(device.is_true(0, CAPACITY as usize).unwrap());
    assert_eq!(device.write(1, &[0; BLOCK]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(device.backend(), "faulty over memory");
}

#[test]
fn errors_hit_the_nth_operation_of_their_kind_and_only_that() {
    let device = faulty(1);
    device.add(Rule::nth(Fault::WriteError, 7));
    device.add(Rule::nth(Fault::ReadError, 2));
    device.add(Rule::nth(Fault::SyncError, 1));
    device.add(Rule::nth(Fault::NoSpace, 9));
    let failed: Vec<u32> = (1..=10).filter(|&n| device.write(at(u64::from(n)), &[1; BLOCK]).is_err()).collect();
    assert_eq!(failed, [7, 9]);
    let outcomes: Vec<bool> = (0..3).map(|_| device.read(0, &mut [0; BLOCK]).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert!(device.sync().unwrap_err().to_string().contains("injected"));
    device.sync().unwrap();
    for fault in [Fault::WriteError, Fault::ReadError, Fault::SyncError, Fault::NoSpace] {
        assert_eq!(device.injected(fault), 1);
    }
    assert_eq!(read(&device, at(9), BLOCK), [0; BLOCK], "no space: nothing of it is written");
    device.add(Rule::nth(Fault::NoSpace, 1));
    assert_eq!(device.write(0, &[1; BLOCK]).unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn a_zone_keeps_a_fault_in_its_place() {
    let device = faulty(1);
    device.add(Rule::rate(Fault::WriteError, 1.0).within(at(4)..at(6)));
    for block in 0..BLOCKS {
        let refused = device.write(at(block), &[1; BLOCK]).is_err();
        assert_eq!(refused, (4..6).contains(&block), "block {block}");
    }
    assert!(device.write(at(3), &[1; 2 * BLOCK]).is_err());
    device.clear_rules();
    device.write(at(4), &[1; BLOCK]).unwrap();
}

#[test]
fn a_lost_write_is_true_but_never_there_even_after_sync_and_crash() {
    let device = faulty(1);
    device.write(at(1), &[1; BLOCK]).unwrap();
    device.add(Rule::nth(Fault::Lost, 1));
    device.write(at(1), &[2; BLOCK]).unwrap();
    device.sync().unwrap();
    for _ in 0..2 {
        assert_eq!(read(&device, at(1), BLOCK), [1; BLOCK]);
        assert_eq!(device.pristine(at(1), BLOCK).unwrap()[..], [2; BLOCK]);
        assert!(!device.is_true(at(1), BLOCK).unwrap() && device.is_true(at(2), BLOCK).unwrap());
        device.crash().unwrap();
        device.revive().unwrap();
    }
    device.write(at(1), &[3; BLOCK]).unwrap();
    assert_eq!(read(&device, at(1), BLOCK), [3; BLOCK]);
    assert!(device.is_true(0, CAPACITY as usize).unwrap());
}

#[test]
fn a_misdirected_write_harms_two_places() {
    let device = faulty(3);
    device.add(Rule::nth(Fault::Misdirected, 1));
    device.write(at(5), &[9; 2 * BLOCK]).unwrap();
    device.sync().unwrap();
    assert_eq!(read(&device, at(5), 2 * BLOCK), [0; 2 * BLOCK]);
    let shown = read(&device, 0, CAPACITY as usize);
    assert_eq!(sectors_with(&shown, 9), 2 * BLOCK / 512, "it is somewhere else, whole");
    let truth = device.pristine(0, CAPACITY as usize).unwrap();
    assert!(truth[..5 * BLOCK].iter().chain(&truth[7 * BLOCK..]).all(|&b| b == 0));
    assert_eq!(truth[5 * BLOCK..7 * BLOCK], [9; 2 * BLOCK]);
    device.heal();
    assert_eq!(read(&device, at(5), 2 * BLOCK), [9; 2 * BLOCK]);
}

#[test]
fn a_torn_write_is_partly_there() {
    let device = faulty(1);
    device.add(Rule::rate(Fault::Torn, 1.0));
    for block in 0..8 {
        device.write(at(block), &[5; BLOCK]).unwrap();
        let shown = read(&device, at(block), BLOCK);
        let (new, old) = (sectors_with(&shown, 5), sectors_with(&shown, 0));
        assert!(new > 0 && old > 0 && new + old == 8, "{new} new, {old} old");
        assert_eq!(device.pristine(at(block), BLOCK).unwrap()[..], [5; BLOCK]);
    }
}

#[test]
fn rot_stays_until_rewritten_and_flicker_does_not() {
    let flipped = |a: &[u8]| a.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let device = faulty(1);
    device.add(Rule::nth(Fault::Flicker, 1).within(at(2) + 100..at(2) + 101));
    let shown = read(&device, at(1), 2 * BLOCK);
    assert_eq!((flipped(&shown), shown[BLOCK + 100].count_ones()), (1, 1));
    assert_eq!(flipped(&read(&device, at(1), 2 * BLOCK)), 0);
    assert!(device.is_true(at(2), BLOCK).unwrap());

    device.add(Rule::nth(Fault::Rot, 1).within(at(2) + 100..at(2) + 101));
    for _ in 0..3 {
        assert_eq!(read(&device, at(2), BLOCK)[100].count_ones(), 1);
    }
    device.sync().unwrap();
    device.crash().unwrap();
    device.revive().unwrap();
    assert_eq!(flipped(&read(&device, at(2), BLOCK)), 1, "rot outlives a crash");
    device.write(at(2), &[0; BLOCK]).unwrap();
    assert_eq!(flipped(&read(&device, at(2), BLOCK)), 0);

    device.damage(at(7) - 3, b"damage").unwrap();
    assert_eq!(&read(&device, at(6), 2 * BLOCK)[BLOCK - 3..BLOCK + 3], b"damage");
    assert_eq!(device.damage(CAPACITY - 2, b"damage").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_delay_passes_on_the_clock() {
    let clock = Clock::virtual_at(0);
    let device = FaultyDevice::with_clock(Arc::new(MemoryDevice::new(CAPACITY)), 1, clock.clone());
    device.add(Rule::rate(Fault::Delay(On::Read, Duration::from_millis(5)), 1.0).within(0..at(1)));
    device.add(Rule::nth(Fault::Delay(On::Any, Duration::from_millis(100)), 3));
    let _ = read(&device, 0, BLOCK);
    assert_eq!(clock.now_millis(), 5);
    let _ = read(&device, at(1), BLOCK);
    device.sync().unwrap();
    assert_eq!(clock.now_millis(), 105);
}

#[test]
fn a_crash_stops_everything_until_revived() {
    let device = faulty(1);
    device.add(Rule::nth(Fault::Crash(On::Any), 3));
    device.write(0, &[1; BLOCK]).unwrap();
    device.sync().unwrap();
    assert!(!device.is_crashed());
    let (tell, told) = mpsc::channel();
    let batch = (0..3u64).map(|block| {
        let tell = tell.clone();
        let op = if block == 2 { Op::Sync } else { Op::Write(AlignedBuf::zeroed(BLOCK).into_bytes()) };
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| tell.send(outcome.map(drop)).unwrap());
        Request { offset: at(1 + block), op, done }
    });
    device.submit(batch.collect());
    for outcome in told.try_iter().chain([device.sync(), device.discard(0, 4096), device.read(0, &mut [0; BLOCK])]) {
        assert!(Crashed::is(&outcome.unwrap_err()));
    }
    assert!(device.is_crashed());
    assert_eq!(device.pristine(0, BLOCK).unwrap()[..], [1; BLOCK], "the oracle may still ask");
    device.revive().unwrap();
    assert_eq!(read(&device, 0, BLOCK), [1; BLOCK]);
}

#[test]
fn unsynced_writes_meet_every_fate() {
    let mut all = Survivors::default();
    let (mut nothing, mut everything) = (0, 0);
    for seed in 0..100 {
        let device = faulty(seed);
        for block in 0..6 {
            device.write(at(block), &[1; BLOCK]).unwrap();
        }
        let survivors = device.crash().unwrap();
        device.revive().unwrap();
        let shown = read(&device, 0, 6 * BLOCK);
        let whole = shown.chunks(BLOCK).filter(|block| sectors_with(block, 1) == 8).count() as u64;
        let lost = shown.chunks(BLOCK).filter(|block| sectors_with(block, 0) == 8).count() as u64;
        assert_eq!(survivors, Survivors { whole, lost, torn: 6 - whole - lost });
        assert!(device.is_true(0, CAPACITY as usize).unwrap(), "what survived is the truth now");
        all = Survivors { whole: all.whole + whole, torn: all.torn + survivors.torn, lost: all.lost + lost };
        nothing += u32::from(lost == 6);
        everything += u32::from(whole == 6);
    }
    assert!(all.whole > 60 && all.torn > 60 && all.lost > 60, "{all:?}");
    assert!(nothing > 3 && everything > 3, "{nothing}, {everything}");
}

#[test]
fn a_crash_takes_back_writes_on_top_of_each_other() {
    let mut both_lost = 0;
    for seed in 0..60 {
        let device = faulty(seed);
        device.write(0, &[1; BLOCK]).unwrap();
        device.write(0, &[2; BLOCK]).unwrap();
        let survivors = device.crash().unwrap();
        device.revive().unwrap();
        if survivors.lost == 2 {
            both_lost += 1;
            assert_eq!(read(&device, 0, BLOCK), [0; BLOCK]);
        }
        if survivors.whole == 2 {
            assert_eq!(read(&device, 0, BLOCK), [2; BLOCK]);
        }
    }
    assert!(both_lost > 5, "{both_lost}");
}

#[test]
fn after_a_failed_sync_a_good_one_does_not_bring_the_writes_back() {
    let mut gone = 0;
    for seed in 0..60 {
        let device = faulty(seed);
        device.add(Rule::nth(Fault::SyncError, 1));
        device.write(0, &[1; BLOCK]).unwrap();
        device.sync().unwrap_err();
        device.write(at(1), &[2; BLOCK]).unwrap();
        device.sync().unwrap();
        device.write(0, &[3; 512 * 8]).unwrap();
        device.sync().unwrap();
        device.write(at(2), &[4; BLOCK]).unwrap();
        device.sync().unwrap();
        device.revive().unwrap();
        assert_eq!(read(&device, at(1), BLOCK), [2; BLOCK]);
        assert_eq!(read(&device, 0, BLOCK), [3; BLOCK], "a later, synced write is not undone");

        let device = faulty(seed);
        device.add(Rule::nth(Fault::SyncError, 1));
        device.write(0, &[1; BLOCK]).unwrap();
        device.sync().unwrap_err();
        device.sync().unwrap();
        device.revive().unwrap();
        gone += u32::from(read(&device, 0, BLOCK) != [1; BLOCK]);
    }
    assert!(gone > 5, "{gone}");
}

#[test]
fn counting_goes_around_a_faulty_device() {
    let device = CountedDevice::new(Arc::new(faulty(1)));
    device.write(0, &[0; BLOCK]).unwrap();
    device.sync().unwrap();
    assert_eq!((device.counts().writes, device.counts().write_bytes, device.counts().syncs), (1, 4096, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize, u8),
    Read(u64, usize),
    Sync,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let extent = || (0..BLOCKS).prop_flat_map(|block| (Just(block), 1..=(BLOCKS - block).min(4) as usize));
    prop_oneof![
        8 => (extent(), any::<u8>()).prop_map(|((block, len), fill)| Step::Write(block, len, fill)),
        4 => extent().prop_map(|(block, len)| Step::Read(block, len)),
        2 => Just(Step::Sync),
        1 => Just(Step::Crash),
    ]
}

/// Everything that can be seen of a run: outcomes, bytes read, survivors, and the bytes at the end.
fn trace(seed: u64, rules: &[Rule], steps: &[Step]) -> Vec<u8> {
    let device = faulty(seed);
    for rule in rules {
        device.add(rule.clone());
    }
    let mut seen = Vec::new();
    for step in steps {
        let outcome = match step {
            Step::Write(block, len, fill) => device.write(at(*block), &vec![*fill; len * BLOCK]),
            Step::Read(block, len) => {
                let mut buf = vec![0; len * BLOCK];
                let outcome = device.read(at(*block), &mut buf);
                seen.extend(buf);
                outcome
            }
            Step::Sync => device.sync(),
            Step::Crash => device.crash().map(|survivors| seen.extend(format!("{survivors:?}").bytes())),
        };
        if let Err(error) = outcome {
            seen.extend(error.to_string().bytes());
        }
        if device.is_crashed() {
            device.revive().unwrap();
        }
    }
    device.clear_rules();
    seen.extend(read(&device, 0, CAPACITY as usize));
    seen.extend_from_slice(&device.pristine(0, CAPACITY as usize).unwrap());
    seen
}

fn every_fault() -> Vec<Rule> {
    let millisecond = Duration::from_millis(1);
    [
        Fault::ReadError,
        Fault::WriteError,
        Fault::SyncError,
        Fault::LostSync,
        Fault::NoSpace,
        Fault::Lost,
        Fault::Torn,
        Fault::Misdirected,
        Fault::Rot,
        Fault::Flicker,
        Fault::Delay(On::Any, millisecond),
        Fault::Crash(On::Any),
    ]
    .map(|fault| Rule::rate(fault, 0.05))
    .into()
}

/// Per sector, the contents that a crash may leave: the synced one and each written since.
struct Oracle(Vec<Vec<u8>>);

impl Oracle {
    fn sectors(block: u64, len: usize) -> std::ops::Range<usize> {
        block as usize * 8..(block as usize + len) * 8
    }

    fn write(&mut self, block: u64, len: usize, fill: u8) {
        for sector in Self::sectors(block, len) {
            self.0[sector].push(fill);
        }
    }

    fn sync(&mut self) {
        for history in &mut self.0 {
            history.drain(..history.len() - 1);
        }
    }

    /// The device must show, in each sector, one of the possible contents, whole; that one is now synced.
    fn settle(&mut self, device: &FaultyDevice) {
        let shown = read(device, 0, CAPACITY as usize);
        for (history, sector) in self.0.iter_mut().zip(shown.chunks(512)) {
            assert!(sector.iter().all(|&b| b == sector[0]) && history.contains(&sector[0]));
            *history = vec![sector[0]];
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_and_operations_give_the_same_bytes(
        seed: u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let rules = every_fault();
        prop_assert!(trace(seed, &rules, &steps) == trace(seed, &rules, &steps));
    }

    #[test]
    fn a_crash_leaves_each_sector_in_a_state_of_its_history(
        seed: u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let device = faulty(seed);
        let mut oracle = Oracle(vec![vec![0]; BLOCKS as usize * 8]);
        for step in steps {
            match step {
                Step::Write(block, len, fill) => {
                    device.write(at(block), &vec![fill; len * BLOCK]).unwrap();
                    oracle.write(block, len, fill);
                }
                Step::Read(block, len) => {
                    let shown = read(&device, at(block), len * BLOCK);
                    for (sector, bytes) in Oracle::sectors(block, len).zip(shown.chunks(512)) {
                        prop_assert_eq!(Some(&bytes[0]), oracle.0[sector].last());
                    }
                }
                Step::Sync => {
                    device.sync().unwrap();
                    oracle.sync();
                }
                Step::Crash => {
                    device.revive().unwrap();
                    oracle.settle(&device);
                }
            }
            prop_assert!(device.is_true(0, CAPACITY as usize).unwrap());
        }
    }

    #[test]
    fn whatever_lies_the_truth_is_what_was_written(
        seed: u64,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let device = faulty(seed);
        for fault in [Fault::Lost, Fault::Torn, Fault::Misdirected, Fault::Rot, Fault::Flicker] {
            device.add(Rule::rate(fault, 0.1));
        }
        let mut truth = vec![0; CAPACITY as usize];
        for step in steps {
            match step {
                Step::Write(block, len, fill) => {
                    device.write(at(block), &vec![fill; len * BLOCK]).unwrap();
                    truth[at(block) as usize..][..len * BLOCK].fill(fill);
                }
                Step::Read(block, len) => drop(read(&device, at(block), len * BLOCK)),
                Step::Sync | Step::Crash => device.sync().unwrap(),
            }
            prop_assert!(device.pristine(0, CAPACITY as usize).unwrap()[..] == truth[..]);
        }
        // Synced or healed, the truth is also what is there after a crash.
        device.sync().unwrap();
        device.revive().unwrap();
        prop_assert!(device.pristine(0, CAPACITY as usize).unwrap()[..] == truth[..]);
        device.clear_rules();
        device.heal();
        prop_assert!(read(&device, 0, CAPACITY as usize) == truth);
    }
}
