//! A thread's own ring: what is asked of it arrives on this thread, and nothing is lost, however it is turned or
//! dropped.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use picaflor_device::{
    AlignedBuf, Backend, Device, FileDevice, Op, OpenOptions, Request, ThreadRing, thread_ring_number,
};
use rustix::event::{PollFd, PollFlags, poll};

const BLOCKS: u64 = 600;

/// A file whose blocks each hold their number.
fn device(backend: Backend) -> (tempfile::TempDir, FileDevice) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = OpenOptions { capacity: Some(BLOCKS * 4096), create: true, backend, ..OpenOptions::default() };
    let device = FileDevice::open(directory.path().join("store"), options).unwrap();
    for block in 0..BLOCKS {
        device.write(block * 4096, &[block as u8; 4096]).unwrap();
    }
    (directory, device)
}

/// The ring, or none where the system refuses it: then there is nothing to test.
fn ring() -> Option<ThreadRing> {
    ThreadRing::new().inspect_err(|error| eprintln!("no ring here: {error}")).ok()
}

type Answers = Arc<Mutex<Vec<(u64, thread::ThreadId, io::Result<AlignedBuf>)>>>;

fn ask(device: &dyn Device, block: u64, answers: &Answers) {
    let answers = Arc::clone(answers);
    let done = Box::new(move |outcome| answers.lock().unwrap().push((block, thread::current().id(), outcome)));
    device.submit_own(Request { offset: block * 4096, op: Op::Read(AlignedBuf::zeroed(4096)), done });
}

fn check(answers: &Answers, blocks: u64) {
    let mut answers = answers.lock().unwrap();
    assert_eq!(answers.len() as u64, blocks, "each answered once");
    answers.sort_by_key(|(block, ..)| *block);
    for (expected, (block, on, outcome)) in answers.iter().enumerate() {
        assert_eq!((*block, *on), (expected as u64, thread::current().id()));
        assert!(outcome.as_ref().unwrap().iter().all(|&byte| byte == *block as u8));
    }
}

#[test]
fn more_than_fits_is_answered_on_this_thread() {
    let (_directory, device) = device(Backend::Auto);
    let Some(ring) = ring() else { return };
    let answers = Answers::default();
    let asked = Cell::new(false);
    ring.block_on(poll_fn(|context| {
        if !asked.replace(true) {
            (0..BLOCKS).for_each(|block| ask(&device, block, &answers));
        }
        // Polled for the first time only: each is woken by what it waits for.
        if answers.lock().unwrap().len() as u64 == BLOCKS {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let done = Box::new(move |_| waker.wake());
        device.submit_own(Request { offset: 0, op: Op::Read(AlignedBuf::zeroed(512)), done });
        Poll::Pending
    }));
    check(&answers, BLOCKS);
}

#[test]
fn dropping_the_ring_completes_what_was_asked() {
    let (_directory, device) = device(Backend::Auto);
    let Some(ring) = ring() else { return };
    let answers = Answers::default();
    (0..BLOCKS).for_each(|block| ask(&device, block, &answers));
    assert!(answers.lock().unwrap().is_empty(), "nothing before its turn");
    drop(ring);
    check(&answers, BLOCKS);
    assert_eq!(thread_ring_number(), 0);
}

#[test]
fn the_file_stays_open_for_what_is_under_way() {
    let (directory, device) = device(Backend::Auto);
    let Some(ring) = ring() else { return };
    let answers = Answers::default();
    (0..8).for_each(|block| ask(&device, block, &answers));
    drop(device);
    drop(ring);
    check(&answers, 8);
    // And no longer.
    drop(FileDevice::open(directory.path().join("store"), OpenOptions::default()).unwrap());
}

#[test]
fn a_thread_has_one_ring_and_threads_have_their_own() {
    let Some(first) = ring() else { return };
    assert_eq!(ThreadRing::new().unwrap_err().kind(), ErrorKind::AlreadyExists);
    let number = thread_ring_number();
    assert_ne!(number, 0);
    let other = thread::spawn(|| {
        assert_eq!(thread_ring_number(), 0);
        let _ring = ThreadRing::new().unwrap();
        thread_ring_number()
    });
    assert_ne!(other.join().unwrap(), number);
    drop(first);
    drop(ThreadRing::new().unwrap());
}

#[test]
fn without_a_ring_the_device_answers_by_itself() {
    for backend in [Backend::Auto, Backend::Pool] {
        let (_directory, device) = device(backend);
        let (tell, told) = mpsc::channel();
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| tell.send(outcome.map(|read| read[0])).unwrap());
        device.submit_own(Request { offset: 7 * 4096, op: Op::Read(AlignedBuf::zeroed(4096)), done });
        assert_eq!(told.recv().unwrap().unwrap(), 7);
    }
}

#[test]
fn refusals_are_answers() {
    let (_directory, device) = device(Backend::Auto);
    let Some(ring) = ring() else { return };
    let refused = Arc::new(AtomicUsize::new(0));
    for offset in [1, BLOCKS * 4096] {
        let refused = Arc::clone(&refused);
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput);
            refused.fetch_add(1, Ordering::Relaxed);
        });
        device.submit_own(Request { offset, op: Op::Read(AlignedBuf::zeroed(4096)), done });
    }
    drop(ring);
    assert_eq!(refused.load(Ordering::Relaxed), 2);
}

#[test]
fn another_thread_ends_the_wait() {
    let Some(ring) = ring() else { return };
    let (tell, told) = mpsc::channel::<Waker>();
    let woken = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&woken);
    let waker = thread::spawn(move || {
        for waker in told {
            thread::sleep(Duration::from_millis(1));
            theirs.fetch_add(1, Ordering::SeqCst);
            waker.wake();
        }
    });
    for round in 1..=50 {
        let sent = Cell::new(false);
        ring.block_on(poll_fn(|context| {
            if woken.load(Ordering::SeqCst) == round {
                return Poll::Ready(());
            }
            if !sent.replace(true) {
                tell.send(context.waker().clone()).unwrap();
            }
            Poll::Pending
        }));
    }
    drop(tell);
    waker.join().unwrap();
}

/// Counts how often the driver was woken.
#[derive(Default)]
struct Driver(AtomicUsize);

impl Wake for Driver {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_event_loop_turns_it_by_its_descriptor() {
    let (_directory, device) = device(Backend::Auto);
    let Some(ring) = ring() else { return };
    let driver = Arc::new(Driver::default());
    let waker = Waker::from(Arc::clone(&driver));
    let context = Context::from_waker(&waker);
    ThreadRing::turn(&context);
    let answers = Answers::default();
    // Often: the kernel may say that there is news when there is none any more, and a turn must end all the same.
    for round in 0..BLOCKS {
        let asked = driver.0.load(Ordering::SeqCst);
        ask(&device, round, &answers);
        assert!(driver.0.load(Ordering::SeqCst) > asked, "told that there is something to hand over");
        ThreadRing::turn(&context);
        while answers.lock().unwrap().len() as u64 <= round {
            let fd = ring.as_fd();
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1, "nothing became readable");
            ThreadRing::turn(&context);
        }
    }
    check(&answers, BLOCKS);
}
