//! The drive and the budget, request by request. What they are calibrated on is in `tests/simulated.rs`.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use picaflor_device::{AlignedBuf, Clock, CountedDevice, Device, Op, Request};

use super::*;
use crate::FaultyDevice;

/// One zone of 100 sectors a track, 10 ms a revolution, seeks of 1 ms a cylinder and 5 ms more.
const SMALL: &str = r#"
name = "small"
title = "for tests"
sources = []
proxies = []
[disk]
rpm = 6000
heads = 2
cylinders = 10
zones = [{ first = 0, sectors = 100 }]
head_switch_ms = 0.5
write_settle_ms = 0.25
track_skew_ms = 1.0
cylinder_skew_ms = 7.0
overhead_ms = 0.2
hit_overhead_ms = 0.1
bus_mb_s = 51.2
queue = 1
order = "fifo"
seek = { a = 0, b = 0, c = 5, e = 1, break = 0 }
cache = { segments = 2, segment_sectors = 64, read_ahead_sectors = 32, write_sectors = 0 }
"#;

fn small(options: &SimulatedOptions) -> SimulatedDisk {
    of(SMALL, options)
}

fn of(profile: &str, options: &SimulatedOptions) -> SimulatedDisk {
    SimulatedDisk::new(&Profile::parse("small", profile).unwrap(), Clock::virtual_at(0), options).unwrap()
}

fn took(disk: &SimulatedDisk, act: impl FnOnce(&SimulatedDisk)) -> u64 {
    let before = disk.clock().now_nanos();
    act(disk);
    (disk.clock().now_nanos() - before) / 1_000
}

fn read(sector: u64, sectors: usize) -> impl FnOnce(&SimulatedDisk) {
    move |disk| disk.read(sector * 512, &mut vec![0; sectors * 512]).unwrap()
}

fn write(sector: u64, sectors: usize) -> impl FnOnce(&SimulatedDisk) {
    move |disk| disk.write(sector * 512, &vec![1; sectors * 512]).unwrap()
}

#[test]
fn the_platter_turns_by_the_clock() {
    let disk = small(&SimulatedOptions::default());
    // Overhead 0.2 ms; sector 50 passes from 5.0 to 5.1 ms.
    assert_eq!(took(&disk, write(50, 1)), 5_100);
    // At 5.1 + 0.2 it has passed: one revolution, not half of one.
    assert_eq!(took(&disk, write(50, 1)), 10_000);
    assert_eq!(took(&disk, write(51, 1)), 10_100);
    // Sector 60 is still to come.
    assert_eq!(took(&disk, write(60, 1)), 900);
}

#[test]
fn a_transfer_crosses_tracks_and_cylinders_at_the_cost_of_their_skews() {
    let disk = small(&SimulatedOptions::default());
    // Waits for sector 0 till 10.0; 100 sectors; a track skew; 100; a cylinder skew; 10.
    assert_eq!(took(&disk, read(0, 210)), 10_000 + 10_000 + 1_000 + 10_000 + 7_000 + 1_000 + 10);
    let times = disk.times();
    assert_eq!((times.transfer, times.seek), (21_000_000, 6_500_000));
}

#[test]
fn a_seek_a_head_switch_and_a_write_settle() {
    let disk = small(&SimulatedOptions::default());
    disk.write(0, &[0; 512]).unwrap();
    let before = disk.times();
    disk.write(200 * 3 * 512, &[0; 512]).unwrap();
    assert_eq!(disk.times().seek - before.seek, 8_250_000);
    disk.write((200 * 3 + 100) * 512, &[0; 512]).unwrap();
    assert_eq!(disk.times().seek - before.seek, 8_250_000 + 750_000);
    disk.write((200 * 3 + 101) * 512, &[0; 512]).unwrap();
    assert_eq!(disk.times().seek - before.seek, 9_000_000);
}

#[test]
fn reading_ahead_serves_a_sequential_reader_who_thinks() {
    let disk = small(&SimulatedOptions::default());
    assert_eq!(took(&disk, read(10, 4)), 1_400 + 10);
    disk.clock().advance(std::time::Duration::from_micros(600));
    // Sectors 14 to 19 have been read meanwhile.
    assert_eq!(took(&disk, read(14, 4)), 100 + 40);
    // Sector 22 was reached at 2.15; up to 30 is waited for, till 3.0.
    assert_eq!(took(&disk, read(22, 8)), 3_000 + 10 - 2_150);
    assert_eq!(disk.times().hits, 1);
    // What is written is not in the buffer any more.
    disk.write(20 * 512, &[1; 512]).unwrap();
    assert!(took(&disk, read(16, 1)) > 140);
}

#[test]
fn reading_ahead_stops_where_the_arm_is_needed() {
    let disk = small(&SimulatedOptions::default());
    read(10, 4)(&disk);
    read(700, 1)(&disk);
    let hits = disk.times().hits;
    read(14, 1)(&disk);
    assert_eq!(disk.times().hits, hits + 1, "read during the overhead of the next command");
    read(30, 1)(&disk);
    assert_eq!(disk.times().hits, hits + 1);
}

#[test]
fn a_write_cache_answers_at_bus_speed_until_it_is_full_and_a_sync_waits() {
    let disk = small(&SimulatedOptions { write_cache: Some(8 * 512), ..SimulatedOptions::default() });
    assert_eq!(took(&disk, write(500, 4)), 240);
    assert_eq!(took(&disk, write(900, 4)), 240);
    assert!(took(&disk, write(100, 4)) > 5_000);
    assert!(took(&disk, |disk| disk.sync().unwrap()) > 5_000);
    assert_eq!(took(&disk, |disk| disk.sync().unwrap()), 200);
    assert_eq!(disk.times().drained, 3);
    let mut back = [0; 512];
    disk.read(900 * 512, &mut back).unwrap();
    assert_eq!(back, [1; 512]);
}

/// Submits reads of these sectors at once; the order in which they are done.
fn order(order: Order, sectors: &[u64]) -> Vec<u64> {
    let options = SimulatedOptions { order: Some(order), ..SimulatedOptions::default() };
    let disk = of(&SMALL.replace("queue = 1", "queue = 8"), &options);
    disk.read(800 * 512, &mut [0; 512]).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let request = |sector: &u64| {
        let (seen, sector) = (Arc::clone(&seen), *sector);
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| {
            assert_eq!(outcome.unwrap().len(), 512);
            seen.lock().push(sector);
        });
        Request { offset: sector * 512, op: Op::Read(AlignedBuf::zeroed(512)), done }
    };
    disk.submit(sectors.iter().map(request).collect());
    assert_eq!(disk.outstanding(), sectors.len());
    while disk.advance() {}
    assert_eq!(disk.next_event(), None);
    Arc::into_inner(seen).map(Mutex::into_inner).unwrap_or_default()
}

#[test]
fn elevators() {
    let sectors = [1200, 300, 900, 100, 1500, 500];
    assert_eq!(order(Order::Fifo, &sectors), sectors);
    assert_eq!(order(Order::OneWay, &sectors), [900, 1200, 1500, 100, 300, 500]);
    assert_eq!(order(Order::TwoWay, &sectors), [900, 1200, 1500, 500, 300, 100]);
    // The others are a seek away, and at least 9 ms. 805 comes at once.
    assert_eq!(order(Order::Nearest, &[1450, 805, 1])[0], 805);
}

#[test]
fn completions_are_delivered_in_order_of_time_and_may_submit_again() {
    let disk = small(&SimulatedOptions::default());
    let log = Arc::new(Mutex::new(Vec::new()));
    let (inner, again) = (disk.clone(), Arc::clone(&log));
    disk.touch(700 * 512, 512, false, move || {
        let (clock, log) = (inner.clock().clone(), Arc::clone(&again));
        again.lock().push(clock.now_nanos());
        inner.touch(100 * 512, 512, true, move || log.lock().push(clock.now_nanos())).unwrap();
    })
    .unwrap();
    let first = disk.next_event().unwrap();
    assert_eq!(disk.clock().now_nanos(), 0);
    disk.run_until(first - 1);
    assert!(log.lock().is_empty());
    disk.run_until(1_000_000_000);
    assert_eq!(disk.clock().now_nanos(), 1_000_000_000);
    let log = log.lock().clone();
    assert!(log.len() == 2 && log[0] == first && log[1] > first && log[1] < 50_000_000, "{log:?}");
}

#[test]
fn a_blocking_call_delivers_what_falls_due_meanwhile() {
    let disk = small(&SimulatedOptions::default());
    let seen = Arc::new(Mutex::new(None));
    let (clock, told) = (disk.clock().clone(), Arc::clone(&seen));
    disk.touch(1500 * 512, 512, false, move || *told.lock() = Some(clock.now_nanos())).unwrap();
    disk.write(0, &[7; 512]).unwrap();
    assert!(seen.lock().unwrap() < disk.clock().now_nanos());
}

#[test]
fn refusals() {
    let disk = small(&SimulatedOptions::default());
    assert_eq!(disk.capacity(), 10 * 2 * 100 * 512);
    for offset in [100, disk.capacity()] {
        assert_eq!(disk.read(offset, &mut [0; 512]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    let profile = Profile::parse("small", SMALL).unwrap();
    let new = |clock, options: &SimulatedOptions| SimulatedDisk::new(&profile, clock, options).err().unwrap();
    assert!(new(Clock::real(), &SimulatedOptions::default()).to_string().contains("virtual clock"));
    let options = SimulatedOptions { part: Some(0..1 << 40), ..SimulatedOptions::default() };
    assert!(new(Clock::virtual_at(0), &options).to_string().contains("beyond"));
}

#[test]
fn a_profile_with_a_key_that_is_not_known_is_refused_with_its_line() {
    let error = |text: &str| Profile::parse("my.toml", text).unwrap_err().to_string();
    let misspelt = error(&SMALL.replace("rpm", "rmp"));
    assert!(misspelt.contains("my.toml") && misspelt.contains("line 7") && misspelt.contains("rmp"), "{misspelt}");
    assert!(error(&SMALL.replace("rpm = 6000", "rpm = 0")).contains("rpm"));
    assert!(error(&SMALL.replace("first = 0", "first = 3")).contains("zones"));
    assert!(error(&SMALL.replace("b = 0,", "")).contains("seek"));
    assert!(Profile::find("no-such-disk").unwrap_err().to_string().contains("barracuda4"));
}

#[test]
fn composes_with_the_faulty_and_the_counting_device() {
    let disk = small(&SimulatedOptions::default());
    let counted = CountedDevice::new(Arc::new(disk.clone()));
    let faulty = FaultyDevice::new(Arc::new(counted.clone()), 1);
    faulty.write(512, &[3; 1024]).unwrap();
    faulty.sync().unwrap();
    faulty.crash().unwrap();
    faulty.revive().unwrap();
    let mut back = [0; 1024];
    faulty.read(512, &mut back).unwrap();
    assert_eq!(back, [3; 1024]);
    assert!(counted.counts().writes > 0 && disk.clock().now_nanos() > 10_000_000);
}

#[test]
fn a_range_that_is_discarded_reads_as_zeros_and_holds_nothing() {
    let disk = small(&SimulatedOptions { part: Some(51_200..512_000), ..SimulatedOptions::default() });
    disk.write(8_192, &[3; 8_192]).unwrap();
    assert!(disk.held_bytes() > 0);
    disk.discard(0, 51_200).unwrap();
    assert_eq!(disk.held_bytes(), 0);
}
