//! Which clusters a walk over all objects has gone through, and were not granted anew since.
//!
//! Of two walks at one time the earlier one finds none of them gone through: it looks at each object by itself.

use super::{Clusters, Space};

#[derive(Default)]
pub(super) struct Walked {
    /// Of the walk that began last.
    number: u64,
    bits: Vec<u64>,
}

impl Walked {
    pub(super) fn granted(&mut self, id: u32) {
        if let Some(word) = self.bits.get_mut(id as usize / 64) {
            *word &= !(1 << (id % 64));
        }
    }

    fn of(&mut self, number: u64, id: u32) -> Option<&mut u64> {
        self.bits.get_mut(id as usize / 64).filter(|_| self.number == number)
    }
}

impl Space {
    /// A walk begins; returns its number.
    pub(crate) fn begin_walk(&self) -> u64 {
        let mut clusters = self.clusters.lock();
        let Clusters { walked, states, .. } = &mut *clusters;
        walked.number += 1;
        walked.bits = vec![0; states.len().div_ceil(64)];
        walked.number
    }

    /// This walk is about to go through a cluster. False if objects are not read from it.
    pub(crate) fn goes_through(&self, id: u32, number: u64) -> bool {
        let mut clusters = self.clusters.lock();
        let is_read = clusters.states[id as usize].is_read();
        if let Some(word) = clusters.walked.of(number, id).filter(|_| is_read) {
            *word |= 1 << (id % 64);
        }
        is_read
    }

    /// It did not, after all.
    pub(crate) fn went_not_through(&self, id: u32, number: u64) {
        if let Some(word) = self.clusters.lock().walked.of(number, id) {
            *word &= !(1 << (id % 64));
        }
    }

    /// Whether this walk has gone through the cluster, as it has been since.
    pub(crate) fn went_through(&self, id: u32, number: u64) -> bool {
        self.clusters.lock().walked.of(number, id).is_some_and(|word| *word >> (id % 64) & 1 == 1)
    }
}
