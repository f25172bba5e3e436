//! The paper's runs of §3.3 and §3.4, on the allocator itself.
//!
//! Sizes are truncated Pareto with k of a grain. A size drawn is what a block needs, its header of 64 bytes included,
//! as the paper's own arithmetic has it (RESULTS §2.3: 1,024 grains give 3,552 bytes, and 3,847 in whole grains).

use std::sync::Arc;

use picaflor_device::{Clock, CountedDevice, Device};
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};
use picaflor_table::blocks::{Block, BlockOptions, FreeLists, Method};

use super::void::Void;
use crate::{
    Error, Result,
    synth::{Dice, truncated_pareto},
};

pub(super) const GRAIN: f64 = 512.0;
const HEADER: u64 = 64;

/// A disk of 1999, for what is timed.
pub(super) const DISK: &str = "ultrastar9lzx";

/// What a run's requests are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) alpha: f64,
    /// Largest size: binary logarithm, in grains.
    pub(super) cutoff: u32,
    pub(super) live: usize,
    pub(super) replacements: usize,
}

/// What a run came to (§3.3.1). `external` is the most space ever taken over the most ever allocated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fragmentation {
    pub(super) internal: f64,
    pub(super) external: f64,
}

impl Fragmentation {
    pub(super) fn total(&self) -> f64 {
        self.internal * self.external
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> Error {
    Error::experiment("pmflf", error.to_string())
}

struct Sizes(Dice, Load);

impl Sizes {
    fn next(&mut self) -> u64 {
        let c = GRAIN * f64::from(self.1.cutoff).exp2();
        truncated_pareto(self.0.unit(), self.1.alpha, GRAIN, c).round() as u64 - HEADER
    }
}

/// What is allocated and asked for, now and at most.
#[derive(Default)]
struct Tally {
    allocated: u64,
    requested: u64,
    most: u64,
}

impl Tally {
    fn add(&mut self, block: &Block) {
        self.allocated += block.capacity() + HEADER;
        self.requested += block.len() + HEADER;
        self.most = self.most.max(self.allocated);
    }

    fn subtract(&mut self, block: &Block) {
        self.allocated -= block.capacity() + HEADER;
        self.requested -= block.len() + HEADER;
    }

    fn fragmentation(&self, lists: &FreeLists) -> Fragmentation {
        let most = lists.stats().most as f64;
        Fragmentation { internal: self.allocated as f64 / self.requested as f64, external: most / self.most as f64 }
    }
}

/// Creations, then replacements of a block at random, each durable before the next (Figures 14 to 18).
pub(super) fn replace(load: Load, seed: u64) -> Result<Fragmentation> {
    let options = BlockOptions::default();
    let (lists, _) = FreeLists::open(Arc::new(Void(1 << 50)), options).map_err(failed)?;
    let mut sizes = Sizes(Dice::new(seed, 1), load);
    let mut pick = Dice::new(seed, 2);
    let mut tally = Tally::default();
    let mut blocks = Vec::with_capacity(load.live);
    for _ in 0..load.live {
        let block = lists.allocate(sizes.next()).map_err(failed)?;
        tally.add(&block);
        blocks.push(block);
    }
    for _ in 0..load.replacements {
        let index = pick.below(blocks.len() as u64) as usize;
        lists.free(&blocks[index]).map_err(failed)?;
        tally.subtract(&blocks[index]);
        lists.sync().map_err(failed)?;
        blocks[index] = lists.allocate(sizes.next()).map_err(failed)?;
        tally.add(&blocks[index]);
    }
    Ok(tally.fragmentation(&lists))
}

/// A run of batches (Figures 19 to 21).
#[derive(Debug, Clone, Default)]
pub(super) struct Batched {
    /// Replacements so far, and the fragmentation then.
    pub(super) course: Vec<(usize, Fragmentation)>,
    /// Replacements a second, on the disk of 1999.
    pub(super) throughput: f64,
}

/// Allocations in batches, then replacements in batches, with the paper's T in grains. The batch's size is not given.
pub(super) fn batches(threshold: u32, batch: usize, live: usize, replacements: usize, seed: u64) -> Result<Batched> {
    let mut options = BlockOptions::default();
    options.batch_threshold = u64::from(threshold) * 512;
    (options.coalesce_at, options.step_blocks) = (1.0, usize::MAX);
    let clock = Clock::virtual_at(0);
    let profile = Profile::find(DISK).map_err(failed)?;
    let disk = SimulatedDisk::new(&profile, clock.clone(), &SimulatedOptions::default()).map_err(failed)?;
    let (lists, _) = FreeLists::open(Arc::new(disk) as Arc<dyn Device>, options).map_err(failed)?;
    let load = Load { alpha: 1.0, cutoff: 10, live, replacements };
    let mut sizes = Sizes(Dice::new(seed, 3), load);
    let mut pick = Dice::new(seed, 4);
    let mut tally = Tally::default();
    let zeros = vec![0; 1 << 20];
    let mut put = |tally: &mut Tally, count: usize| {
        let lens: Vec<usize> = (0..count).map(|_| sizes.next() as usize).collect();
        let bodies: Vec<&[u8]> = lens.iter().map(|&len| &zeros[..len]).collect();
        let blocks = lists.put_batch(&bodies)?;
        blocks.iter().for_each(|block| tally.add(block));
        Ok::<_, picaflor_table::blocks::BlockError>(blocks)
    };
    let mut blocks = Vec::with_capacity(live);
    while blocks.len() < live {
        blocks.extend(put(&mut tally, batch.min(live - blocks.len())).map_err(failed)?);
    }
    lists.sync().map_err(failed)?;
    let begin = clock.now_nanos();
    let (mut done, mut course) = (0, Vec::new());
    while done < replacements {
        let freed: Vec<Block> =
            (0..batch).map(|_| blocks.swap_remove(pick.below(blocks.len() as u64) as usize)).collect();
        lists.free_batch(&freed).map_err(failed)?;
        freed.iter().for_each(|block| tally.subtract(block));
        lists.sync().map_err(failed)?;
        while lists.step().map_err(failed)? {}
        lists.sync().map_err(failed)?;
        blocks.extend(put(&mut tally, batch).map_err(failed)?);
        lists.sync().map_err(failed)?;
        done += batch;
        if done.is_multiple_of((replacements / 20).max(1)) || done >= replacements {
            course.push((done, tally.fragmentation(&lists)));
        }
    }
    let seconds = (clock.now_nanos() - begin) as f64 / 1e9;
    Ok(Batched { course, throughput: done as f64 / seconds })
}

/// Device writes an operation, homes included, each operation durable before the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Accesses {
    /// From the tail, from lists, and of frees.
    pub(super) tail: f64,
    pub(super) list: f64,
    pub(super) free: f64,
}

/// Counts a method's device writes, with the home written every so many changes.
pub(super) fn accesses(method: Method, every: u32) -> Result<Accesses> {
    const EACH: usize = 6400;
    let mut options = BlockOptions::default();
    (options.method, options.checkpoint_every) = (method, every);
    let device = CountedDevice::new(Arc::new(Void(1 << 40)));
    let (lists, _) = FreeLists::open(Arc::new(device.clone()), options).map_err(failed)?;
    let each = |act: &mut dyn FnMut(usize) -> picaflor_table::blocks::BlockResult<()>| -> Result<f64> {
        let before = device.counts();
        for index in 0..EACH {
            act(index).and_then(|()| lists.sync()).map_err(failed)?;
        }
        Ok((device.counts() - before).writes as f64 / EACH as f64)
    };
    let mut blocks = Vec::new();
    let len = |index: usize| (index % 50 * 400) as u64;
    let tail = each(&mut |index| lists.allocate(len(index)).map(|block| blocks.push(block)))?;
    let free = each(&mut |index| lists.free(&blocks[index]))?;
    let list = each(&mut |index| lists.allocate(len(index)).map(drop))?;
    Ok(Accesses { tail, list, free })
}
