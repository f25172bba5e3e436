//! Which entries are known to be of large objects: a filter of as many bytes as there are clusters, beside the index,
//! whose entries have no bit left to say it.
//!
//! Invariant: the bit of a manifest's or chunk's hash is set before its entry can be seen, and never cleared; so an
//! entry that came to be in this opening, and whose bit is not set, is of a whole object. The device does not keep the
//! filter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use picaflor_format::frame::Kind;

pub(crate) struct Large {
    bits: Box<[AtomicU64]>,
    told_apart_by: u64,
}

impl Large {
    /// Bytes of it in memory.
    pub(crate) const BYTES_PER_CLUSTER: u64 = 1;

    /// For so many clusters; none where it is not asked for. `told_apart_by`: see [`crate::index::Index`].
    pub(crate) fn new(clusters: u32, told_apart_by: u64) -> Self {
        Self { bits: (0..clusters.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(), told_apart_by }
    }

    /// An entry of this hash comes to be.
    pub(crate) fn note(&self, hash: u64, kind: Kind) {
        if matches!(kind, Kind::Manifest | Kind::Chunk)
            && let Some((word, bit)) = self.place(hash)
        {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Whether an entry of this hash is known to be of a large object, or shares a bit with one that is.
    pub(crate) fn may_be(&self, hash: u64) -> bool {
        self.place(hash).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    fn place(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let mixed = (hash & self.told_apart_by).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let bit = (mixed * (64 * self.bits.len() as u64)) >> 32;
        Some((self.bits.get((bit / 64) as usize)?, 1 << (bit % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_may_be_large_and_most_others_are_not() {
        let apart = !0xff;
        let large = Large::new(1000, apart);
        let hash = |number: u64| number.wrapping_mul(0xd134_2543_de82_ef95);
        (0..1000)
            .for_each(|number| large.note(hash(number), if number % 2 == 0 { Kind::Manifest } else { Kind::Chunk }));
        (1000..2000).for_each(|number| large.note(hash(number), Kind::Whole));
        assert!((0..1000).all(|number| large.may_be(hash(number) ^ 0x5a)), "whichever key of the place it is");
        let others = (1000..11_000).filter(|number| large.may_be(hash(*number))).count();
        assert!(others < 2000, "an eighth or so: {others} of 10,000");
        let none = Large::new(0, apart);
        none.note(7, Kind::Chunk);
        assert!(!none.may_be(7));
    }
}
