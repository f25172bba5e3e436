//! Bare: what threads that block could have of the device if there were no store: all of them wait for each other, the
//! last to come writes the joint batch and syncs it, and wakes the rest. fio's ceiling for a joint batch is one thread
//! that is never woken by another.

use std::{
    path::Path,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use bench_common::usage::Usage;
use picaflor::device::{AlignedBuf, Device, FileDevice, OpenOptions, Preallocate};

use super::Figures;

/// What one of them writes: with header and rounding, about what an object of the bench takes.
const PIECE: usize = 8 << 10;
const CAPACITY: u64 = 64 << 20;

#[derive(Default)]
struct State {
    round: u64,
    here: usize,
}

/// So many threads, on a file of their own at this path.
pub(crate) fn run(file: &Path, threads: usize, time: Duration) -> Result<Figures> {
    let options =
        OpenOptions { capacity: Some(CAPACITY), create: true, preallocate: Preallocate::Write, ..Default::default() };
    let device = FileDevice::open(file, options)?;
    let batch = AlignedBuf::zeroed(threads * PIECE);
    let (state, changed, over) = (Mutex::new(State::default()), Condvar::new(), AtomicBool::new(false));
    let before = Usage::now();
    let end = Instant::now() + time;
    let commit = |round: u64| -> Result<()> {
        let at = round * batch.len() as u64 % (CAPACITY - batch.len() as u64);
        device.write(at / PIECE as u64 * PIECE as u64, &batch)?;
        Ok(device.sync()?)
    };
    let write = || -> Result<()> {
        let locked = || state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut now = locked();
            if over.load(Relaxed) {
                return Ok(());
            }
            now.here += 1;
            let round = now.round;
            if now.here < threads {
                while now.round == round {
                    now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            }
            drop(now);
            let done = commit(round);
            if done.is_err() || Instant::now() >= end {
                over.store(true, Relaxed);
            }
            *locked() = State { round: round + 1, here: 0 };
            changed.notify_all();
            done?;
        }
    };
    let ends: Vec<Result<()>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        handles.into_iter().map(|handle| handle.join().expect("a writer panicked")).collect()
    });
    ends.into_iter().collect::<Result<()>>()?;
    let used = before.until_now();
    drop(device);
    std::fs::remove_file(file)?;
    let done = state.into_inner().unwrap_or_else(PoisonError::into_inner).round as f64 * threads as f64;
    Ok(Figures::from([
        ("1 durable puts/s".into(), done / used.seconds),
        ("2 CPU us/put".into(), used.cpu * 1e6 / done),
    ]))
}
