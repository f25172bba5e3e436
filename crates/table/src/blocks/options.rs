//! What an allocator is created and run with, and the sizes that follow from it.

use picaflor_format::blocks::{HEADER, HEADS_MAX, QUICK_MAX};

use super::{BlockError, BlockResult};

/// How free blocks are found again after a failure: Iyengar et al. 2003, §2.1-2.3. Fixed when the allocator is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Method {
    /// Tagged size: by their headers only.
    #[default]
    Ts,
    /// Persistent lists of all blocks; heads are written now and then.
    Pl,
    /// Persistent lists of free blocks, mended after a failure; heads are written now and then.
    Pfl,
}

/// Where a block comes from when no free one is of the right size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Search {
    /// The tail, and a larger block is split only when the tail is at the end: Iyengar et al. 2003, §2.4.1.
    #[default]
    TailThenSplit,
    /// A larger block is split, the smallest that is large enough, and the tail is asked only when there is none: less
    /// of the device is taken, for more splits.
    SplitThenTail,
}

/// Settings of a block allocator. The defaults are those of the paper's deployment (Table 4).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BlockOptions {
    /// See [`Method`].
    pub method: Method,
    /// The paper's *g*: bytes of a grain, a power of two from 512; raised to the device's block size when the allocator
    /// is created, so that no write touches a neighbour's bytes. Fixed then.
    pub grain: u32,
    /// The paper's *minQL*: grains of the smallest block. Fixed at creation.
    pub min_quick: u32,
    /// The paper's *maxQL*: grains of the largest block with a list of its own size. Fixed at creation.
    pub max_quick: u32,
    /// The paper's *w*: bytes that a block may be larger than asked for before it is split.
    pub waste: u64,
    /// See [`Search`].
    pub search: Search,
    /// The paper's *T*: a batch leaves free blocks of fewer bytes alone.
    pub batch_threshold: u64,
    /// Allocations from the tail, changes of lists, or in PL frees, between two writes of the home: a block freed since
    /// is not found by its list after a failure.
    pub checkpoint_every: u32,
    /// [`step`](super::FreeLists::step) coalesces while the space taken is more than this many times the space
    /// allocated.
    pub coalesce_at: f64,
    /// Most blocks that one step looks at, and device reads by which an opening follows persistent lists.
    pub step_blocks: usize,
    /// Bytes of memory kept for writes to come.
    pub pool: usize,
    /// Make an allocator where the device is blank. If not, a blank device is refused: what was there is lost.
    pub create: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            method: Method::Ts,
            grain: 512,
            min_quick: 1,
            max_quick: 75,
            waste: 2000,
            search: Search::TailThenSplit,
            batch_threshold: 8192,
            checkpoint_every: 64,
            coalesce_at: 1.25,
            step_blocks: 512,
            pool: 4 << 20,
            create: true,
        }
    }
}

impl BlockOptions {
    /// To split rather than take more of the device, as stores do: blocks are split before the tail is
    /// asked, are at most a grain too large, and are joined while more than 1.1 times the space allocated is taken.
    #[must_use]
    pub fn sparing() -> Self {
        Self { search: Search::SplitThenTail, waste: 512, coalesce_at: 1.1, ..Self::default() }
    }

    pub(super) fn check(&self) -> BlockResult<()> {
        let refuse = |name, why: &str| Err(BlockError::Option { name, why: why.to_owned() });
        if !self.grain.is_power_of_two() || !(512..=1 << 20).contains(&self.grain) {
            return refuse("grain", "must be a power of two from 512 to 1048576");
        }
        if self.min_quick == 0 || self.min_quick > self.max_quick {
            return refuse("min_quick", "must be from 1 to max_quick");
        }
        if self.max_quick - self.min_quick >= (HEADS_MAX - 32) as u32 || self.max_quick > QUICK_MAX {
            return refuse("max_quick", "must be less than 408 above min_quick, and at most 65536");
        }
        if self.checkpoint_every == 0 || self.step_blocks == 0 {
            return refuse("checkpoint_every", "checkpoint_every and step_blocks must be at least 1");
        }
        if !self.coalesce_at.is_finite() || self.coalesce_at < 1.0 {
            return refuse("coalesce_at", "must be a number from 1");
        }
        Ok(())
    }
}

/// What an allocator's sizes are, wherever they came from.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) method: Method,
    /// Bytes.
    pub(super) grain: u64,
    /// Grains; as all sizes here.
    pub(super) min: u32,
    pub(super) max_quick: u32,
    pub(super) waste: u32,
    pub(super) search: Search,
    pub(super) threshold: u32,
    /// First grain of a block, and the one behind the last.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes of a slot for a home.
    pub(super) slot: u64,
}

impl Shape {
    /// Bytes from a block's beginning to the first of its own; an area begins on a grain.
    pub(super) fn begin(&self, area: bool) -> u64 {
        if area { self.grain } else { HEADER as u64 }
    }

    /// Grains of a block, or of an area, for `len` bytes.
    pub(super) fn grains(&self, len: u64, area: bool) -> BlockResult<u32> {
        let overhead = self.begin(area);
        let max = (u64::from(u32::MAX) - 1).min((self.end - self.start) * self.grain) - overhead;
        if len > max {
            return Err(BlockError::TooLong { len, max });
        }
        Ok(((len + overhead).div_ceil(self.grain) as u32).max(self.min))
    }

    /// The misc list whose range holds `size`: as grains from and to. Each range is twice as long as the one before.
    pub(super) fn misc_range(&self, size: u32) -> (u32, u32) {
        let (mut low, mut high) = (self.max_quick + 1, (self.max_quick + 1).saturating_mul(2) - 1);
        while size > high {
            low = high + 1;
            high = low.saturating_mul(2).saturating_sub(1).max(low);
        }
        (low, high)
    }

    /// The number of the list on which blocks of `size` stand.
    pub(super) fn list(&self, size: u32) -> u16 {
        if size <= self.max_quick {
            return (size.max(self.min) - self.min) as u16;
        }
        let mut list = self.max_quick - self.min + 1;
        let mut high = self.misc_range(self.max_quick + 1).1;
        while size > high {
            list += 1;
            high = self.misc_range(high + 1).1;
        }
        list as u16
    }

    /// How many lists there are.
    pub(super) fn lists(&self) -> usize {
        usize::from(self.list(u32::MAX)) + 1
    }
}
