//! Many reads on their way at once: what one after the other would wait for in turn. What lies side by side, or nearly,
//! is one read.

use std::io;

use bytes::Bytes;

use super::{Address, Block, BlockError, BlockResult, FreeLists};

/// Longest read of several places.
const LONGEST: u64 = 256 << 10;
/// Bytes between two places that are read along rather than skipped: to most devices a read of a few KiB costs hardly
/// less than one of a few more.
const GAP: u64 = 8 << 10;

impl FreeLists {
    /// Bytes that a block at this address takes, as far as the address says.
    pub(crate) fn bytes_at(&self, at: Address) -> u64 {
        at.size() * self.shape.grain
    }

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

    fn read_at_once(&self, places: &[Address], len: impl Fn(&Address) -> usize) -> Vec<BlockResult<Bytes>> {
        let from = |at: &Address| at.grain() * self.shape.grain;
        let wanted: Vec<(u64, usize)> = places.iter().map(|at| (from(at), len(at))).collect();
        let io = |at| BlockError::io(format!("reading a block at byte {}", from(at)));
        self.read_joined(&wanted).into_iter().zip(places).map(|(read, at)| read.map_err(io(at))).collect()
    }

    /// As [`FreeLists::read_area`] of `len` bytes at each of these offsets.
    pub(crate) fn read_pages(&self, pages: &[(Block, u64)], len: usize) -> BlockResult<Vec<BlockResult<Vec<u8>>>> {
        let unit = self.device.read_unit() as u64;
        let place = |(area, offset): &(Block, u64)| self.area_place(area, *offset, len as u64, unit);
        let places = pages.iter().map(place).collect::<BlockResult<Vec<u64>>>()?;
        let parts: Vec<_> = places.iter().map(|&place| self.queue.parts(place)).collect();
        let wanted: Vec<(u64, usize)> = places.iter().map(|&place| (place, len)).collect();
        let read = self.read_joined(&wanted);
        let pages = read.into_iter().zip(places).zip(parts).map(|((outcome, place), parts)| {
            let page = outcome.map_err(BlockError::io(format!("reading an area at byte {place}")))?;
            let mut page = page.to_vec();
            parts.lay_over(&mut page);
            Ok(page)
        });
        Ok(pages.collect())
    }

    /// So many bytes from each of these offsets.
    fn read_joined(&self, wanted: &[(u64, usize)]) -> Vec<io::Result<Bytes>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(|&number| wanted[number].0);
        for number in order {
            let (from, to) = (wanted[number].0, wanted[number].0 + wanted[number].1 as u64);
            match runs.last_mut() {
                Some(run) if from <= run.to + GAP && to.max(run.to) - run.from <= LONGEST => {
                    run.to = run.to.max(to);
                    run.members.push(number);
                }
                _ => runs.push(Run { from, to, members: vec![number] }),
            }
        }
        let reads = runs.iter().map(|run| (run.from, self.pool.take((run.to - run.from) as usize))).collect();
        let read = picaflor_device::read_all(self.device.as_ref(), reads);
        let mut parts: Vec<io::Result<Bytes>> = wanted.iter().map(|_| Ok(Bytes::new())).collect();
        for (run, outcome) in runs.iter().zip(read) {
            let is_one = run.members.len() == 1;
            let outcome = outcome.map(picaflor_device::AlignedBuf::into_bytes);
            for &number in &run.members {
                let (from, len) = wanted[number];
                parts[number] = match &outcome {
                    Ok(bytes) => Ok(bytes.slice((from - run.from) as usize..).slice(..len)),
                    Err(error) if is_one => Err(io::Error::new(error.kind(), error.to_string())),
                    // What cannot be read of one of them is no reason not to read the others.
                    Err(_) => {
                        let mut buf = self.pool.take(len);
                        self.device.read(from, &mut buf).map(|()| buf.into_bytes())
                    }
                };
            }
        }
        parts
    }
}

/// Places that one read takes.
struct Run {
    from: u64,
    to: u64,
    members: Vec<usize>,
}
