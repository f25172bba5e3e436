//! Every device against a plain vector of bytes, under random batches of overlapping-free requests.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::sync::{Arc, mpsc};

use picaflor_device::{
    AlignedBuf, Backend, BufPool, Device, FileDevice, MemoryDevice, Op, OpenOptions, Preallocate, Request,
};
use proptest::prelude::*;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

#[derive(Clone, Debug)]
enum Step {
    /// Requests on distinct blocks, so that their order within the batch does not matter.
    Batch(Vec<Action>),
    BlockingWrite(usize, usize, u8),
    BlockingRead(usize, usize),
    Sync,
}

#[derive(Clone, Debug)]
enum Action {
    Read(usize, usize),
    Write(usize, usize, u8),
    Sync,
}

fn extent() -> impl Strategy<Value = (usize, usize)> {
    (0..BLOCKS).prop_flat_map(|start| (Just(start), 1..=(BLOCKS - start).min(9)))
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => extent().prop_map(|(start, len)| Action::Read(start, len)),
        4 => (extent(), any::<u8>()).prop_map(|((start, len), fill)| Action::Write(start, len, fill)),
        1 => Just(Action::Sync),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop::collection::vec(action(), 1..24).prop_map(|actions| Step::Batch(without_overlap(actions))),
        1 => (extent(), any::<u8>()).prop_map(|((start, len), fill)| Step::BlockingWrite(start, len, fill)),
        1 => extent().prop_map(|(start, len)| Step::BlockingRead(start, len)),
        1 => Just(Step::Sync),
    ]
}

fn without_overlap(actions: Vec<Action>) -> Vec<Action> {
    let mut taken = [false; BLOCKS];
    actions
        .into_iter()
        .filter(|action| match action {
            Action::Read(start, len) | Action::Write(start, len, _) => {
                let range = &mut taken[*start..start + len];
                let free = !range.contains(&true);
                if free {
                    range.fill(true);
                }
                free
            }
            Action::Sync => true,
        })
        .collect()
}

/// Bytes that differ from block to block and from write to write.
fn pattern(start: usize, len: usize, fill: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len * BLOCK);
    for (i, block) in buf.chunks_mut(BLOCK).enumerate() {
        block.fill(fill.wrapping_add((start + i) as u8));
        block[0] = fill;
    }
    buf
}

fn run_batch(device: &dyn Device, pool: &BufPool, model: &mut [u8], actions: &[Action]) {
    let (tell, told) = mpsc::channel();
    let mut batch = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let tell = tell.clone();
        let done = Box::new(move |outcome| tell.send((index, outcome)).expect("a listener"));
        let (offset, op) = match action {
            Action::Read(start, len) => (*start, Op::Read(pool.take(len * BLOCK))),
            Action::Write(start, len, fill) => {
                let bytes = pattern(*start, *len, *fill);
                model[start * BLOCK..][..len * BLOCK].copy_from_slice(&bytes);
                (*start, Op::Write(bytes.into_bytes()))
            }
            Action::Sync => (0, Op::Sync),
        };
        batch.push(Request { offset: (offset * BLOCK) as u64, op, done });
    }
    drop(tell);
    device.submit(batch);
    let mut answered = vec![false; actions.len()];
    for (index, outcome) in told {
        assert!(!std::mem::replace(&mut answered[index], true), "answered twice");
        let buf = outcome.expect("no faults here");
        match actions[index] {
            Action::Read(start, len) => assert!(buf[..] == model[start * BLOCK..][..len * BLOCK]),
            _ => assert!(buf.is_empty()),
        }
    }
    assert!(answered.iter().all(|&a| a), "every request is answered");
}

fn check(device: &dyn Device, steps: &[Step]) {
    let pool = BufPool::new(1 << 20);
    let mut model = vec![0; BLOCKS * BLOCK];
    device.write(0, &model).unwrap();
    for step in steps {
        match step {
            Step::Batch(actions) => run_batch(device, &pool, &mut model, actions),
            Step::BlockingWrite(start, len, fill) => {
                let bytes = pattern(*start, *len, *fill);
                device.write((start * BLOCK) as u64, &bytes).unwrap();
                model[start * BLOCK..][..len * BLOCK].copy_from_slice(&bytes);
            }
            Step::BlockingRead(start, len) => {
                let mut buf = vec![0xee; len * BLOCK];
                device.read((start * BLOCK) as u64, &mut buf).unwrap();
                assert!(buf[..] == model[start * BLOCK..][..len * BLOCK]);
            }
            Step::Sync => device.sync().unwrap(),
        }
    }
    let mut whole = vec![0; model.len()];
    device.read(0, &mut whole).unwrap();
    assert!(whole == model);
}

fn file(directory: &tempfile::TempDir, backend: Backend, direct: bool) -> FileDevice {
    let options = OpenOptions {
        capacity: Some((BLOCKS * BLOCK) as u64),
        create: true,
        backend,
        direct,
        preallocate: Preallocate::Reserve,
        ..OpenOptions::default()
    };
    FileDevice::open(directory.path().join("store"), options).unwrap()
}

/// Directory whose file system allows direct I/O, if the build directory's does.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn io_uring_works() -> bool {
    let options =
        OpenOptions { capacity: Some(4096), create: true, backend: Backend::IoUring, ..OpenOptions::default() };
    FileDevice::open(directory().path().join("probe"), options).is_ok()
}

fn against_model(device: &dyn Device) {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..20))| check(device, &steps));
}

#[test]
fn memory_is_like_the_model() {
    against_model(&MemoryDevice::new((BLOCKS * BLOCK) as u64));
}

#[test]
fn file_through_io_uring_is_like_the_model() {
    if io_uring_works() {
        let directory = directory();
        against_model(&file(&directory, Backend::IoUring, true));
        let buffered = self::directory();
        against_model(&file(&buffered, Backend::IoUring, false));
    }
}

#[test]
fn file_through_the_pool_is_like_the_model() {
    let directory = directory();
    against_model(&file(&directory, Backend::Pool, true));
}

#[test]
fn submitting_from_many_threads_answers_everything() {
    for backend in [Backend::Auto, Backend::Pool] {
        let directory = directory();
        let device: Arc<dyn Device> = Arc::new(file(&directory, backend, true));
        std::thread::scope(|scope| {
            for thread in 0..8usize {
                let device = &device;
                scope.spawn(move || {
                    let mut model = vec![0; BLOCKS * BLOCK];
                    let mine = thread * 8;
                    for round in 0..40u8 {
                        let actions: Vec<_> = (mine..mine + 8).map(|block| Action::Write(block, 1, round)).collect();
                        run_batch(device.as_ref(), &BufPool::new(0), &mut model, &actions);
                        let actions: Vec<_> = (mine..mine + 8).map(|block| Action::Read(block, 1)).collect();
                        run_batch(device.as_ref(), &BufPool::new(0), &mut model, &actions);
                    }
                });
            }
        });
    }
}
