//! Optimized batch allocation written down a second time, from the text of Iyengar, Jin and Challenger 2003 alone
//! (§2.1, §2.4.2, §2.5 with Figure 8) and without a line of the allocator's: what is asked of the disk, and where.
//!
//! What the paper leaves open is taken as the allocator says that it takes it (docs/FORMAT.md, "Blocks"): a header has
//! 64 bytes of a block's first grain and is written with it; a request that no free block serves is served from the
//! tail; of what is left of a split the header in front tells, so that it costs no write, and it is free space of its
//! own.

/// Bytes of a grain, the paper's *g*.
pub(crate) const GRAIN: u64 = 512;
/// Bytes of a header.
const HEADER: u64 = 64;

/// What was asked of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Of blocks, those side by side in a batch as one.
    pub(crate) writes: u64,
    pub(crate) written: u64,
    pub(crate) frees: u64,
    pub(crate) reads: u64,
    pub(crate) read: u64,
    pub(crate) splits: u64,
    pub(crate) from_tail: u64,
}

/// A block: first grain, grains.
pub(crate) type Place = (u64, u64);

pub(crate) struct Batches {
    /// Grains, the paper's *T*.
    threshold: u64,
    /// Free blocks, of those of one size the newest last.
    free: Vec<Place>,
    pub(crate) tail: u64,
    pub(crate) asked: Asked,
}

impl Batches {
    pub(crate) fn new(threshold: u64) -> Self {
        Self { threshold: threshold / GRAIN, free: Vec::new(), tail: 0, asked: Asked::default() }
    }

    /// Figure 8. Places of requests of so many bytes, in their order.
    pub(crate) fn allocate(&mut self, lens: &[u64]) -> Vec<Place> {
        // "Lb <- list of free blocks whose size >= T": of the others nothing is taken.
        let (mut usable, alone): (Vec<Place>, Vec<Place>) =
            self.free.drain(..).partition(|(_, size)| *size >= self.threshold);
        // "Lr <- sorted requests by size in decreasing order."
        let mut requests: Vec<(u64, usize)> =
            lens.iter().enumerate().map(|(at, len)| ((len + HEADER).div_ceil(GRAIN), at)).collect();
        requests.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let mut places = vec![(0, 0); lens.len()];
        for (size, request) in requests {
            // "BestFit finds the block of best fit." Of one size the head of its list, where frees put a block.
            let fits = usable.iter().enumerate().rev().filter(|(_, block)| block.1 >= size);
            let best = fits.min_by_key(|(_, block)| block.1).map(|(at, _)| at);
            let at = match best.map(|at| usable.remove(at)) {
                None => {
                    self.asked.from_tail += 1;
                    self.tail += size;
                    self.tail - size
                }
                Some((at, all)) => {
                    // "(b1, b2) <- b, split b if necessary; [...] if b2 != 0 then Lb <- Lb + b2."
                    if all > size {
                        self.asked.splits += 1;
                        usable.push((at + size, all - size));
                    }
                    at
                }
            };
            places[request] = (at, size);
        }
        self.free = alone;
        self.free.extend(usable);
        self.write(&places);
        places
    }

    /// "La <- sorted La by block address; while La != nil [...] write(r, b)."
    fn write(&mut self, places: &[Place]) {
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        let mut end = None;
        for (at, size) in sorted {
            self.asked.writes += u64::from(end != Some(at));
            self.asked.written += size * GRAIN;
            end = Some(at + size);
        }
    }

    /// "In order to deallocate a block, the AS field is set [...]. Only a single disk access is required." "Adjacent
    /// free blocks are not coalesced during a deallocation."
    pub(crate) fn free(&mut self, block: Place) {
        self.asked.frees += 1;
        self.free.push(block);
    }

    pub(crate) fn read(&mut self, (_, size): Place) {
        self.asked.reads += 1;
        self.asked.read += size * GRAIN;
    }
}
