//! Many reads on their way at once: what one after the other would wait for in turn.

use picaflor_device::AlignedBuf;
use picaflor_format::blocks::HEADER;

use super::{Address, Block, BlockError, BlockResult, FreeLists};

impl FreeLists {
    /// As [`FreeLists::read`] of each, with all device reads on their way at once.
    pub(crate) fn read_many(&self, places: &[Address]) -> Vec<BlockResult<(Block, Vec<u8>)>> {
        let known = |at: &Address| at.size() != 0 && self.queue.get(at.grain() * self.shape.grain).is_none();
        let end = |at: &Address| at.grain() + at.size();
        let fits = |at: &Address| self.check_place(*at).is_ok() && end(at) <= self.shape.end;
        let batch: Vec<Address> = places.iter().filter(|at| known(at) && fits(at)).copied().collect();
        let mut read = self.read_at_once(&batch, |at| (at.size() * self.shape.grain) as usize).into_iter();
        let mut batched = batch.iter().peekable();
        places
            .iter()
            .map(|&at| match batched.next_if_eq(&&at).and_then(|_| read.next()) {
                Some(bytes) => bytes.and_then(|bytes| self.opened(&bytes, at)),
                None => self.read(at),
            })
            .collect()
    }

    /// As [`FreeLists::locate`] of each, with all device reads on their way at once.
    pub(crate) fn locate_many(&self, places: &[Address]) -> BlockResult<Vec<Block>> {
        let waits = |at: &Address| self.queue.get(at.grain() * self.shape.grain).is_some();
        if places.iter().any(waits) {
            return places.iter().map(|&at| self.locate(at)).collect();
        }
        places.iter().try_for_each(|&at| self.check_place(at))?;
        let read = self.read_at_once(places, |_| self.device.read_unit().max(HEADER));
        let judged = places.iter().zip(read).map(|(&at, bytes)| Ok(self.block(self.judge(&bytes?, at)?)));
        judged.collect()
    }

    fn read_at_once(&self, places: &[Address], len: impl Fn(&Address) -> usize) -> Vec<BlockResult<AlignedBuf>> {
        if places.is_empty() {
            return Vec::new();
        }
        let from = |at: &Address| at.grain() * self.shape.grain;
        let reads = places.iter().map(|at| (from(at), self.pool.take(len(at)))).collect();
        let read = picaflor_device::read_all(self.device.as_ref(), reads).into_iter();
        let io = |at| BlockError::io(format!("reading a block at byte {}", from(at)));
        read.zip(places).map(|(outcome, at)| outcome.map_err(io(at))).collect()
    }

    /// As [`FreeLists::read_area`] of `len` bytes at each of these offsets.
    pub(crate) fn read_pages(&self, pages: &[(Block, u64)], len: usize) -> BlockResult<Vec<AlignedBuf>> {
        let unit = self.device.read_unit() as u64;
        let place = |(area, offset): &(Block, u64)| self.area_place(area, *offset, len as u64, unit);
        let places = pages.iter().map(place).collect::<BlockResult<Vec<u64>>>()?;
        let parts: Vec<_> = places.iter().map(|&place| self.queue.parts(place)).collect();
        let reads = places.iter().map(|&place| (place, self.pool.take(len))).collect();
        let read = picaflor_device::read_all(self.device.as_ref(), reads);
        let pages = read.into_iter().zip(places).zip(parts).map(|((outcome, place), parts)| {
            let mut page = outcome.map_err(BlockError::io(format!("reading an area at byte {place}")))?;
            parts.lay_over(&mut page);
            Ok(page)
        });
        pages.collect()
    }
}
