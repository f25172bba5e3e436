//! Random choices from a seed, by a generator (splitmix64) whose sequence will never change, so that a seed in
//! a bug report keeps its meaning.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Stream number `stream` of this seed. Streams of one seed have nothing to do with each other.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        // Apart from here on, however close the seeds and streams are.
        dice.0 = dice.roll();
        dice
    }

    /// The next 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in this many of 100 cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Puts these into any order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// A number whose logarithm is even between those of `low` and `high`: small ones are as likely as large ones.
    pub fn scaled(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let doublings = (high / low).max(1).ilog2() + 1;
        let step = self.below(u64::from(doublings)) as u32;
        let from = low << step;
        self.between(from.min(high), (from * 2).min(high))
    }
}

/// `len` bytes that only `id` has, whatever their length beyond eight.
#[must_use]
pub fn bytes_of(id: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(id, 0xb0d1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&dice.roll().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_never_changes() {
        let mut dice = Dice::new(42, 1);
        assert_eq!([dice.roll(), dice.roll()], [0xfb8f_e914_77c0_fe78, 0x7dc0_dc58_6409_6015]);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut dice = Dice::new(1, 1);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&dice.between(3, 9)));
            assert!((100..=70_000).contains(&dice.scaled(100, 70_000)));
            assert!(dice.below(5) < 5);
        }
        assert_eq!(dice.below(0), 0);
    }
}
