//! A hash for tables that live in memory and hold what the lab made itself: keys of objects, addresses, paths. Quick,
//! and the same in every run; these keys are not chosen to make a table slow.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a table is made with.
pub(crate) type ByHash = BuildHasherDefault<Quick>;

#[derive(Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u8(&mut self, byte: u8) {
        // Behind each string stands one that says that it ends, which costs nothing this way.
        self.0 = self.0.wrapping_add(u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        // Addresses are one like the other in their low bits and in their high ones.
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
