//! What can be done with a block.

use std::ops::Range;

use picaflor_format::blocks::{HEADER, Header, Status, checksum};

use super::{Address, Block, BlockError, BlockResult, FreeLists, ROOTS, grant::Wish, lists::Link};

impl FreeLists {
    /// A block for `len` bytes: one device write, of its header. It cannot be read before it is written.
    ///
    /// # Errors
    /// [`BlockError::Full`] when neither discovery nor a sync nor coalescing makes room; [`BlockError::TooLong`];
    /// [`BlockError::Io`]; [`BlockError::Stopped`] after a failure that leaves the device unknown, as for all below.
    pub fn allocate(&self, len: u64) -> BlockResult<Block> {
        self.grant(Wish::of(len, Header::UNWRITTEN))
    }

    /// A block that holds `bytes`: header and bytes are one device write.
    ///
    /// # Errors
    /// As [`FreeLists::allocate`].
    pub fn put(&self, bytes: &[u8]) -> BlockResult<Block> {
        self.grant(Wish::put(bytes))
    }

    /// Replaces a block's bytes in place, with one device write. Not atomic: after a crash before the next sync, a read
    /// finds the old bytes, the new, or damage. For blocks that are not relied on yet.
    ///
    /// # Errors
    /// [`BlockError::Outside`] if they do not fit; [`BlockError::NotAllocated`] if the handle is known to be stale; and
    /// as [`FreeLists::allocate`].
    pub fn write(&self, block: &Block, bytes: &[u8]) -> BlockResult<Block> {
        self.alive()?;
        if bytes.len() as u64 > block.capacity || block.is_area() {
            let (len, capacity) = (bytes.len() as u64, if block.is_area() { 0 } else { block.capacity });
            return Err(BlockError::Outside { offset: 0, len, capacity, unit: 1 });
        }
        let (len, sum) = (bytes.len() as u32, checksum(bytes));
        let _gate = self.gate.read();
        let header = {
            let mut space = self.space.lock();
            if space.is_free(block.header.at) {
                return Err(BlockError::NotAllocated(block.address()));
            }
            let seq = space.next_seq();
            let counted = block.header.seq >= self.opening || !space.is_unknown(block.header.at);
            if counted {
                space.tally.subtract(&block.header);
            }
            let header = Header { seq, len, sum, flags: 0, ..block.header };
            space.tally.add(&header);
            header
        };
        self.write_block(&header, bytes)?;
        Ok(self.block(header))
    }

    /// The block at an address and its bytes, verified: one device read, two for a block of more than a million grains.
    ///
    /// # Errors
    /// [`BlockError::NotAllocated`] if no allocated block of that size begins there; [`BlockError::Damaged`] if its
    /// header or bytes fail their checksum, or it was never written; [`BlockError::Io`].
    pub fn read(&self, at: Address) -> BlockResult<(Block, Vec<u8>)> {
        self.check_place(at)?;
        let size = match at.size() {
            0 => u64::from(self.header_at(at)?.size),
            size => size,
        };
        let (from, len) = (at.grain() * self.shape.grain, size * self.shape.grain);
        if at.grain() + size > self.shape.end {
            return Err(BlockError::NotAllocated(at));
        }
        if let Some(bytes) = self.queue.get(from) {
            return self.opened(&bytes, at);
        }
        let mut buf = self.pool.take(len as usize);
        self.device.read(from, &mut buf).map_err(BlockError::io(format!("reading a block at byte {from}")))?;
        self.opened(&buf, at)
    }

    /// The block that lies in these bytes, and its own.
    pub(super) fn opened(&self, buf: &[u8], at: Address) -> BlockResult<(Block, Vec<u8>)> {
        let header = self.judge(buf, at)?;
        let damaged = |why| Err(BlockError::Damaged { at: header.at, why });
        if header.flags & Header::AREA != 0 {
            return damaged("it is an area: read its parts");
        }
        if header.flags & Header::UNWRITTEN != 0 {
            return damaged("it was allocated and never written");
        }
        let bytes = &buf[HEADER..][..header.len as usize];
        if checksum(bytes) != header.sum {
            return damaged("its bytes fail their checksum");
        }
        Ok((self.block(header), bytes.to_vec()))
    }

    /// The handle of an allocated block or area: one device read, of its header.
    ///
    /// # Errors
    /// As [`FreeLists::read`].
    pub fn locate(&self, at: Address) -> BlockResult<Block> {
        Ok(self.block(self.header_at(at)?))
    }

    /// The handle of an area that something durable names, without a device read: the address says how large it is, and
    /// the area's parts vouch for themselves. One read where the address does not say.
    ///
    /// # Errors
    /// [`BlockError::NotAllocated`] if what lies there is known to be free, or reaches behind the tail; as
    /// [`FreeLists::locate`] where that is asked.
    pub(crate) fn area_at(&self, at: Address) -> BlockResult<Block> {
        let Some(size) = u32::try_from(at.size()).ok().filter(|&size| size > 0) else { return self.locate(at) };
        let begin = self.shape.begin(true);
        let capacity = (u64::from(size) * self.shape.grain).saturating_sub(begin);
        let space = self.space.lock();
        let end = at.grain() + u64::from(size);
        if at.grain() < self.shape.start || end > space.lists.tail || space.is_free(at.grain()) {
            return Err(BlockError::NotAllocated(at));
        }
        let len = u32::try_from(capacity).unwrap_or(u32::MAX);
        let header = Link::NONE.header(Status::Allocated, at.grain(), size, 0);
        Ok(Block { header: Header { len, flags: Header::AREA, ..header }, capacity })
    }

    /// Frees a block: one device write, at once. It may reach the device before anything else that is not synced yet,
    /// so nothing durable may point at the block any more; else see [`FreeLists::retire`]. Its space is reused after
    /// the next sync.
    ///
    /// # Errors
    /// [`BlockError::NotAllocated`] if it is known to be free; [`BlockError::Io`], and then the allocator has stopped.
    pub fn free(&self, block: &Block) -> BlockResult<()> {
        self.free_when(block, false)
    }

    pub(super) fn free_when(&self, block: &Block, later: bool) -> BlockResult<()> {
        self.alive()?;
        let _gate = self.gate.read();
        if self.space.lock().is_free(block.header.at) {
            return Err(BlockError::NotAllocated(block.address()));
        }
        self.release(&block.header, later)
    }

    /// As [`FreeLists::free`], with a device read first, of the header.
    ///
    /// # Errors
    /// As [`FreeLists::free`] and [`FreeLists::read`].
    pub fn free_at(&self, at: Address) -> BlockResult<()> {
        let block = self.locate(at)?;
        self.free(&block)
    }

    /// Frees a block when the next sync has succeeded: what no longer points at it is durable then. Its space is
    /// reused after one more. A crash in between leaves an allocated block: [`FreeLists::blocks`] finds it.
    ///
    /// # Errors
    /// [`BlockError::NotAllocated`] if it is known to be free.
    pub fn retire(&self, block: &Block) -> BlockResult<()> {
        self.alive()?;
        let mut space = self.space.lock();
        if space.is_free(block.header.at) {
            return Err(BlockError::NotAllocated(block.address()));
        }
        space.retired.insert(block.header.at, block.header);
        Ok(())
    }

    /// Raw space of `len` bytes, for tables that are read and written in parts: one device write, of the header. What
    /// it holds is undefined until written. Its first byte lies on a grain.
    ///
    /// # Errors
    /// As [`FreeLists::allocate`].
    pub fn allocate_area(&self, len: u64) -> BlockResult<Block> {
        self.grant(Wish::of(len, Header::AREA))
    }

    /// Fills `buf` from `offset` of an area. Both must be multiples of the device's read unit.
    ///
    /// # Errors
    /// [`BlockError::Outside`], [`BlockError::Io`].
    pub fn read_area(&self, area: &Block, offset: u64, buf: &mut [u8]) -> BlockResult<()> {
        let from = self.area_place(area, offset, buf.len() as u64, self.device.read_unit() as u64)?;
        let parts = self.queue.parts(from);
        self.device.read(from, buf).map_err(BlockError::io(format!("reading an area at byte {from}")))?;
        parts.lay_over(buf);
        Ok(())
    }

    /// Writes `bytes` at `offset` of an area: one device write. Both must be multiples of the device's block size. Each
    /// sector of 512 bytes is written at once, more is not.
    ///
    /// # Errors
    /// As [`FreeLists::read_area`].
    pub fn write_area(&self, area: &Block, offset: u64, bytes: &[u8]) -> BlockResult<()> {
        self.alive()?;
        let from = self.area_place(area, offset, bytes.len() as u64, self.device.block_size() as u64)?;
        let _gate = self.gate.read();
        self.writes.count(bytes.len());
        self.device.write(from, bytes).map_err(BlockError::io(format!("writing an area at byte {from}")))
    }

    pub(super) fn area_place(&self, area: &Block, offset: u64, len: u64, unit: u64) -> BlockResult<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= area.capacity);
        if !area.is_area() || end.is_none() || !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
            let capacity = if area.is_area() { area.capacity } else { 0 };
            return Err(BlockError::Outside { offset, len, capacity, unit });
        }
        Ok(area.header.at * self.shape.grain + self.shape.begin(true) + offset)
    }

    /// The words of the layer above: 0 when the allocator is created.
    #[must_use]
    pub fn roots(&self) -> [u64; ROOTS] {
        self.home.lock().home.roots
    }

    /// Sets them all at once with one device write, durable with the next sync: a crash leaves the old or the new.
    ///
    /// # Errors
    /// [`BlockError::Io`], and then the allocator has stopped.
    pub fn set_roots(&self, roots: [u64; ROOTS]) -> BlockResult<()> {
        self.alive()?;
        let mut home = self.home.lock();
        home.home.roots = roots;
        self.write_home(&mut home)
    }

    /// Bytes of a grain.
    #[must_use]
    pub fn grain(&self) -> u64 {
        self.shape.grain
    }

    /// As [`FreeLists::put`], but the write goes out with the next [`FreeLists::sync`], or when much waits. A reader
    /// of the block finds it meanwhile.
    pub(crate) fn put_later(&self, bytes: &[u8]) -> BlockResult<Block> {
        let block = self.grant(Wish { later: true, ..Wish::put(bytes) })?;
        self.relieve()?;
        Ok(block)
    }

    /// As [`FreeLists::free`], with a write that goes out as that of [`FreeLists::put_later`].
    pub(crate) fn free_later(&self, block: &Block) -> BlockResult<()> {
        self.free_when(block, true)
    }

    /// As [`FreeLists::write_area`], of `part` of the page that begins at `offset`, with a write that goes out as that
    /// of [`FreeLists::put_later`]. [`FreeLists::read_area`] of the whole page finds it meanwhile.
    pub(crate) fn write_page_later(
        &self,
        area: &Block,
        offset: u64,
        page: &[u8],
        part: Range<usize>,
    ) -> BlockResult<()> {
        self.alive()?;
        let unit = self.device.block_size() as u64;
        let place = self.area_place(area, offset, page.len() as u64, 1)?;
        self.area_place(area, offset + part.start as u64, part.len() as u64, unit)?;
        self.queue.put_part(place, page, part);
        self.relieve()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use picaflor_device::MemoryDevice;

    use super::*;
    use crate::blocks::BlockOptions;

    fn lists() -> FreeLists {
        let device = Arc::new(MemoryDevice::with_block_size(1 << 20, 512));
        FreeLists::open(device, BlockOptions { waste: 0, ..BlockOptions::default() }).expect("a blank device").0
    }

    #[test]
    fn what_a_split_leaves_is_given_out_when_the_block_before_it_is_durable() {
        let lists = lists();
        // Larger than the lists of single sizes, so that it is split; 20 grains are left.
        let large = lists.put(&[1; 60_000]).expect("room");
        lists.free(&large).expect("it is allocated");
        lists.sync().expect("memory syncs");
        let from = large.address().grain();
        let within = |block: &Block| (from..from + 118).contains(&block.address().grain());
        let first = lists.put_later(&[2; 50_000]).expect("room");
        assert!(within(&first) && lists.stats().splits == 1);
        let second = lists.put_later(&[3; 10_000]).expect("room");
        assert!(!within(&second), "the rest waits");
        lists.sync().expect("memory syncs");
        let third = lists.put_later(&[4; 10_000]).expect("room");
        assert!(within(&third), "and is there after the sync");
        lists.free_later(&first).expect("it is allocated");
        assert!(matches!(lists.read(first.address()), Err(BlockError::NotAllocated(_))), "before anything is written");
        assert_eq!(lists.read(third.address()).expect("it waits to be written").1, [4; 10_000]);
    }
}
