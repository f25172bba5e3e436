//! All allocated blocks, in address order, while the allocator is in use.
//!
//! Some headers at a time are read with no write under way. When blocks were joined since the last look, the place
//! reached may lie inside a block by now: the walk begins again and passes over what was given out.

use std::collections::VecDeque;

use picaflor_format::blocks::Status;

use super::{
    Block, BlockError, BlockResult, FreeLists,
    walk::{Step, Walk},
};

/// Headers looked at with the gate shut.
const BATCH: usize = 256;

/// See [`FreeLists::blocks`].
pub struct Blocks<'a> {
    lists: &'a FreeLists,
    walk: Walk,
    /// Everything before this grain was given out.
    given: u64,
    merges: u64,
    found: VecDeque<BlockResult<Block>>,
    done: bool,
}

impl FreeLists {
    /// Allocated blocks and areas in address order, each once; damaged places as [`BlockError::Damaged`]. A block that
    /// is allocated or freed meanwhile may be missing or there. Works from the first moment after a crash: that is how
    /// the layer above finds what it allocated and never pointed at.
    #[must_use]
    pub fn blocks(&self) -> Blocks<'_> {
        let walk = Walk::new(self.shape.start, self.shape.start, u64::MAX);
        let merges = self.space.lock().merges;
        Blocks { lists: self, walk, given: 0, merges, found: VecDeque::new(), done: false }
    }
}

impl Blocks<'_> {
    fn fill(&mut self) {
        let lists = self.lists;
        let _all = match lists.quiet() {
            Ok(all) => all,
            Err(error) => {
                self.found.push_back(Err(error));
                self.done = true;
                return;
            }
        };
        let space = lists.space.lock();
        if self.merges != space.merges {
            self.merges = space.merges;
            self.walk = Walk::new(lists.shape.start, lists.shape.start, u64::MAX);
        }
        let walk = &mut self.walk;
        walk.until = space.lists.tail;
        walk.refresh();
        for _ in 0..BATCH {
            if walk.at >= walk.until {
                self.done = true;
                return;
            }
            let free = space.lists.at(walk.at).map(|free| free.size);
            if let Some(size) = free.or_else(|| space.pending.get(&walk.at).map(|pending| pending.size)) {
                let behind = walk.at + u64::from(size);
                walk.skip_to(behind);
                continue;
            }
            match walk.next(lists.device.as_ref(), &lists.shape, lists.salt) {
                Step::Block(header, _) if header.status == Status::Allocated && header.at >= self.given => {
                    self.found.push_back(Ok(lists.block(header)));
                }
                Step::Damage { at, why, .. } if at >= self.given => {
                    self.found.push_back(Err(BlockError::Damaged { at, why }));
                }
                Step::Block(..) | Step::Damage { .. } => {}
                Step::End => {
                    self.done = true;
                    return;
                }
            }
            self.given = self.given.max(walk.at);
        }
    }
}

impl Iterator for Blocks<'_> {
    type Item = BlockResult<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() && !self.done {
            self.fill();
        }
        self.found.pop_front()
    }
}
