//! From a length to a written block, and back: the only writer of headers and of blocks' bytes.
//!
//! A grant, step by step: choose a block and number the header under the lock; write header and bytes in one device
//! write; if that fails, write that the block is free; if that fails too, stop, for blocks behind it could no longer
//! be found.

use picaflor_device::AlignedBuf;
use picaflor_format::blocks::{HEADER, Header, Status, checksum};

use super::{Address, Block, BlockError, BlockResult, FreeLists, lists::Leftovers, space::Space, walk};

/// What is granted, and how it is chosen.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) len: u64,
    /// Written with the header; none leaves the bytes as they are.
    pub(super) bytes: Option<&'a [u8]>,
    /// Of those; summed before any lock is held.
    pub(super) sum: u32,
    pub(super) flags: u16,
    /// Written with the next batch.
    pub(super) later: bool,
}

impl<'a> Wish<'a> {
    pub(super) fn put(bytes: &'a [u8]) -> Self {
        Self { len: bytes.len() as u64, bytes: Some(bytes), sum: checksum(bytes), flags: 0, later: false }
    }

    pub(super) fn of(len: u64, flags: u16) -> Self {
        Self { len, bytes: None, sum: 0, flags, later: false }
    }

    /// Whether what a split leaves waits for a sync: where others write behind it with a batch, and may be named before
    /// this block is there.
    fn holds_rest(&self) -> bool {
        self.later || self.flags & Header::AREA != 0
    }
}

impl FreeLists {
    pub(super) fn grant(&self, wish: Wish<'_>) -> BlockResult<Block> {
        let size = self.shape.grains(wish.len, wish.flags & Header::AREA != 0)?;
        let mut round = 0;
        loop {
            self.alive()?;
            let gate = self.gate.read();
            let chosen = {
                let mut space = self.space.lock();
                let chosen = self.choose(&mut space, size, &wish, None);
                if wish.holds_rest()
                    && let Some(header) = &chosen
                {
                    space.hold_rest(header);
                }
                chosen
            };
            if let Some(header) = chosen {
                // Discovery reads from the device what it finds.
                if wish.later && !self.space.lock().is_unknown(header.at) {
                    self.write_block_later(&header, wish.bytes.unwrap_or_default());
                    return Ok(self.block(header));
                }
                return self.write_granted(&header, wish.bytes);
            }
            drop(gate);
            round = self.make_room(size, round)?;
        }
    }

    /// A block off the lists, with its header; the caller holds the gate until the header is written. A batch tells
    /// what its splits have left.
    pub(super) fn choose(
        &self,
        space: &mut Space,
        size: u32,
        wish: &Wish<'_>,
        batch: Option<&mut Leftovers>,
    ) -> Option<Header> {
        let lists = &mut space.lists;
        let taken = match batch {
            Some(left) => lists.take_best(size, &self.shape, left),
            None => lists.take(size, &self.shape),
        }?;
        let mut header = space.granted(taken, &self.shape);
        header.len = wish.len as u32;
        header.flags = wish.flags;
        header.sum = wish.sum;
        space.tally.add(&header);
        Some(header)
    }

    pub(super) fn write_granted(&self, header: &Header, bytes: Option<&[u8]>) -> BlockResult<Block> {
        match self.write_block(header, bytes.unwrap_or_default()) {
            Ok(()) => Ok(self.block(*header)),
            Err(error) => {
                self.undo(header, &error);
                Err(error)
            }
        }
    }

    /// A granted block could not be written: writes that it is free. If that fails too, blocks behind it could not be
    /// found after a failure, so nothing may be promised any more.
    pub(super) fn undo(&self, header: &Header, error: &BlockError) {
        let free = {
            let mut space = self.space.lock();
            space.tally.subtract(header);
            Header { status: Status::Free, seq: space.next_seq(), len: 0, sum: 0, flags: 0, ..*header }
        };
        match self.write_block(&free, &[]) {
            Ok(()) => self.space.lock().wait_for_sync(&free),
            Err(_) => self.commits.fail(error.shared()),
        }
    }

    /// Header and bytes, one device write.
    pub(super) fn write_block(&self, header: &Header, bytes: &[u8]) -> BlockResult<()> {
        let place = header.at * self.shape.grain;
        if self.queue.get(place).is_some() {
            // Behind what is on its way there, never beside it.
            self.write_block_later(header, bytes);
            return Ok(());
        }
        self.write_at(place, &self.laid_out(header, bytes), "writing a block")
    }

    pub(super) fn write_block_later(&self, header: &Header, bytes: &[u8]) {
        self.queue.put(header.at * self.shape.grain, self.laid_out(header, bytes).into_bytes());
    }

    fn laid_out(&self, header: &Header, bytes: &[u8]) -> AlignedBuf {
        let unit = self.device.block_size();
        let mut buf = self.pool.take((HEADER + bytes.len()).next_multiple_of(unit));
        self.lay(&mut buf, header, bytes);
        buf
    }

    /// Lays a block out: header, bytes, nothing.
    pub(super) fn lay(&self, place: &mut [u8], header: &Header, bytes: &[u8]) {
        header.encode(place, self.salt);
        let (own, rest) = place[HEADER..].split_at_mut(bytes.len());
        own.copy_from_slice(bytes);
        rest.fill(0);
    }

    pub(super) fn write_at(&self, from: u64, buf: &AlignedBuf, what: &str) -> BlockResult<()> {
        self.writes.count(buf.len());
        self.device.write(from, buf).map_err(BlockError::io(format!("{what} at byte {from}")))
    }

    pub(super) fn block(&self, header: Header) -> Block {
        let begin = self.shape.begin(header.flags & Header::AREA != 0);
        Block { header, capacity: u64::from(header.size) * self.shape.grain - begin }
    }

    /// Writes the header that frees a block; the caller holds the gate, and has looked whether it is allocated.
    pub(super) fn release(&self, block: &Header, later: bool) -> BlockResult<()> {
        let header = {
            let mut space = self.space.lock();
            let header = space.freed(block, &self.shape);
            let counted = block.seq >= self.opening || !space.is_unknown(block.at);
            if counted {
                space.tally.subtract(block);
            }
            space.frees += 1;
            // No other call may see it as allocated or take it while the write is under way, or waits; discovery stops
            // there.
            space.wait_for_sync(&header);
            header
        };
        if later {
            self.write_block_later(&header, &[]);
            return Ok(());
        }
        self.write_block(&header, &[]).inspect_err(|error| {
            // The block behind may have been joined to it, and is on no list now.
            self.commits.fail(error.shared());
        })
    }

    /// The header at an address, from the device.
    pub(super) fn header_at(&self, at: Address) -> BlockResult<Header> {
        let mut buf = self.pool.take(self.device.read_unit().max(HEADER));
        let grain = at.grain();
        self.check_place(at)?;
        let from = grain * self.shape.grain;
        if let Some(bytes) = self.queue.get(from) {
            return self.judge(&bytes, at);
        }
        self.device.read(from, &mut buf).map_err(BlockError::io(format!("reading a block at byte {from}")))?;
        self.judge(&buf, at)
    }

    /// Behind the tail nothing is allocated, whatever it looks like: a crash may leave whole blocks behind a gap.
    pub(super) fn check_place(&self, at: Address) -> BlockResult<()> {
        let within = (self.shape.start..self.space.lock().lists.tail).contains(&at.grain());
        if within { Ok(()) } else { Err(BlockError::NotAllocated(at)) }
    }

    /// The header in `bytes`, if it is one of an allocated block at `at`.
    pub(super) fn judge(&self, bytes: &[u8], at: Address) -> BlockResult<Header> {
        let grain = at.grain();
        match Header::decode(bytes, self.salt, grain) {
            Ok(header) if header.status != Status::Allocated => Err(BlockError::NotAllocated(at)),
            // A crash left it behind a gap, and the tail has since come past that place.
            Ok(header) if grain >= self.found_tail && header.seq < self.opening => Err(BlockError::NotAllocated(at)),
            Ok(header) if at.size() != 0 && at.size() != u64::from(header.size) => Err(BlockError::NotAllocated(at)),
            Ok(header) if u64::from(header.len) <= self.block(header).capacity => Ok(header),
            Ok(_) => Err(BlockError::Damaged { at: grain, why: "it is longer than the block" }),
            Err(_) if !Header::claims(bytes, self.salt, grain) => Err(BlockError::NotAllocated(at)),
            Err(corrupt) => Err(BlockError::Damaged { at: grain, why: walk::why(corrupt) }),
        }
    }
}
