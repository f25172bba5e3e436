//! What the allocator's roots say: `ROOT`, the place of the list of tables, the epoch and whether it was closed,
//! the first doubtful epoch, the seed of the hash.

use picaflor_format::htod::ROOT;

use super::failure::failed;
use crate::{Error, Result, blocks::FreeLists};

/// Bits of a generation that count within an epoch.
pub(super) const EPOCH_SHIFT: u32 = 40;

/// What the roots say.
#[derive(Clone, Copy)]
pub(super) struct Roots {
    pub(super) list: u64,
    pub(super) epoch: u32,
    pub(super) clean: bool,
    pub(super) doubt: u32,
    pub(super) seed: u64,
}

impl Roots {
    pub(super) fn words(&self) -> [u64; 8] {
        let epoch = u64::from(self.epoch) << 1 | u64::from(self.clean);
        [ROOT, self.list, epoch, u64::from(self.doubt), self.seed, 0, 0, 0]
    }

    pub(super) fn read(words: [u64; 8]) -> Result<Option<Self>> {
        let [root, list, epoch, doubt, seed, ..] = words;
        match root {
            0 => Ok(None),
            ROOT => {
                let clean = epoch & 1 == 1;
                Ok(Some(Self { list, epoch: (epoch >> 1) as u32, clean, doubt: doubt as u32, seed }))
            }
            _ => Err(Error::Damaged {
                place: "roots of the block allocator".to_owned(),
                why: "something else than hash tables of format 1 lives here".to_owned(),
                mend: "open it with what made it, or choose another file".to_owned(),
            }),
        }
    }
}

/// Notes the roots in both homes of the allocator, so that one of them is enough: an older one would not say that this
/// epoch was ever begun.
pub(super) fn note_twice(lists: &FreeLists, roots: &Roots) -> Result<()> {
    for _ in 0..2 {
        lists.set_roots(roots.words()).map_err(failed("note the epoch"))?;
        lists.sync().map_err(failed("sync"))?;
    }
    Ok(())
}
