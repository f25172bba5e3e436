//! What is in memory of the disk, what of it is dirty, and what is under way.
//!
//! Invariants:
//! - contents are elsewhere: this knows addresses and times only;
//! - what is dirty is written in order of address, neighbours together, at most a cluster at a time;
//! - a writer waits while more than the high water is under way; the daemon does not, but where it has a few writes on
//!   their way at a time, what waits for them goes when a call comes by and some of them are done.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use picaflor_sim::SimulatedDisk;

use super::layout::{Address, Run};
use super::profile::{FsProfile, MemoryProfile};
use super::steps::{Noted, Step, UnderWay};
use crate::lru::Lru;

/// Set in the keys of directories, which stay or leave as a whole.
const DIRECTORY: u64 = 1 << 63;

/// Disk operations of a file system, by why they were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Blocks of data, or runs of them, read because a call needed them.
    pub data_reads: u64,
    /// The same of inodes, maps, directories and indirect blocks.
    pub metadata_reads: u64,
    /// Writes that a call waited for.
    pub synchronous_writes: u64,
    /// Writes that were started and not waited for.
    pub later_writes: u64,
    /// Bytes of all these reads.
    pub read_bytes: u64,
    /// Bytes of all these writes.
    pub written_bytes: u64,
}

struct Dirty {
    fragments: u64,
    since: u64,
    metadata: bool,
}

pub(crate) struct Pages {
    disk: SimulatedDisk,
    fragment: u64,
    block: u64,
    cluster: u64,
    high_water: u64,
    low_water: u64,
    dirty_limit: u64,
    lru: Lru,
    /// Of metadata, if apart.
    metadata: Option<Lru>,
    directories_apart: bool,
    dirty: BTreeMap<Address, Dirty>,
    dirty_fragments: u64,
    /// What has to make room, for a moment; empty between calls.
    left: Vec<Address>,
    pub(super) under_way: Arc<UnderWay>,
    /// Whether a writer waits for that to get less.
    throttled: bool,
    /// Writes that are under way, how many of them the daemon may have, and what waits for that.
    writes: Arc<AtomicU64>,
    at_once: Option<u64>,
    waiting: VecDeque<Run>,
    /// What calls wait for, where several are under way at a time.
    pub(super) noted: Noted,
    pub(crate) counts: IoCounts,
}

/// Fragments that may be dirty.
fn dirty_limit(profile: &FsProfile) -> u64 {
    let share = profile.memory.cache / profile.layout.fragment / 100 * profile.daemon.dirty_percent;
    let blocks = profile.daemon.dirty_blocks.unwrap_or(u64::MAX);
    share.min(blocks.saturating_mul(profile.layout.block / profile.layout.fragment))
}

impl Pages {
    pub(crate) fn new(profile: &FsProfile, disk: SimulatedDisk) -> Self {
        let fragment = profile.layout.fragment;
        Self {
            disk,
            fragment,
            block: profile.layout.block / fragment,
            cluster: profile.daemon.cluster / fragment,
            high_water: profile.daemon.high_water,
            low_water: profile.daemon.low_water,
            dirty_limit: dirty_limit(profile),
            lru: Lru::new(profile.memory.cache),
            metadata: profile.memory.metadata.map(Lru::new),
            directories_apart: profile.memory.directories_apart,
            dirty: BTreeMap::new(),
            dirty_fragments: 0,
            left: Vec::new(),
            under_way: Arc::default(),
            throttled: false,
            writes: Arc::default(),
            at_once: profile.daemon.writes_at_once,
            waiting: VecDeque::new(),
            noted: Noted::default(),
            counts: IoCounts::default(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.disk.clock().now_nanos()
    }

    /// Lets the processor work for so long; the disk goes on meanwhile.
    pub(crate) fn work(&mut self, nanos: f64) {
        if self.noted.is_noting() {
            return self.noted.note(Step::Work(nanos as u64));
        }
        self.disk.run_until(self.now() + Duration::from_nanos(nanos as u64).as_nanos() as u64);
    }

    /// Lets time pass until then.
    pub(crate) fn wait_until(&mut self, nanos: u64) -> io::Result<()> {
        while !self.waiting.is_empty() && self.now() < nanos {
            self.go_on()?;
            if !self.next() {
                break;
            }
        }
        self.disk.run_until(nanos.max(self.now()));
        Ok(())
    }

    fn keep(&mut self, key: u64, bytes: u64, metadata: bool) -> io::Result<()> {
        let lru = self.metadata.as_mut().filter(|_| metadata).unwrap_or(&mut self.lru);
        if lru.touch(key).is_some() {
            return Ok(());
        }
        let mut left = mem::take(&mut self.left);
        lru.insert(key, bytes, 0, |key| left.push(key));
        // What leaves dirty is written first, with what lies beside it.
        let written = left.drain(..).try_for_each(|key| match self.dirty.contains_key(&key) {
            true => self.write_around(key),
            false => Ok(()),
        });
        self.left = left;
        written
    }

    /// Whether this is in memory; if so, it was just used.
    pub(crate) fn has(&mut self, address: Address) -> bool {
        self.noted.join(address);
        self.lru.touch(address).is_some()
    }

    /// The same of a block of metadata.
    pub(crate) fn has_metadata(&mut self, address: Address) -> bool {
        self.noted.join(address);
        self.metadata.as_mut().unwrap_or(&mut self.lru).touch(address).is_some()
    }

    /// A block of metadata is needed.
    pub(crate) fn need(&mut self, address: Address) -> io::Result<()> {
        if !self.has_metadata(address) {
            self.counts.metadata_reads += 1;
            self.read(address, self.block, None)?;
            self.keep(address, self.block * self.fragment, true)?;
        }
        Ok(())
    }

    /// All of a directory is needed: its runs of blocks, each an address and fragments.
    pub(crate) fn need_directory(&mut self, id: u64, runs: &[Run]) -> io::Result<()> {
        self.join_directory(id);
        if self.directories().touch(id | DIRECTORY).is_some() {
            return Ok(());
        }
        for (address, fragments) in runs {
            self.counts.metadata_reads += fragments.div_ceil(self.cluster);
            self.read(*address, *fragments, Some(id | DIRECTORY))?;
        }
        self.grown_directory(id, runs)
    }

    /// What a name or an inode was found in may be on its way still, to the call that found it.
    pub(crate) fn join(&mut self, address: Address) {
        self.noted.join(address);
    }

    /// The same of a directory.
    pub(crate) fn join_directory(&mut self, id: u64) {
        self.noted.join(id | DIRECTORY);
    }

    /// A directory that is in memory has these runs now.
    pub(crate) fn grown_directory(&mut self, id: u64, runs: &[Run]) -> io::Result<()> {
        self.directories().remove(id | DIRECTORY);
        let fragments: u64 = runs.iter().map(|(_, fragments)| fragments).sum();
        self.keep(id | DIRECTORY, fragments * self.fragment, self.directories_apart)
    }

    /// Where directories are kept.
    fn directories(&mut self) -> &mut Lru {
        self.metadata.as_mut().filter(|_| self.directories_apart).unwrap_or(&mut self.lru)
    }

    /// Data is needed: runs of blocks in order. Adjacent ones come with one read, a cluster at most.
    pub(crate) fn need_data(&mut self, runs: &[Run]) -> io::Result<()> {
        for (address, fragments) in self.missing(runs) {
            self.counts.data_reads += 1;
            self.read(address, fragments, None)?;
            self.arrived(address, fragments)?;
        }
        Ok(())
    }

    /// The parts of the runs that are not in memory, adjacent blocks together, a cluster at most each.
    pub(crate) fn missing(&mut self, runs: &[Run]) -> Vec<Run> {
        let mut missing: Vec<Run> = Vec::new();
        for (address, fragments) in runs {
            let end = address + fragments;
            let mut at = *address;
            while at < end {
                let step = self.block.min(end - at);
                if !self.has(at) {
                    match missing.last_mut() {
                        Some((from, count)) if *from + *count == at && *count + step <= self.cluster => *count += step,
                        _ => missing.push((at, step)),
                    }
                }
                at += step;
            }
        }
        missing
    }

    /// A new block of metadata is in memory now.
    pub(crate) fn made(&mut self, address: Address) -> io::Result<()> {
        self.keep(address, self.block * self.fragment, true)
    }

    /// Blocks of data are in memory now.
    pub(crate) fn arrived(&mut self, address: Address, fragments: u64) -> io::Result<()> {
        let mut at = address;
        while at < address + fragments {
            let step = self.block.min(address + fragments - at);
            self.keep(at, step * self.fragment, false)?;
            at += step;
        }
        Ok(())
    }

    /// Reads, and waits: blocks, or a directory.
    fn read(&mut self, address: Address, fragments: u64, directory: Option<u64>) -> io::Result<()> {
        self.go_on()?;
        self.counts.read_bytes += fragments * self.fragment;
        let mut at = address;
        while at < address + fragments {
            let step = self.cluster.min(address + fragments - at);
            let (offset, len) = (at * self.fragment, step * self.fragment);
            if self.noted.is_noting() {
                let blocks = (at..at + step).step_by(self.block as usize).filter(|_| directory.is_none());
                self.noted.read(offset, len, directory.into_iter().chain(blocks));
            } else {
                self.disk.touch_and_wait(offset, len, false)?;
            }
            at += step;
        }
        Ok(())
    }

    /// Starts a read that another waits for.
    pub(crate) fn read_later(&mut self, address: Address, fragments: u64, left: &Arc<AtomicU64>) -> io::Result<()> {
        self.counts.data_reads += 1;
        self.counts.read_bytes += fragments * self.fragment;
        left.fetch_add(1, Relaxed);
        let left = Arc::clone(left);
        self.disk.touch(address * self.fragment, fragments * self.fragment, false, move || {
            left.fetch_sub(1, Relaxed);
        })
    }

    /// Lets time pass until all of these reads are done.
    pub(crate) fn wait_for(&self, left: &AtomicU64) {
        while left.load(Relaxed) > 0 && self.next() {}
    }

    fn next(&self) -> bool {
        picaflor_device::Device::advance(&self.disk)
    }

    /// A block, or some of its fragments, is dirty, and in memory.
    pub(crate) fn dirty(&mut self, address: Address, fragments: u64, metadata: bool) -> io::Result<()> {
        let since = self.now();
        let entry = self.dirty.entry(address).or_insert_with(|| {
            self.dirty_fragments += fragments;
            Dirty { fragments, since, metadata }
        });
        if entry.fragments < fragments {
            self.dirty_fragments += fragments - entry.fragments;
            entry.fragments = fragments;
        }
        self.keep(address, fragments * self.fragment, metadata)
    }

    /// A part of a directory is dirty; the directory is in memory as a whole.
    pub(crate) fn dirty_part(&mut self, address: Address, fragments: u64) {
        let since = self.now();
        self.dirty.entry(address).or_insert_with(|| {
            self.dirty_fragments += fragments;
            Dirty { fragments, since, metadata: true }
        });
    }

    /// Writes now and waits.
    pub(crate) fn write(&mut self, address: Address, fragments: u64) -> io::Result<()> {
        self.clean(address);
        self.counts.synchronous_writes += 1;
        self.counts.written_bytes += fragments * self.fragment;
        let (offset, len) = (address * self.fragment, fragments * self.fragment);
        if self.noted.is_noting() {
            self.noted.note(Step::Write(offset, len));
            return Ok(());
        }
        self.disk.touch_and_wait(offset, len, true)
    }

    /// Starts a write, and waits while too much is under way.
    pub(crate) fn write_later(&mut self, address: Address, fragments: u64) -> io::Result<()> {
        self.start(address, fragments)?;
        self.throttle();
        Ok(())
    }

    /// Waits while too much is under way.
    pub(crate) fn throttle(&mut self) {
        if self.under_way.left() > self.high_water {
            self.throttled = self.noted.is_noting();
            self.wait_down_to(self.low_water);
        }
    }

    /// Waits with who waits for that already.
    pub(crate) fn throttle_beside(&mut self) {
        self.throttled &= self.under_way.left() > self.low_water;
        if self.throttled {
            self.wait_down_to(self.low_water);
        }
    }

    /// Waits until no more bytes than that are under way.
    fn wait_down_to(&mut self, most: u64) {
        if self.noted.is_noting() {
            return self.noted.note(Step::DownTo(Arc::clone(&self.under_way), most));
        }
        while self.under_way.left() > most && self.next() {}
    }

    fn start(&mut self, address: Address, fragments: u64) -> io::Result<()> {
        let mut at = address;
        while at < address + fragments {
            self.clean(at);
            at += self.block.min(address + fragments - at);
        }
        self.counts.later_writes += 1;
        let bytes = fragments * self.fragment;
        self.counts.written_bytes += bytes;
        self.under_way.add(bytes);
        self.writes.fetch_add(1, Relaxed);
        let (under_way, writes) = (Arc::clone(&self.under_way), Arc::clone(&self.writes));
        let over = move || {
            writes.fetch_sub(1, Relaxed);
            under_way.done(bytes);
        };
        let offset = address * self.fragment;
        if self.noted.is_noting() {
            self.noted.note(Step::Start(offset, bytes, Box::new(over)));
            return Ok(());
        }
        self.disk.touch(offset, bytes, true, over)
    }

    pub(crate) fn is_dirty(&self, address: Address) -> bool {
        self.dirty.contains_key(&address)
    }

    fn clean(&mut self, address: Address) {
        if let Some(dirty) = self.dirty.remove(&address) {
            self.dirty_fragments -= dirty.fragments;
        }
    }

    /// What was here is of no value any more, in memory or on its way.
    pub(crate) fn forget(&mut self, address: Address, fragments: u64) {
        let mut at = address;
        while at < address + fragments {
            self.clean(at);
            self.lru.remove(at);
            if let Some(metadata) = &mut self.metadata {
                metadata.remove(at);
            }
            at += self.block.min(address + fragments - at);
        }
    }

    /// Starts the write of a dirty block and of the dirty ones beside it.
    fn write_around(&mut self, address: Address) -> io::Result<()> {
        let mut start = address;
        let mut end = self.dirty.get(&address).map_or(address, |dirty| address + dirty.fragments);
        while let Some((before, dirty)) = self.dirty.range(..start).next_back() {
            if before + dirty.fragments != start || end - before > self.cluster {
                break;
            }
            start = *before;
        }
        while let Some(dirty) = self.dirty.get(&end) {
            if end + dirty.fragments - start > self.cluster {
                break;
            }
            end += dirty.fragments;
        }
        self.write_run(start, end - start, true)
    }

    fn write_run(&mut self, start: Address, fragments: u64, throttled: bool) -> io::Result<()> {
        // Not by steps of a block: pieces of several files may share one.
        let inside: Vec<_> = self.dirty.range(start..start + fragments).map(|(address, _)| *address).collect();
        inside.into_iter().for_each(|address| self.clean(address));
        if throttled { self.write_later(start, fragments) } else { self.start(start, fragments) }
    }

    /// Starts the write of what is dirty of these, in one piece.
    pub(crate) fn write_dirty(&mut self, address: Address, fragments: u64) -> io::Result<()> {
        let dirty: Vec<Run> =
            self.dirty.range(address..address + fragments).map(|(at, dirty)| (*at, dirty.fragments)).collect();
        match (dirty.first(), dirty.last()) {
            (Some((first, _)), Some((last, count))) => self.write_run(*first, last + count - first, false),
            _ => Ok(()),
        }
    }

    /// Starts the writes of what is due, as the daemon does.
    pub(crate) fn flush_in_turn(&mut self, data_since: u64, metadata_since: u64) -> io::Result<()> {
        let due = self.due(data_since, metadata_since);
        if self.at_once.is_none() {
            return due.into_iter().try_for_each(|(start, count)| self.write_run(start, count, false));
        }
        // What waits still is dirty still, and due.
        self.waiting = due.into();
        self.go_on()
    }

    /// The daemon goes on, if fewer of its writes are under way than may be.
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        while self.at_once.is_some_and(|most| self.writes.load(Relaxed) < most)
            && let Some((address, fragments)) = self.waiting.pop_front()
        {
            self.write_dirty(address, fragments)?;
        }
        Ok(())
    }

    /// Starts the writes of all that has been dirty since these times, data and metadata.
    pub(crate) fn flush(&mut self, data_since: u64, metadata_since: u64) -> io::Result<()> {
        let due = self.due(data_since, metadata_since);
        due.into_iter().try_for_each(|(start, count)| self.write_run(start, count, false))
    }

    /// What is due: data and metadata since these times or longer, adjacent ones together.
    fn due(&self, data_since: u64, metadata_since: u64) -> Vec<Run> {
        let is_due = |dirty: &Dirty| dirty.since <= if dirty.metadata { metadata_since } else { data_since };
        let due = self.dirty.iter().filter(|(_, dirty)| is_due(dirty)).map(|(at, dirty)| (*at, dirty.fragments));
        let mut runs: Vec<Run> = Vec::new();
        for (address, fragments) in due {
            match runs.last_mut() {
                Some((start, count)) if *start + *count == address && *count + fragments <= self.cluster => {
                    *count += fragments;
                }
                _ => runs.push((address, fragments)),
            }
        }
        runs
    }

    /// Whether more is dirty than may be.
    pub(crate) fn is_full_of_dirt(&self) -> bool {
        self.dirty_fragments > self.dirty_limit
    }

    /// Forgets what is in memory, none of which is dirty.
    pub(crate) fn empty(&mut self, memory: &MemoryProfile) {
        self.lru = Lru::new(memory.cache);
        self.metadata = memory.metadata.map(Lru::new);
    }

    /// Waits until nothing is under way.
    pub(crate) fn settle(&mut self) {
        self.wait_down_to(0);
    }

    pub(crate) fn sync_disk(&mut self) -> io::Result<()> {
        if self.noted.is_noting() {
            self.noted.note(Step::Sync);
            return Ok(());
        }
        picaflor_device::Device::sync(&self.disk)
    }
}
