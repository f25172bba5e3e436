//! Optimized batch allocation: Iyengar et al. 2003, §2.5.
//!
//! Step by step: requests by decreasing size; each takes the best fit among the free blocks of at least *T* bytes, and
//! what is left of it goes back at once; else the tail. Then all are written in address order, and what lies side by
//! side is one device write.

use picaflor_format::blocks::{HEADER, Header};

use super::{Block, BlockResult, FreeLists, grant::Wish};

/// Longest device write of a batch, in bytes.
const LONGEST: u64 = 1 << 20;

impl FreeLists {
    /// Blocks for all of `lens`, in their order, placed together.
    ///
    /// # Errors
    /// As [`FreeLists::allocate`]; without room for all of them, none is allocated.
    pub fn allocate_batch(&self, lens: &[u64]) -> BlockResult<Vec<Block>> {
        let wishes: Vec<_> = lens.iter().map(|&len| Wish { best: true, ..Wish::of(len, Header::UNWRITTEN) }).collect();
        self.grant_batch(&wishes)
    }

    /// Blocks that hold each of `bodies`, in their order, placed together and written in address order.
    ///
    /// # Errors
    /// As [`FreeLists::put`]; without room for all of them, none is put.
    pub fn put_batch(&self, bodies: &[&[u8]]) -> BlockResult<Vec<Block>> {
        let wishes: Vec<_> = bodies.iter().map(|bytes| Wish { best: true, ..Wish::put(bytes) }).collect();
        self.grant_batch(&wishes)
    }

    /// Frees blocks, in address order: a device write each, as [`FreeLists::free`].
    ///
    /// # Errors
    /// As [`FreeLists::free`]; then those before it in address order are free.
    pub fn free_batch(&self, blocks: &[Block]) -> BlockResult<()> {
        let mut sorted: Vec<&Block> = blocks.iter().collect();
        sorted.sort_by_key(|block| block.header.at);
        sorted.into_iter().try_for_each(|block| self.free(block))
    }

    fn grant_batch(&self, wishes: &[Wish<'_>]) -> BlockResult<Vec<Block>> {
        let sizes = wishes.iter().map(|wish| self.shape.grains(wish.len, false)).collect::<BlockResult<Vec<_>>>()?;
        let mut left: Vec<usize> = (0..wishes.len()).collect();
        left.sort_by_key(|&index| sizes[index]);
        let mut blocks: Vec<Option<Block>> = vec![None; wishes.len()];
        let mut round = 0;
        while !left.is_empty() {
            self.alive()?;
            {
                let _gate = self.gate.read();
                let mut chosen = Vec::new();
                while let Some(&index) = left.last() {
                    let Some(header) = self.choose(sizes[index], &wishes[index]) else { break };
                    left.pop();
                    chosen.push((header, index));
                }
                chosen.sort_by_key(|(header, _)| header.at);
                self.write_chosen(&chosen, wishes)?;
                chosen.into_iter().for_each(|(header, index)| blocks[index] = Some(self.block(header)));
            }
            if let Some(&index) = left.last() {
                // All or nothing, where it is a matter of room.
                round = self.make_room(sizes[index], round).inspect_err(|_| {
                    let _gate = self.gate.read();
                    let freed = blocks.iter().flatten().try_for_each(|block| self.release(&block.header, false));
                    drop(freed);
                })?;
            }
        }
        Ok(blocks.into_iter().flatten().collect())
    }

    /// One device write for each run of blocks side by side, if all of them are written with their bytes.
    fn write_chosen(&self, chosen: &[(Header, usize)], wishes: &[Wish<'_>]) -> BlockResult<()> {
        let mut rest = chosen;
        while let Some((first, _)) = rest.first() {
            let mut end = first.at;
            let joins = |(header, index): &&(Header, usize)| {
                let follows = header.at == end && wishes[*index].bytes.is_some();
                end += u64::from(header.size);
                follows && (end - first.at) * self.shape.grain <= LONGEST
            };
            let count = rest.iter().take_while(joins).count().max(1);
            let (run, behind) = rest.split_at(count);
            let written = self.write_run(run, wishes);
            if let Err(error) = written {
                // What was not written, or is not known to be, must not be taken for the gap that it now is.
                run.iter().chain(behind).for_each(|(header, _)| self.undo(header, &error));
                return Err(error);
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_run(&self, run: &[(Header, usize)], wishes: &[Wish<'_>]) -> BlockResult<()> {
        let (Some((first, _)), Some((last, index))) = (run.first(), run.last()) else { return Ok(()) };
        let (grain, unit) = (self.shape.grain as usize, self.device.block_size());
        let tail = (HEADER + wishes[*index].bytes.map_or(0, <[u8]>::len)).next_multiple_of(unit);
        let mut buf = self.pool.take((last.at - first.at) as usize * grain + tail);
        // Blocks of a run lie side by side, so all of the buffer is written.
        for (header, index) in run {
            let from = (header.at - first.at) as usize * grain;
            let to = (from + header.size as usize * grain).min(buf.len());
            self.lay(&mut buf[from..to], header, wishes[*index].bytes.unwrap_or_default());
        }
        self.write_at(first.at * self.shape.grain, &buf, "writing a batch")
    }
}
