//! Optimized batch allocation: Iyengar et al. 2003, §2.5.
//!
//! Step by step: requests by decreasing size; each takes the best fit among the free blocks of at least *T* bytes and
//! what the batch itself has left of them, however short; else the tail. Then all are written in address order, and
//! what lies side by side is one device write.

use picaflor_format::blocks::{HEADER, Header};

use super::{Block, BlockResult, FreeLists, grant::Wish, lists::Leftovers};

/// Longest device write of a batch, in bytes.
const LONGEST: u64 = 1 << 20;

/// The first grain behind a block.
fn end(header: &Header) -> u64 {
    header.at + u64::from(header.size)
}

impl FreeLists {
    /// Blocks for all of `lens`, in their order, placed together.
    ///
    /// # Errors
    /// As [`FreeLists::allocate`]; without room for all of them, none is allocated.
    pub fn allocate_batch(&self, lens: &[u64]) -> BlockResult<Vec<Block>> {
        let wishes: Vec<_> = lens.iter().map(|&len| Wish::of(len, Header::UNWRITTEN)).collect();
        self.grant_batch(&wishes).map(|(blocks, _)| blocks)
    }

    /// Blocks that hold each of `bodies`, in their order, placed together and written in address order.
    ///
    /// # Errors
    /// As [`FreeLists::put`]; without room for all of them, none is put.
    pub fn put_batch(&self, bodies: &[&[u8]]) -> BlockResult<Vec<Block>> {
        let wishes: Vec<_> = bodies.iter().map(|bytes| Wish::put(bytes)).collect();
        self.grant_batch(&wishes).map(|(blocks, _)| blocks)
    }

    /// As [`FreeLists::put_batch`], with writes that go out as those of [`FreeLists::put_later`]. Also says whether one
    /// of the blocks lies in what another of them left of a split. Then all must be durable before one is named: if a
    /// crash took the block in front and left the one behind, that would lie within something free.
    pub(crate) fn put_batch_later(&self, bodies: &[&[u8]]) -> BlockResult<(Vec<Block>, bool)> {
        let wishes: Vec<_> = bodies.iter().map(|bytes| Wish { later: true, ..Wish::put(bytes) }).collect();
        let granted = self.grant_batch(&wishes)?;
        self.relieve()?;
        Ok(granted)
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

    fn grant_batch(&self, wishes: &[Wish<'_>]) -> BlockResult<(Vec<Block>, bool)> {
        let sizes = wishes.iter().map(|wish| self.shape.grains(wish.len, false)).collect::<BlockResult<Vec<_>>>()?;
        let mut left: Vec<usize> = (0..wishes.len()).collect();
        left.sort_by_key(|&index| sizes[index]);
        let mut blocks: Vec<Option<Block>> = vec![None; wishes.len()];
        let (mut round, mut nested) = (0, false);
        let later = wishes.iter().any(|wish| wish.later);
        while !left.is_empty() {
            self.alive()?;
            {
                let _gate = self.gate.read();
                let chosen = self.choose_batch(&mut left, &sizes, wishes);
                nested |= chosen.windows(2).any(|pair| pair[0].0.rest > 0 && end(&pair[0].0) == pair[1].0.at);
                if later {
                    self.write_later(&chosen, wishes)?
                } else {
                    self.write_chosen(&chosen, wishes)?
                }
                chosen.into_iter().for_each(|(header, index)| blocks[index] = Some(self.block(header)));
            }
            if let Some(&index) = left.last() {
                // All or nothing, where it is a matter of room.
                round = self.make_room(sizes[index], round).inspect_err(|_| {
                    let _gate = self.gate.read();
                    let freed = blocks.iter().flatten().try_for_each(|block| self.release(&block.header, later));
                    drop(freed);
                })?;
            }
        }
        Ok((blocks.into_iter().flatten().collect(), nested))
    }

    /// Blocks for as many of what is `left` as there is room for, the largest first; in the order of their places. The
    /// caller holds the gate until they are written.
    fn choose_batch(&self, left: &mut Vec<usize>, sizes: &[u32], wishes: &[Wish<'_>]) -> Vec<(Header, usize)> {
        let mut space = self.space.lock();
        let (mut chosen, mut leftovers) = (Vec::new(), Leftovers::new());
        while let Some(&index) = left.last() {
            let chosen_now = self.choose(&mut space, sizes[index], &wishes[index], Some(&mut leftovers));
            let Some(header) = chosen_now else { break };
            left.pop();
            chosen.push((header, index));
        }
        chosen.sort_by_key(|(header, _)| header.at);
        for (header, _) in chosen.iter().filter(|(_, index)| wishes[*index].later) {
            space.hold_rest(header);
        }
        chosen
    }

    /// All are written with the next batch, but for what discovery will read from the device.
    fn write_later(&self, chosen: &[(Header, usize)], wishes: &[Wish<'_>]) -> BlockResult<()> {
        for (number, (header, index)) in chosen.iter().enumerate() {
            let bytes = wishes[*index].bytes.unwrap_or_default();
            if !self.space.lock().is_unknown(header.at) {
                self.write_block_later(header, bytes);
            } else if let Err(error) = self.write_block(header, bytes) {
                chosen[number..].iter().for_each(|(header, _)| self.undo(header, &error));
                return Err(error);
            }
        }
        Ok(())
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
