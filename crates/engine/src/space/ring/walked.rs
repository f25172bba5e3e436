//! Which clusters a walk over all objects has gone through, and were not granted anew since.
//!
//! Of two walks at one time the earlier one finds none of them gone through: it looks at each object by itself.

use parking_lot::Mutex;

/// Of the walk that began last.
#[derive(Default)]
pub(crate) struct Walked(Mutex<Bits>);

#[derive(Default)]
struct Bits {
    number: u64,
    words: Vec<u64>,
}

impl Walked {
    /// A walk begins over so many clusters; returns its number.
    pub(crate) fn begin(&self, clusters: u32) -> u64 {
        let mut bits = self.0.lock();
        let number = bits.number + 1;
        *bits = Bits { number, words: vec![0; clusters.div_ceil(64) as usize] };
        number
    }

    /// A cluster is granted.
    pub(crate) fn forget(&self, id: u32) {
        if let Some(word) = self.0.lock().words.get_mut(id as usize / 64) {
            *word &= !(1 << (id % 64));
        }
    }

    /// This walk is about to go through a cluster, or did not after all.
    pub(crate) fn set(&self, number: u64, id: u32, goes: bool) {
        let mut bits = self.0.lock();
        let is_last = bits.number == number;
        if let Some(word) = bits.words.get_mut(id as usize / 64).filter(|_| is_last) {
            *word = *word & !(1 << (id % 64)) | u64::from(goes) << (id % 64);
        }
    }

    /// Whether this walk has gone through the cluster, as it has been since.
    pub(crate) fn has(&self, number: u64, id: u32) -> bool {
        let bits = self.0.lock();
        bits.number == number && bits.words.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}
