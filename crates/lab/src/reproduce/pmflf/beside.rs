//! The tests of §3.1 and §3.2: what a storage manager in one large file does beside a file for each object, both on one
//! modelled file system.
//!
//! *Forced* puts are durable when they return, files with their names; else both are left to the system. The paper has
//! both "commit after every write", and credits rewritten files with the system's cache, so Figure 9 is run both ways;
//! of §3.2, whose tests are another program's, it says nothing, so that is run both ways too. What else the paper does
//! not give is chosen here: names lie in directories of a few hundred, objects are read by name in an order of their
//! own; the site's sizes, of which the mean is known, are those of §3.3 with an exponent of 1 and a cutoff of 2^10
//! grains. The machine of §3.2 is a desktop with a disk that is not named: 14 ms for a random access are what such
//! disks took. Whether its files lay in one directory or many is not said; they lie as those of §3.1, and as NT's
//! directories are trees, that makes hardly a difference.

use std::{io, sync::Arc};

use picaflor_device::{AlignedBuf, Clock, Device, Folder, Op, Request};
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};
use picaflor_table::{
    blocks::{Block, BlockOptions, FreeLists},
    htod::{Durable, HashTables, HtodOptions},
};
use serde::Serialize;

use super::runs::{DISK, GRAIN, failed};
use crate::{
    Result,
    fs::{BigFile, FileSystem, FsProfile},
    synth::{Dice, truncated_pareto},
};

/// Of the two machines.
const LINUX: &str = "ext2";
const NT: &str = "ntfs";
/// The disk of a desktop.
const DESKTOP: &str = "barracuda4";
/// Files of a directory, about.
const OF_DIRECTORY: usize = 280;

/// Whose sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Sizes {
    /// The site's: a mean of 3.6 KB.
    Olympic,
    /// A proxy's of 1996: exponent 0.91 and a mean of 15.3 KB.
    Dec,
}

impl Sizes {
    fn of(self, seed: u64, count: usize) -> Vec<usize> {
        let mut dice = Dice::new(seed, 11);
        let (alpha, k, c) = match self {
            Self::Olympic => (1.0, GRAIN, GRAIN * 1024.0),
            Self::Dec => (0.91, 1250.0, (8 << 20) as f64),
        };
        (0..count).map(|_| truncated_pareto(dice.unit(), alpha, k, c).round() as usize).collect()
    }
}

/// A disk with the file system on it, and a body as long as any.
struct Rig {
    clock: Clock,
    disk: SimulatedDisk,
    system: FileSystem,
    zeros: Vec<u8>,
}

impl Rig {
    fn new(disk: &str, system: &str) -> Result<Self> {
        let clock = Clock::virtual_at(0);
        let profile = Profile::find(disk).map_err(failed)?;
        let disk = SimulatedDisk::new(&profile, clock.clone(), &SimulatedOptions::default()).map_err(failed)?;
        let system = FileSystem::new(&FsProfile::find(system)?, &disk).map_err(failed)?;
        Ok(Self { clock, disk, system, zeros: vec![0; 8 << 20] })
    }

    /// Seconds that it takes.
    fn timed(&self, act: impl FnOnce() -> Result<()>) -> Result<f64> {
        let begin = self.clock.now_nanos();
        act()?;
        Ok((self.clock.now_nanos() - begin) as f64 / 1e9)
    }

    fn directories(&self, files: usize) -> io::Result<()> {
        (0..files.div_ceil(OF_DIRECTORY)).try_for_each(|number| self.system.make_dir(&format!("{number:03}")))?;
        self.system.sync()
    }

    fn path(files: usize, number: usize) -> String {
        format!("{:03}/{number}", number % files.div_ceil(OF_DIRECTORY))
    }

    /// One large file, as a device with room for half as much again as all of these.
    fn big_file(&self, sizes: &[usize]) -> Result<BigFile> {
        let bytes = sizes.iter().sum::<usize>() as u64 / 2 * 3 + (64 << 20);
        self.system.big_file(bytes).map_err(failed)
    }
}

/// A file that is left to the system: nothing is forced.
struct Left(BigFile);

impl Device for Left {
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn block_size(&self) -> usize {
        self.0.block_size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) {
        for request in batch {
            match request.op {
                Op::Sync => (request.done)(Ok(AlignedBuf::empty())),
                Op::Read(_) | Op::Write(_) => self.0.submit(vec![request]),
            }
        }
    }

    fn backend(&self) -> String {
        self.0.backend()
    }
}

/// Tables 1 to 3 for one of the two: files, PMFLF in a file beside them, PMFLF on the disk itself, which knows no
/// system that it could be left to.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Nt {
    /// Replacements a second.
    pub(super) replacements: [Option<f64>; 3],
    /// Reads a second.
    pub(super) reads: [Option<f64>; 3],
    /// Bytes of disk at the end.
    pub(super) bytes: [Option<u64>; 3],
}

/// How long the phases of §3.2 are: objects, replacements, reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases(pub(super) usize, pub(super) usize, pub(super) usize);

/// §3.2: allocations, each written; replacements of an object at random; reads of one.
pub(super) fn nt(sizes: Sizes, phases: Phases, forced: bool, seed: u64) -> Result<Nt> {
    let Phases(objects, replacements, reads) = phases;
    let sizes = sizes.of(seed, objects + replacements);
    let rig = || Rig::new(DESKTOP, NT);
    let in_file = {
        let rig = rig()?;
        let file = rig.big_file(&sizes)?;
        nt_blocks(&rig, if forced { Arc::new(file) } else { Arc::new(Left(file)) }, &sizes, phases)?
    };
    let on_disk = match forced {
        true => {
            let rig = rig()?;
            let disk = Arc::new(rig.disk.clone());
            Some(nt_blocks(&rig, disk, &sizes, phases)?)
        }
        false => None,
    };
    let all = [Some(nt_files(&rig()?, &sizes, phases, forced)?), Some(in_file), on_disk];
    let rate = |count: usize, seconds: f64| count as f64 / seconds;
    Ok(Nt {
        replacements: all.map(|all| all.map(|(seconds, ..)| rate(replacements, seconds))),
        reads: all.map(|all| all.map(|(_, seconds, _)| rate(reads, seconds))),
        bytes: all.map(|all| all.map(|(.., bytes)| bytes)),
    })
}

/// Seconds of replacements, seconds of reads, bytes of disk.
fn nt_files(rig: &Rig, sizes: &[usize], phases: Phases, forced: bool) -> Result<(f64, f64, u64)> {
    let Phases(objects, replacements, reads) = phases;
    let room = rig.system.available();
    rig.directories(objects).map_err(failed)?;
    let path = |number| Rig::path(objects, number);
    let put = |number: usize| {
        rig.system.write(&path(number), &rig.zeros[..sizes[number]])?;
        if forced { rig.system.sync_file(&path(number)) } else { Ok(()) }
    };
    (0..objects).try_for_each(put).map_err(failed)?;
    let mut live: Vec<usize> = (0..objects).collect();
    let mut pick = Dice::new(2, 12);
    let replaced = rig.timed(|| {
        (0..replacements).try_for_each(|done| {
            let at = pick.below(objects as u64) as usize;
            rig.system.remove(&path(std::mem::replace(&mut live[at], objects + done))).map_err(failed)?;
            put(objects + done).map_err(failed)
        })
    })?;
    let taken = room - rig.system.available() + rig.system.table();
    let read = rig.timed(|| {
        (0..reads).try_for_each(|_| {
            let number = live[pick.below(objects as u64) as usize];
            rig.system.read(&path(number)).map(drop).map_err(failed)
        })
    })?;
    Ok((replaced, read, taken))
}

fn nt_blocks(rig: &Rig, on: Arc<dyn Device>, sizes: &[usize], phases: Phases) -> Result<(f64, f64, u64)> {
    let Phases(objects, replacements, reads) = phases;
    let (lists, _) = FreeLists::open(on, BlockOptions::default()).map_err(failed)?;
    let put = |number: usize| {
        let block = lists.put(&rig.zeros[..sizes[number]])?;
        lists.sync()?;
        Ok::<Block, picaflor_table::blocks::BlockError>(block)
    };
    let mut live = (0..objects).map(put).collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    let mut pick = Dice::new(2, 12);
    let replaced = rig.timed(|| {
        (0..replacements).try_for_each(|done| {
            let at = pick.below(objects as u64) as usize;
            lists.free(&live[at]).map_err(failed)?;
            live[at] = put(objects + done).map_err(failed)?;
            Ok(())
        })
    })?;
    let taken = lists.stats().taken;
    let read = rig.timed(|| {
        (0..reads).try_for_each(|_| {
            let block = &live[pick.below(objects as u64) as usize];
            lists.read(block.address()).map(drop).map_err(failed)
        })
    })?;
    Ok((replaced, read, taken))
}

/// The tests of §3.1, in their order: Wp, Wn, R, Ik, Iv, Ie.
pub(super) const TESTS: [&str; 6] = ["Wp", "Wn", "R", "Ik", "Iv", "Ie"];
/// Runs of Figure 12.
pub(super) const RUNS: usize = 7;

/// Figures 9, 10 and 12: files, then PMFLF.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Linux {
    /// Milliseconds an object, by test.
    pub(super) ms: [[f64; 6]; 2],
    /// Bytes of disk after each run.
    pub(super) space: [Vec<u64>; 2],
}

/// §3.1: objects are written, rewritten, read by name, and gone through; then the rewriting again, for Figure 12.
pub(super) fn linux(objects: usize, forced: bool, seed: u64) -> Result<Linux> {
    let sizes = Sizes::Olympic.of(3, objects);
    let mut order: Vec<usize> = (0..objects).collect();
    let mut dice = Dice::new(seed, 13);
    (1..objects).rev().for_each(|at| order.swap(at, dice.below(at as u64 + 1) as usize));
    let (files, tables) = (linux_files(&sizes, &order, forced)?, linux_tables(&sizes, &order, forced)?);
    Ok(Linux { ms: [files.0, tables.0], space: [files.1, tables.1] })
}

type Seen = ([f64; 6], Vec<u64>);

fn each(seconds: [f64; 6], objects: usize) -> [f64; 6] {
    seconds.map(|seconds| seconds * 1e3 / objects as f64)
}

fn linux_files(sizes: &[usize], order: &[usize], forced: bool) -> Result<Seen> {
    let rig = Rig::new(DISK, LINUX)?;
    let room = rig.system.available();
    rig.directories(sizes.len()).map_err(failed)?;
    let path = |number| Rig::path(sizes.len(), number);
    let force = |number| if forced { rig.system.sync_file(&path(number)) } else { Ok(()) };
    let mut space = Vec::new();
    let create = rig.timed(|| {
        let one = |number: usize| {
            rig.system.write(&path(number), &rig.zeros[..sizes[number]])?;
            force(number)
        };
        (0..sizes.len()).try_for_each(one).map_err(failed)
    })?;
    space.push(room - rig.system.available());
    let again = || {
        let one = |number: usize| {
            rig.system.rewrite(&path(number), &rig.zeros[..sizes[number]])?;
            force(number)
        };
        (0..sizes.len()).try_for_each(one).map_err(failed)
    };
    let rewrite = rig.timed(again)?;
    space.push(room - rig.system.available());
    let read_all =
        |order: &[usize]| order.iter().try_for_each(|&number| rig.system.read(&path(number)).map(drop)).map_err(failed);
    let read = rig.timed(|| read_all(order))?;
    let list = || {
        let mut found = 0;
        rig.system.list(&mut |_, _| found += 1).map(|()| found).map_err(failed)
    };
    let keys = rig.timed(|| list().map(drop))?;
    // Directory by directory, as a walk comes to them.
    let mut walk: Vec<usize> = (0..sizes.len()).collect();
    walk.sort_by_key(|&number| path(number));
    let values = rig.timed(|| list().and_then(|_| read_all(&walk)))?;
    let pairs = rig.timed(|| list().and_then(|_| read_all(&walk)))?;
    for _ in 2..RUNS {
        again()?;
        space.push(room - rig.system.available());
    }
    Ok((each([create, rewrite, read, keys, values, pairs], sizes.len()), space))
}

fn linux_tables(sizes: &[usize], order: &[usize], forced: bool) -> Result<Seen> {
    let rig = Rig::new(DISK, LINUX)?;
    let durable = if forced { Durable::EachCall } else { Durable::AtCommit };
    let options = HtodOptions { durable, seed: Some(5), ..HtodOptions::default() };
    let (tables, _) =
        HashTables::open(Arc::new(rig.big_file(sizes)?), BlockOptions::default(), options).map_err(failed)?;
    let table = tables.table("objects").map_err(failed)?;
    let key = |number: usize| Rig::path(sizes.len(), number).into_bytes();
    let write = || {
        let put = |number: usize| table.put(&key(number), &rig.zeros[..sizes[number]]);
        (0..sizes.len()).try_for_each(put).map_err(failed)?;
        tables.commit().map_err(failed)
    };
    let mut space = Vec::new();
    let mut note = || tables.space().map(|now| space.push(now.taken)).map_err(failed);
    let create = rig.timed(write)?;
    note()?;
    let rewrite = rig.timed(write)?;
    note()?;
    let read = rig.timed(|| order.iter().try_for_each(|&number| table.get(&key(number)).map(drop)).map_err(failed))?;
    let keys = rig.timed(|| table.keys().try_for_each(|key| key.map(drop)).map_err(failed))?;
    let values = rig.timed(|| table.values().try_for_each(|value| value.map(drop)).map_err(failed))?;
    let pairs = rig.timed(|| table.pairs().try_for_each(|pair| pair.map(drop)).map_err(failed))?;
    for _ in 2..RUNS {
        write()?;
        note()?;
    }
    Ok((each([create, rewrite, read, keys, values, pairs], sizes.len()), space))
}
