//! Ghosts: hashes of objects that left the small queue unused, remembered for about as long as main
//! takes to turn over.
//!
//! A direct-mapped table of 32-bit fingerprints: a newer ghost takes the place of an older one, which
//! forgets in roughly FIFO order at four bytes each.

pub(crate) struct Ghosts {
    table: Box<[u32]>,
}

impl Ghosts {
    /// A table with room for about `objects` ghosts: two places each, so that few push each other out.
    pub(crate) fn new(objects: u64) -> Self {
        let places = (objects * 2).clamp(1, 1 << 20).next_power_of_two() as usize;
        Self { table: vec![0; places].into() }
    }

    fn spot(&mut self, hash: u64) -> (&mut u32, u32) {
        let at = hash as usize & (self.table.len() - 1);
        (&mut self.table[at], (hash >> 32) as u32 | 1)
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let (place, print) = self.spot(hash);
        *place = print;
    }

    /// Whether this hash is a ghost; if so, it is one no longer.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        let (place, print) = self.spot(hash);
        let found = *place == print;
        if found {
            *place = 0;
        }
        found
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.table) as u64
    }
}
