//! What a file device promises beyond moving bytes: clear refusals, one writer, sticky failures, nothing lost
//! on drop.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use picaflor_device::{AlignedBuf, Backend, Device, FileDevice, Op, OpenOptions, Preallocate, Request};

const BACKENDS: [Backend; 2] = [Backend::Auto, Backend::Pool];

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn new(capacity: u64) -> OpenOptions {
    OpenOptions { capacity: Some(capacity), create: true, ..OpenOptions::default() }
}

/// The error of an open that must fail, which names the file.
fn refusal(path: &Path, options: OpenOptions) -> io::Error {
    let error = FileDevice::open(path, options).unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

#[test]
fn a_new_file_has_its_capacity_and_reads_as_zeros() {
    for preallocate in [Preallocate::Auto, Preallocate::Write, Preallocate::Reserve] {
        let directory = directory();
        let path = directory.path().join("store");
        let mut told = Vec::new();
        let options = OpenOptions { preallocate, ..new(3 << 20) };
        let device =
            FileDevice::open_with_progress(&path, options, &mut |done, total| told.push((done, total))).unwrap();
        assert_eq!(device.capacity(), 3 << 20);
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20);
        let mut buf = vec![1; 3 << 20];
        device.read(0, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 0));
        match preallocate {
            Preallocate::Reserve => assert!(told.is_empty()),
            _ => assert_eq!(told, [(0, 3 << 20), (1 << 20, 3 << 20), (2 << 20, 3 << 20), (3 << 20, 3 << 20)]),
        }
    }
}

#[test]
fn bytes_are_there_after_reopening_with_or_without_a_capacity() {
    let directory = directory();
    let path = directory.path().join("store");
    for round in 1..20u8 {
        // Dropped and opened at once: the lock must be gone when drop returns.
        let device = FileDevice::open(&path, new(1 << 20)).unwrap();
        device.write(8192, &[round; 4096]).unwrap();
        device.sync().unwrap();
        drop(device);
        let device = FileDevice::open(&path, OpenOptions::default()).unwrap();
        assert_eq!(device.capacity(), 1 << 20);
        let mut buf = [0; 4096];
        device.read(8192, &mut buf).unwrap();
        assert_eq!(buf, [round; 4096]);
    }
    let part = FileDevice::open(&path, OpenOptions { capacity: Some(8192), ..OpenOptions::default() }).unwrap();
    assert_eq!(part.capacity(), 8192);
    assert_eq!(part.read(8192, &mut [0; 4096]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_cannot_be_a_store_is_refused_with_a_reason() {
    let directory = directory();
    let path = directory.path().join("store");
    let says = |options: OpenOptions, what: &str| {
        let error = refusal(&path, options).to_string();
        assert!(error.contains(what), "{error:?} does not say {what:?}");
    };
    says(OpenOptions::default(), "No such file");
    says(OpenOptions { create: true, ..OpenOptions::default() }, "needs a capacity");
    says(new(0), "capacity of 0");
    says(new(4097), "not a multiple");
    says(OpenOptions { block_size: 1000, ..new(4096) }, "power of two");
    assert!(!path.exists(), "a refused open leaves nothing behind");
    fs::write(&path, vec![0; 5000]).unwrap();
    says(OpenOptions::default(), "not a multiple");
    says(new(8192), "shorter than the capacity");
    fs::write(&path, b"").unwrap();
    says(OpenOptions::default(), "empty");
    assert!(refusal(directory.path(), new(4096)).to_string().contains("directory"));
    assert!(refusal(Path::new("/dev/null"), OpenOptions::default()).to_string().contains("neither"));
    refusal(&directory.path().join("no/such/place"), new(4096));
}

#[test]
fn one_writer_or_many_readers() {
    let directory = directory();
    let path = directory.path().join("store");
    let writer = FileDevice::open(&path, new(4096)).unwrap();
    let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
    assert_eq!(refusal(&path, OpenOptions::default()).kind(), ErrorKind::ResourceBusy);
    assert_eq!(refusal(&path, reading.clone()).kind(), ErrorKind::ResourceBusy);
    drop(writer);
    let first = FileDevice::open(&path, reading.clone()).unwrap();
    let second = FileDevice::open(&path, reading).unwrap();
    assert_eq!(refusal(&path, OpenOptions::default()).kind(), ErrorKind::ResourceBusy);
    drop((first, second));
    FileDevice::open(&path, OpenOptions::default()).unwrap();
}

#[test]
fn read_only_reads_and_refuses_to_write() {
    for backend in BACKENDS {
        let directory = directory();
        let path = directory.path().join("store");
        FileDevice::open(&path, new(8192)).unwrap().write(4096, &[5; 4096]).unwrap();
        let options = OpenOptions { read_only: true, backend, ..OpenOptions::default() };
        let device = FileDevice::open(&path, options).unwrap();
        let mut buf = [0; 4096];
        device.read(4096, &mut buf).unwrap();
        assert_eq!(buf, [5; 4096]);
        assert_eq!(device.write(0, &[1; 4096]).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(device.discard(0, 4096).unwrap_err().kind(), ErrorKind::PermissionDenied);
        let write = Op::Write(AlignedBuf::zeroed(4096).into_bytes());
        assert_eq!(ask(&device, 0, write).unwrap_err().kind(), ErrorKind::PermissionDenied);
        device.sync().unwrap();
        ask(&device, 0, Op::Sync).unwrap();
    }
}

fn ask(device: &dyn Device, offset: u64, op: Op) -> io::Result<AlignedBuf> {
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |outcome| tell.send(outcome).expect("a listener"));
    device.submit(vec![Request { offset, op, done }]);
    told.recv().expect("an answer")
}

#[test]
fn unaligned_requests_are_refused_and_unaligned_memory_is_not() {
    for backend in BACKENDS {
        let directory = directory();
        let options = OpenOptions { backend, ..new(16_384) };
        let device = FileDevice::open(directory.path().join("store"), options).unwrap();
        for (offset, len) in [(1, 4096), (0, 100), (16_384, 4096), (12_288, 8192)] {
            let error = ask(&device, offset, Op::Read(AlignedBuf::zeroed(len))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let error = ask(&device, offset, Op::Write(Bytes::from(vec![0; len]))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let mut memory = vec![0; 4096 + 1];
        memory[1..].fill(3);
        device.write(0, &memory[1..]).unwrap();
        ask(&device, 4096, Op::Write(Bytes::from(memory.clone()).slice(1..))).unwrap();
        for offset in [0, 4096] {
            memory.fill(0);
            device.read(offset, &mut memory[1..]).unwrap();
            assert!(memory[1..].iter().all(|&b| b == 3));
        }
        assert!(ask(&device, 16_384, Op::Read(AlignedBuf::empty())).unwrap().is_empty());
        assert!(ask(&device, 0, Op::Write(Bytes::new())).unwrap().is_empty());
    }
}

#[test]
fn dropping_the_device_completes_what_was_submitted() {
    for backend in BACKENDS {
        let directory = directory();
        let path = directory.path().join("store");
        let device = FileDevice::open(&path, OpenOptions { backend, ..new(8 << 20) }).unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let batch = (0..2048u64).map(|block| {
            let answered = Arc::clone(&answered);
            let done = Box::new(move |outcome: io::Result<AlignedBuf>| {
                outcome.unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            });
            let op = Op::Write(AlignedBuf::copy_from(&[block as u8; 4096]).into_bytes());
            Request { offset: block * 4096, op, done }
        });
        // More than any queue holds at once.
        device.submit(batch.collect());
        drop(device);
        assert_eq!(answered.load(Ordering::Relaxed), 2048);
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.chunks(4096).enumerate().all(|(block, bytes)| bytes.iter().all(|&b| b == block as u8)));
    }
}

/// Reads block after block, each from the `done` of the one before, and holds the device meanwhile.
fn chain(device: Arc<FileDevice>, left: u64, end: mpsc::Sender<()>) {
    let next = Arc::clone(&device);
    let done = Box::new(move |outcome: io::Result<AlignedBuf>| {
        outcome.unwrap();
        if left > 0 {
            chain(next, left - 1, end);
        } else {
            end.send(()).unwrap();
        }
    });
    device.submit(vec![Request { offset: left % 16 * 4096, op: Op::Read(AlignedBuf::zeroed(4096)), done }]);
}

#[test]
fn a_done_may_submit_and_may_be_the_last_owner() {
    for backend in BACKENDS {
        let directory = directory();
        let path = directory.path().join("store");
        let device = Arc::new(FileDevice::open(&path, OpenOptions { backend, ..new(65_536) }).unwrap());
        let (end, ended) = mpsc::channel();
        for _ in 0..300 {
            chain(Arc::clone(&device), 20, end.clone());
        }
        drop((device, end));
        assert_eq!(ended.iter().count(), 300, "all chains have ended");
    }
}

#[test]
fn a_panic_in_a_done_does_not_stop_the_others() {
    for backend in BACKENDS {
        let directory = directory();
        let device = FileDevice::open(directory.path().join("store"), OpenOptions { backend, ..new(4096) }).unwrap();
        for _ in 0..40 {
            let done = Box::new(|_| std::panic::resume_unwind(Box::new("a quiet panic")));
            device.submit(vec![Request { offset: 0, op: Op::Sync, done }]);
        }
        ask(&device, 0, Op::Read(AlignedBuf::zeroed(4096))).unwrap();
    }
}

#[test]
fn a_file_that_someone_shortens_gives_an_error_not_a_hang() {
    for backend in BACKENDS {
        let directory = directory();
        let path = directory.path().join("store");
        let device = FileDevice::open(&path, OpenOptions { backend, ..new(65_536) }).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        for offset in [0, 32_768] {
            let error = device.read(offset, &mut vec![0; 32_768]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            let error = ask(&device, offset, Op::Read(AlignedBuf::zeroed(32_768))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        }
    }
}

#[test]
fn no_space_is_said_at_creation_and_leaves_nothing_held() {
    let directory = directory();
    let path = directory.path().join("store");
    let error = refusal(&path, new(1 << 50));
    let kinds = [ErrorKind::StorageFull, ErrorKind::FileTooLarge];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    assert!(!path.exists(), "there was none before");
    fs::File::create(&path).unwrap();
    refusal(&path, new(1 << 50));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "there was an empty one before");
    fs::remove_file(&path).unwrap();
    let device = FileDevice::open(&path, new(4096)).unwrap();
    device.unmake();
    assert!(!path.exists());
    drop(device);
    drop(FileDevice::open(&path, new(4096)).unwrap());
    FileDevice::open(&path, new(4096)).unwrap().unmake();
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096, "what was there is not touched");
}

#[test]
fn who_waited_for_a_file_that_came_to_nothing_makes_one_of_its_own() {
    let directory = directory();
    let path = directory.path().join("store");
    let failing = FileDevice::open(&path, new(4096)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| FileDevice::open(&path, new(8192)).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(300));
        failing.unmake();
        drop(failing);
        let made = waiting.join().unwrap();
        assert_eq!((made.capacity(), fs::metadata(&path).unwrap().len()), (8192, 8192), "under its name");
    });
}

#[test]
fn backend_says_what_runs_and_why() {
    let directory = directory();
    let path = directory.path().join("store");
    let backend = |options: OpenOptions| FileDevice::open(&path, options).unwrap().backend();
    assert!(backend(OpenOptions { backend: Backend::Pool, ..new(4096) }).starts_with("pread pool (as asked)"));
    let buffered = backend(OpenOptions { direct: false, ..OpenOptions::default() });
    assert!(buffered.ends_with("buffered (as asked)"), "{buffered}");
}

/// A raw block device, where the environment gives one: `PICAFLOR_BLOCK_DEVICE=/dev/loop7`, whose contents
/// are destroyed.
#[test]
fn a_raw_block_device_is_a_store() {
    let Some(path) = std::env::var_os("PICAFLOR_BLOCK_DEVICE").map(PathBuf::from) else { return };
    for (round, backend) in (1u8..).zip([Backend::Auto, Backend::Pool, Backend::Auto, Backend::Auto]) {
        let device = FileDevice::open(&path, OpenOptions { backend, ..OpenOptions::default() }).unwrap();
        assert!(device.capacity() >= 1 << 20 && device.backend().contains("O_DIRECT"), "{device:?}");
        assert_eq!(refusal(&path, OpenOptions::default()).kind(), ErrorKind::ResourceBusy);
        device.write(0, &[round; 8192]).unwrap();
        ask(&device, 8192, Op::Write(AlignedBuf::copy_from(&[round; 4096]).into_bytes())).unwrap();
        ask(&device, 0, Op::Sync).unwrap();
        device.discard(0, 4096).unwrap();
        let end = device.capacity() & !4095;
        assert_eq!(device.read(end, &mut [0; 4096]).unwrap_err().kind(), ErrorKind::InvalidInput);
        let buf = ask(&device, 4096, Op::Read(AlignedBuf::zeroed(8192))).unwrap();
        assert!(buf.iter().all(|&b| b == round));
    }
    let too_much = OpenOptions { capacity: Some(1 << 50), ..OpenOptions::default() };
    assert!(refusal(&path, too_much).to_string().contains("shorter"));
}

/// A file system of at most a few MiB, where the environment gives one: `PICAFLOR_SMALL_DIRECTORY=/mnt/tmpfs`.
#[test]
fn a_full_file_system_fails_the_write_and_nothing_else() {
    let Some(small) = std::env::var_os("PICAFLOR_SMALL_DIRECTORY").map(PathBuf::from) else { return };
    for backend in BACKENDS {
        let path = small.join("store");
        assert_eq!(refusal(&path, new(64 << 20)).kind(), ErrorKind::StorageFull);
        assert!(!path.exists());
        // Blocks that are promised by the length but not there.
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let device = FileDevice::open(&path, OpenOptions { backend, ..OpenOptions::default() }).unwrap();
        device.write(0, &[7; 4096]).unwrap();
        let much = AlignedBuf::zeroed(32 << 20);
        assert_eq!(device.write(4096, &much).unwrap_err().kind(), ErrorKind::StorageFull);
        let error = ask(&device, 4096, Op::Write(much.into_bytes())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        device.write(0, &[8; 4096]).unwrap();
        device.sync().unwrap();
        assert_eq!(ask(&device, 0, Op::Read(AlignedBuf::zeroed(4096))).unwrap()[..], [8; 4096]);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_batch_is_carried_out_on_the_calling_thread_before_run_returns() {
    for backend in [Backend::Auto, Backend::Pool] {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions { capacity: Some(4 << 20), create: true, backend, ..OpenOptions::default() };
        let device = FileDevice::open(directory.path().join("store"), options).unwrap();
        // More than a ring holds at once.
        let block = |number: u64| picaflor_device::AlignedBuf::copy_from(&[number as u8; 4096]).into_bytes();
        picaflor_device::write_all(&device, (0..600).map(|number| (number * 4096, block(number))).collect()).unwrap();
        let here = std::thread::current().id();
        let (tell, told) = std::sync::mpsc::channel();
        let request = |number: u64| {
            let tell = tell.clone();
            let done: picaflor_device::Done = Box::new(move |outcome| {
                assert_eq!(std::thread::current().id(), here);
                tell.send((number, outcome.unwrap()[0])).unwrap();
            });
            let op = picaflor_device::Op::Read(picaflor_device::AlignedBuf::zeroed(4096));
            picaflor_device::Request { offset: number * 4096, op, done }
        };
        device.run((0..600).map(request).collect());
        let mut read: Vec<(u64, u8)> = told.try_iter().collect();
        read.sort_unstable();
        assert!(read.iter().enumerate().all(|(at, &(number, byte))| at as u64 == number && byte == number as u8));
        assert_eq!(read.len(), 600);
        let outside = picaflor_device::write_all(&device, vec![(0, block(1)), (4 << 20, block(2))]).unwrap_err();
        assert!(outside.to_string().contains("outside the device"), "{outside}");
    }
}

#[test]
fn a_file_that_was_given_back_is_not_written_any_more() {
    for backend in BACKENDS {
        let directory = directory();
        let path = directory.path().join("store");
        let device = FileDevice::open(&path, OpenOptions { backend, ..new(64 << 20) }).unwrap();
        let piece = AlignedBuf::copy_from(&vec![7; 1 << 20]).into_bytes();
        let (tell, told) = mpsc::channel();
        let write = |number: u64| {
            let tell = tell.clone();
            let done: picaflor_device::Done = Box::new(move |outcome| tell.send(outcome.map(drop)).unwrap());
            Request { offset: number << 20, op: Op::Write(piece.clone()), done }
        };
        device.submit((0..64).map(write).collect());
        // Some have begun.
        let first = told.recv().unwrap();
        device.release();
        let _next = FileDevice::open(&path, OpenOptions { backend, ..new(64 << 20) }).unwrap();
        let file = fs::File::open(&path).unwrap();
        let written = || (1..=64).filter(|number| last_byte_before(&file, number << 20) == 7).count();
        let in_time = written();
        let told: Vec<_> = std::iter::once(first).chain(told.iter().take(63)).collect();
        assert_eq!(written(), in_time, "{backend:?}: what was under way was waited for");
        assert_eq!(told.iter().filter(|outcome| outcome.is_ok()).count(), in_time, "the others were refused");
        let mut buf = AlignedBuf::zeroed(4096);
        let refused = [device.read(0, &mut buf), device.write(0, &buf), device.sync()];
        for error in refused.map(Result::unwrap_err) {
            assert!(error.kind() == ErrorKind::NotConnected && error.to_string().contains("given back"), "{error}");
        }
        device.release();
    }
}

fn last_byte_before(file: &fs::File, end: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, end - 1).unwrap();
    byte[0]
}
