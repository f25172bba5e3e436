//! Pages of clusters on the device that are in memory.

use std::sync::atomic::Ordering::Relaxed;

use super::{Space, State};

pub(crate) struct Pages<'a>(&'a Space);

impl Space {
    pub(crate) fn pages(&self) -> Pages<'_> {
        Pages(self)
    }
}

impl Pages<'_> {
    /// A page of a cluster on the device comes into memory. Not if it is there already, or the cluster is not.
    pub(crate) fn claim(&self, id: u32, page: u32) -> bool {
        let mut guard = self.0.clusters.lock();
        let clusters = &mut *guard;
        if clusters.resident.is_empty() {
            clusters.resident = vec![0; clusters.states.len()];
        }
        let held = &mut clusters.resident[id as usize];
        let claims = clusters.states[id as usize].is_read() && *held >> page & 1 == 0;
        if claims {
            self.0.pages_held[0].fetch_add(1, Relaxed);
            self.0.pages_held[1].fetch_add(usize::from(*held == 0), Relaxed);
            *held |= 1 << page;
            clusters.set(id, State::Paged);
        }
        claims
    }

    /// The page has left memory.
    pub(crate) fn release(&self, id: u32, page: u32) {
        let mut guard = self.0.clusters.lock();
        let clusters = &mut *guard;
        let Some(held) = clusters.resident.get_mut(id as usize).filter(|held| **held >> page & 1 == 1) else { return };
        *held &= !(1 << page);
        let was_last = *held == 0;
        self.0.pages_held[0].fetch_sub(1, Relaxed);
        self.0.pages_held[1].fetch_sub(usize::from(was_last), Relaxed);
        if was_last {
            clusters.set(id, State::Sealed);
        }
    }

    /// Whether this page of a cluster on the device is not in memory.
    pub(crate) fn lacks(&self, id: u32, page: u32) -> bool {
        let clusters = self.0.clusters.lock();
        let held = clusters.resident.get(id as usize).copied().unwrap_or(0);
        clusters.states[id as usize].is_read() && held >> page & 1 == 0
    }

    /// Pages in memory, and clusters that they are of.
    pub(crate) fn held(&self) -> (usize, usize) {
        let [pages, clusters] = &self.0.pages_held;
        (pages.load(Relaxed), clusters.load(Relaxed))
    }
}
