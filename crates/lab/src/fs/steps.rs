//! Several calls of one file system at a time: what each waits for, and who waits for it.
//!
//! A call is decided at once, as if the disk took no time: which blocks it needs, writes, and leaves dirty. What it
//! would have waited for is noted, step by step; then its client takes the steps, on the disk and the processor that
//! take time, beside the steps of the other clients' calls.
//!
//! Invariants:
//! - a block that is on its way is asked for once, by the call that comes to it first; each call that needs it waits;
//! - a call that comes while another waits for writes waits for them too;
//! - one processor works for the file system at a time, however many there are: calls of Linux 2.2 hold the big kernel
//!   lock (remembered), and who waits for the disk has given it up.
//!
//! Not modelled: locks of directories and of the superblock, and writes to a block that is being written.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use picaflor_device::{AlignedBuf, Device, Op, Request};
use picaflor_sim::SimulatedDisk;

use crate::exec::{Processor, Time};
use crate::hash::ByHash;

/// What is under way to the disk, in requests or in bytes.
#[derive(Default)]
pub(super) struct UnderWay {
    left: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl UnderWay {
    pub(super) fn add(&self, count: u64) {
        self.left.fetch_add(count, Relaxed);
    }

    pub(super) fn done(&self, count: u64) {
        self.left.fetch_sub(count, Relaxed);
        mem::take(&mut *self.waiting.lock()).into_iter().for_each(Waker::wake);
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Waits until no more than `most` are left.
    async fn down_to(&self, most: u64) {
        std::future::poll_fn(|context| {
            if self.left() <= most {
                return Poll::Ready(());
            }
            self.waiting.lock().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A read that several calls may wait for.
pub(super) struct Flight {
    offset: u64,
    len: u64,
    asked: AtomicBool,
    left: Arc<UnderWay>,
}

impl Flight {
    fn is_over(&self) -> bool {
        self.left.left() == 0
    }
}

/// What a call waits for, or starts.
pub(super) enum Step {
    /// The processor works for so many nanoseconds.
    Work(u64),
    /// A read, by the client that comes to it first.
    Read(Arc<Flight>),
    /// A write that is waited for: offset and length in bytes.
    Write(u64, u64),
    /// One that is not; what is to be done when it is over.
    Start(u64, u64, Box<dyn FnOnce() + Send>),
    /// Until no more bytes than that are under way.
    DownTo(Arc<UnderWay>, u64),
    /// Until what was written is on the platter.
    Sync,
}

/// The steps of the call that is being decided, and the reads of those before it.
#[derive(Default)]
pub(super) struct Noted {
    /// `None`: a call takes its time as it goes.
    steps: Option<Vec<Step>>,
    /// Reads that may not be over, by the blocks and directories that they bring.
    coming: HashMap<u64, Vec<Arc<Flight>>, ByHash>,
}

impl Noted {
    /// From here on steps are noted instead of taken.
    pub(super) fn begin(&mut self) {
        self.coming.retain(|_, flights| !flights.iter().all(|flight| flight.is_over()));
        self.steps = Some(Vec::new());
    }

    pub(super) fn take(&mut self) -> Vec<Step> {
        self.steps.take().unwrap_or_default()
    }

    pub(super) fn is_noting(&self) -> bool {
        self.steps.is_some()
    }

    pub(super) fn note(&mut self, step: Step) {
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }

    /// A read that brings what has these keys.
    pub(super) fn read(&mut self, offset: u64, len: u64, keys: impl Iterator<Item = u64>) {
        let left = Arc::new(UnderWay::default());
        left.add(1);
        let flight = Arc::new(Flight { offset, len, asked: AtomicBool::new(false), left });
        keys.for_each(|key| self.coming.entry(key).or_default().push(Arc::clone(&flight)));
        self.note(Step::Read(flight));
    }

    /// What has this key is in memory, or will be: if it is on its way, the call waits for it.
    pub(super) fn join(&mut self, key: u64) {
        let Some(steps) = &mut self.steps else { return };
        let flights = self.coming.get(&key).into_iter().flatten();
        steps.extend(flights.filter(|flight| !flight.is_over()).map(|flight| Step::Read(Arc::clone(flight))));
    }
}

impl Step {
    pub(super) fn waits_for_the_disk(&self) -> bool {
        !matches!(self, Self::Work(_) | Self::Start(..))
    }

    /// Takes the time that it takes.
    pub(super) async fn take(self, disk: &SimulatedDisk, processor: &Processor, time: &Time) -> io::Result<()> {
        match self {
            Self::Work(nanos) => processor.work(time, nanos).await,
            Self::Read(flight) => {
                if !flight.asked.swap(true, Relaxed) {
                    let left = Arc::clone(&flight.left);
                    disk.touch(flight.offset, flight.len, false, move || left.done(1))?;
                }
                flight.left.down_to(0).await;
            }
            Self::Write(offset, len) => {
                let (left, over) = pending();
                disk.touch(offset, len, true, over)?;
                left.down_to(0).await;
            }
            Self::Start(offset, len, over) => disk.touch(offset, len, true, over)?,
            Self::DownTo(under_way, most) => under_way.down_to(most).await,
            Self::Sync => {
                let (left, over) = pending();
                let done = Box::new(move |_: io::Result<AlignedBuf>| over());
                disk.submit(vec![Request { offset: 0, op: Op::Sync, done }]);
                left.down_to(0).await;
            }
        }
        Ok(())
    }
}

/// One that is under way, and what ends it.
fn pending() -> (Arc<UnderWay>, impl FnOnce() + Send + 'static) {
    let left = Arc::new(UnderWay::default());
    left.add(1);
    let over = Arc::clone(&left);
    (left, move || over.done(1))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use picaflor_device::{Clock, Folder};
    use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

    use crate::exec::Executor;
    use crate::fs::{FileSystem, FsProfile};

    /// A disk that answers writes when they are on the platter.
    fn disk() -> SimulatedDisk {
        let options = SimulatedOptions { part: Some(0..1 << 30), write_cache: Some(0), ..SimulatedOptions::default() };
        SimulatedDisk::new(&Profile::find("ultrastar9lzx").unwrap(), Clock::virtual_at(0), &options).unwrap()
    }

    fn path(file: u64) -> String {
        format!("{}/{file}", file % 20)
    }

    /// Files in some directories, none of them in memory.
    fn cold() -> (FileSystem, SimulatedDisk) {
        let disk = disk();
        let fs = FileSystem::new(&FsProfile::find("ext2").unwrap(), &disk).unwrap();
        (0..20).for_each(|directory| fs.make_dir(&directory.to_string()).unwrap());
        (0..400).for_each(|file| fs.write(&path(file), &file.to_le_bytes().repeat(1000)).unwrap());
        fs.empty_memory().unwrap();
        (fs, disk)
    }

    /// Files in an order of the seed's.
    fn order(seed: u64) -> impl Iterator<Item = u64> {
        (0..400).map(move |read| crate::synth::mix(seed ^ read) % 400)
    }

    /// Reads by so many clients, each the next that no other has, and what each file was: when each was done.
    fn read_by(clients: usize, seed: u64) -> Vec<u64> {
        let (fs, disk) = cold();
        let begun = disk.clock().now_nanos();
        let mut executor = Executor::new(disk.clock(), std::slice::from_ref(&disk));
        let (left, log) = (Rc::new(RefCell::new(order(seed).collect::<VecDeque<_>>())), Rc::new(RefCell::default()));
        for _ in 0..clients {
            let (fs, time, left, log) = (fs.clone(), executor.time(), Rc::clone(&left), Rc::clone(&log));
            executor.spawn(async move {
                let next = || left.borrow_mut().pop_front();
                while let Some(file) = next() {
                    let body = fs.beside(&time, |fs| fs.read(&path(file))).await.unwrap();
                    assert_eq!(body, file.to_le_bytes().repeat(1000));
                    let log: &RefCell<Vec<u64>> = &log;
                    log.borrow_mut().push(time.now() - begun);
                }
            });
        }
        executor.run().unwrap();
        log.take()
    }

    #[test]
    fn four_clients_overlap_and_repeat_themselves() {
        let (one, four) = (read_by(1, 1), read_by(4, 1));
        assert!(four.last() < one.last(), "{:?} {:?}", four.last(), one.last());
        assert_eq!(read_by(4, 1), four);
        assert_ne!(read_by(4, 2), four);
    }

    #[test]
    fn one_client_beside_nobody_waits_as_long_as_calls_that_take_the_clock_along() {
        let (fs, disk) = cold();
        let begun = disk.clock().now_nanos();
        let calls = order(3).map(|file| {
            fs.read(&path(file)).unwrap();
            disk.clock().now_nanos() - begun
        });
        assert_eq!(calls.collect::<Vec<_>>(), read_by(1, 3));
    }

    #[test]
    fn what_is_on_its_way_is_asked_for_once_and_all_wait_for_it() {
        let (fs, disk) = cold();
        let (before, begun) = (fs.counts(), disk.clock().now_nanos());
        let mut executor = Executor::new(disk.clock(), std::slice::from_ref(&disk));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (fs, time) = (fs.clone(), executor.time());
                executor.spawn(async move {
                    fs.beside(&time, |fs| fs.read("7/7")).await.unwrap();
                    time.now() - begun
                })
            })
            .collect();
        executor.run().unwrap();
        let took: Vec<u64> = clients.iter().map(|client| client.take().unwrap()).collect();
        assert_eq!(fs.counts().data_reads - before.data_reads, 1);
        assert!(took.iter().all(|nanos| nanos.abs_diff(took[0]) < 1_000_000 && *nanos > 5_000_000), "{took:?}");
    }

    #[test]
    fn nobody_writes_past_one_who_waits_for_writes() {
        let mut profile = FsProfile::find("ext2").unwrap();
        (profile.daemon.high_water, profile.daemon.low_water) = (65_536, 32_768);
        (profile.memory.cache, profile.daemon.dirty_percent) = (8 << 20, 2);
        let disk = disk();
        let fs = FileSystem::new(&profile, &disk).unwrap();
        // Nothing has to be read after this.
        (0..400).for_each(|file| fs.write(&file.to_string(), &[]).unwrap());
        fs.sync().unwrap();
        let mut executor = Executor::new(disk.clock(), std::slice::from_ref(&disk));
        let most = Rc::new(std::cell::Cell::new(0));
        for client in 0..4 {
            let (fs, time, most) = (fs.clone(), executor.time(), Rc::clone(&most));
            executor.spawn(async move {
                for file in 0..100 {
                    let write = |fs: &FileSystem| fs.rewrite(&(client * 100 + file).to_string(), &[1; 8192]);
                    fs.beside(&time, write).await.unwrap();
                    most.set(fs.core.lock().pages.under_way.left().max(most.get()));
                }
            });
        }
        executor.run().unwrap();
        // 164 KB may be dirty, and each of the four may have begun a file when they were.
        assert!(most.get() <= 256 << 10, "{}", most.get());
    }
}
