//! When the places that entries lead to on the device were given last: see `space/ring/grants.rs`.

use picaflor_format::{frame::GRAIN, zone::SLOT};

use super::Catalog;

pub(crate) struct Grants<'a>(&'a Catalog);

impl Catalog {
    /// When the places that entries lead to on the device were given last.
    pub(crate) fn grants(&self) -> Grants<'_> {
        Grants(self)
    }
}

impl Grants<'_> {
    fn place(&self, grain: u64) -> u32 {
        let cluster = if self.0.places.is_none() { self.0.medium.cluster_of(grain) } else { None };
        cluster.unwrap_or((grain * GRAIN as u64 / SLOT) as u32)
    }

    /// Of the place at this grain. What is read there between two calls that say the same, the first of them before a
    /// look at an entry that leads there, is what the entry leads to.
    pub(crate) fn last(&self, grain: u64) -> u32 {
        self.0.space.grants.last(self.place(grain))
    }

    /// The place at this grain is given to what the index is about to lead to.
    pub(crate) fn note(&self, grain: u64) {
        self.0.space.grants.note(self.place(grain));
    }
}
