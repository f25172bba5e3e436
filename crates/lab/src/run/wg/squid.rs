//! wg-Squid: what Squid-2.2 asks of the file system.
//!
//! As its source has it (`store_dir.c`, `filemap.c`): a swap directory is chosen in turn; files are numbered, the
//! next free number after the last; 256 numbers that follow each other are one directory of the third level. Objects
//! are counted in whole KiB. In front is an LRU of objects in memory, and who leaves the disk is its LRU too: from
//! the high to the low water mark, by the write that passes the high one.
//!
//! Each disk has a clock of its own. A thread's event begins when the thread is free, and a call when its disk's file
//! system is: calls of one file system follow each other, those of two overlap.

use std::io::ErrorKind;

use lru::LruCache;
use picaflor_device::{Clock, Folder};
use picaflor_sim::{SimulatedDisk, Times};

use super::{
    load::{Load, WORD},
    measured::Measured,
};
use crate::{
    Error, Result,
    fs::{FileSystem, FsProfile},
    lru::Lru,
    run::bodies::Bodies,
    trace::Request,
};

/// Directories of the second level, and of the third in each: Squid's default.
const LEVELS: (u32, u32) = (16, 256);
/// Files of a directory.
const FILES: u32 = 256;
/// Most files of a swap directory (`SWAP_FILE_MASK`).
const MOST: u32 = 1 << 24;
/// Water marks, in percent: Squid's defaults. The paper's are not given.
const MARKS: (u64, u64) = (95, 90);

/// One swap directory, on a disk of its own.
struct Swap {
    system: FileSystem,
    disk: SimulatedDisk,
    /// Directories of the third level in each of the second.
    third: u32,
    /// The number to try next, and those in use.
    suggested: u32,
    used: Vec<bool>,
}

/// Squid's entry of an object on disk: KiB, number, swap directory.
#[derive(Clone, Copy)]
struct Entry {
    kib: u64,
    number: u32,
    swap: usize,
}

struct Squid<'a> {
    load: &'a Load,
    swaps: Vec<Swap>,
    memory: Lru,
    entries: LruCache<u64, Entry>,
    kib: u64,
    /// Water marks in KiB, the high one first.
    marks: (u64, u64),
    turn: usize,
    bodies: Bodies,
}

pub(super) fn run(load: &Load, kind: &FsProfile, progress: &dyn Fn(u64)) -> Result<Measured> {
    let mut squid = Squid::new(load, kind)?;
    let begin = squid.now();
    let disks: Vec<(SimulatedDisk, Times)> =
        squid.swaps.iter().map(|swap| (swap.disk.clone(), swap.disk.times())).collect();
    let mut measured = Measured::default();
    let mut free = vec![begin; load.threads.max(1)];
    let (mut last, mut then) = (begin, None);
    for request in load.requests() {
        // The first that is free takes it.
        let Some(thread) = (0..free.len()).min_by_key(|thread| free[*thread]) else { break };
        let due = load.timing.due(last, then.unwrap_or(request.time), request.time);
        last = free[thread].max(due);
        then = Some(request.time);
        free[thread] = squid.event(&request, last, &mut measured)?;
        measured.events += 1;
        if measured.events.is_multiple_of(WORD) {
            progress(WORD);
        }
    }
    let end = free.into_iter().max().unwrap_or(begin);
    Ok(measured.finish(&disks, end - begin))
}

impl<'a> Squid<'a> {
    fn new(load: &'a Load, kind: &FsProfile) -> Result<Self> {
        let bytes = load.part_bytes(load.disk_mib);
        let room = bytes / load.disks as u64;
        let swaps: Vec<_> = (0..load.disks).map(|number| Swap::new(load, kind, room, number)).collect::<Result<_>>()?;
        let kib = bytes >> 10;
        let mut squid = Self {
            load,
            swaps,
            memory: Lru::new(load.part_bytes(load.memory_mib.0)),
            entries: LruCache::unbounded(),
            kib: 0,
            marks: (kib / 100 * MARKS.0, kib / 100 * MARKS.1),
            turn: 0,
            bodies: Bodies::default(),
        };
        let now = squid.now();
        squid.swaps.iter_mut().try_for_each(|swap| swap.wait_until(now).map(drop))?;
        Ok(squid)
    }

    /// The latest of the disks' times.
    fn now(&self) -> u64 {
        self.swaps.iter().map(Swap::now).max().unwrap_or(0)
    }

    /// One event that begins at this time; returns when it is over.
    fn event(&mut self, request: &Request, begin: u64, measured: &mut Measured) -> Result<u64> {
        let key = request.versioned_key();
        if self.memory.touch(key).is_some() {
            self.entries.promote(&key);
            measured.read(0);
            return Ok(begin);
        }
        if let Some(entry) = self.entries.get(&key).copied() {
            let swap = &mut self.swaps[entry.swap];
            swap.wait_until(begin)?;
            let body = swap.system.read(&swap.path(entry.number)).map_err(|error| self.load.wrong(error))?;
            if !Bodies::is_of(request, &body) {
                return Err(Error::experiment("wg-Squid", format!("wrong bytes for key {key:x}")));
            }
            let end = self.swaps[entry.swap].now();
            measured.read(end - begin);
            self.memory.insert(key, request.size, 0, |_| {});
            return Ok(end);
        }
        if request.size > self.load.largest {
            return Ok(begin);
        }
        let end = self.write(key, request, begin)?;
        measured.wrote(end - begin);
        self.memory.insert(key, request.size, 0, |_| {});
        Ok(end)
    }

    fn write(&mut self, key: u64, request: &Request, begin: u64) -> Result<u64> {
        let kib = request.size.max(1).div_ceil(1024);
        let mut now = begin;
        if self.kib + kib > self.marks.0 {
            now = self.evict(now)?;
        }
        let number = self.turn % self.swaps.len();
        self.turn += 1;
        loop {
            let swap = &mut self.swaps[number];
            swap.wait_until(now)?;
            let full = || Error::experiment("wg-Squid", "a swap directory is out of numbers for its files");
            let entry = Entry { kib, number: swap.allocate().ok_or_else(full)?, swap: number };
            match swap.system.write(&swap.path(entry.number), self.bodies.of(request)) {
                Ok(()) => {
                    self.kib += kib;
                    self.entries.put(key, entry);
                    return Ok(swap.now());
                }
                Err(error) if error.kind() == ErrorKind::StorageFull && !self.entries.is_empty() => {
                    // As `storeDirDiskFull`: from now on, no more than there is now.
                    swap.used[entry.number as usize] = false;
                    self.marks = (self.kib, self.kib / MARKS.0 * MARKS.1);
                    now = self.evict(now)?;
                }
                Err(error) => return Err(self.load.wrong(error)),
            }
        }
    }

    /// What was used least recently leaves, down to the low water mark.
    fn evict(&mut self, mut now: u64) -> Result<u64> {
        while self.kib > self.marks.1
            && let Some((old, entry)) = self.entries.pop_lru()
        {
            self.kib -= entry.kib;
            self.memory.remove(old);
            let swap = &mut self.swaps[entry.swap];
            swap.wait_until(now)?;
            swap.used[entry.number as usize] = false;
            swap.system.remove(&swap.path(entry.number)).map_err(|error| self.load.wrong(error))?;
            now = swap.now();
        }
        Ok(now)
    }
}

impl Swap {
    /// An empty swap directory on a file system that has so much room, with all of its directories.
    fn new(load: &Load, kind: &FsProfile, room: u64, number: usize) -> Result<Self> {
        let clock = Clock::virtual_at(1_700_000_000_000);
        let third = (LEVELS.1 / load.parts).max(1);
        // A directory is a block.
        let room = room + u64::from(LEVELS.0 * (third + 1)) * kind.layout.block;
        let disk = |bytes| load.disk(&clock, bytes, number);
        // Squid counts KiB, where other file systems take whole blocks.
        let more = if kind.layout.fragment > 1024 { room / 3 } else { 0 };
        // What is too small for that is taken whole, and may become full.
        let whole = |_| {
            let disk = load.disk(&clock, None, number)?;
            let system = FileSystem::new(kind, &disk).map_err(|error| load.wrong(error))?;
            Ok::<_, Error>((disk, system))
        };
        let (disk, system) = FileSystem::with_room(kind, room + more, disk).or_else(whole)?;
        let swap = Self { system, disk, third, suggested: 0, used: vec![false; (MOST / load.parts) as usize] };
        let made = || {
            for second in 0..LEVELS.0 {
                swap.system.make_dir(&format!("{second:02X}"))?;
                (0..third).try_for_each(|third| swap.system.make_dir(&format!("{second:02X}/{third:02X}")))?;
            }
            swap.system.sync()
        };
        made().map_err(|error: std::io::Error| load.wrong(error))?;
        Ok(swap)
    }

    fn now(&self) -> u64 {
        self.disk.clock().now_nanos()
    }

    fn wait_until(&mut self, nanos: u64) -> Result<()> {
        let wrong = |error: std::io::Error| Error::experiment("wg-Squid", error.to_string());
        if self.now() < nanos { self.system.wait_until(nanos).map_err(wrong) } else { Ok(()) }
    }

    /// The next free number after the last one that was given.
    fn allocate(&mut self) -> Option<u32> {
        let count = self.used.len() as u32;
        let mut all = (0..count).map(|step| (self.suggested + step) % count);
        let number = all.find(|number| !self.used[*number as usize])?;
        self.used[number as usize] = true;
        self.suggested = (number + 1) % count;
        Some(number)
    }

    fn path(&self, number: u32) -> String {
        let directory = number / FILES;
        format!("{:02X}/{:02X}/{number:08X}", directory / self.third % LEVELS.0, directory % self.third)
    }
}
