//! Names for blocks: a word to keep in an index, and the handle with what the header says.

use std::num::NonZeroU64;

use picaflor_format::blocks::Header;

const PLACE_BITS: u32 = 44;
const SIZE_MAX: u64 = (1 << (64 - PLACE_BITS)) - 1;

/// Where a block begins and how large it is, in one word of 8 bytes that is never 0: 44 bits of place, in grains, and
/// 20 bits of size, in grains; blocks of more than 1,048,574 grains are read with one device read more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(NonZeroU64);

impl Address {
    pub(super) fn new(at: u64, size: u32) -> Self {
        let size = if u64::from(size) < SIZE_MAX { u64::from(size) } else { 0 };
        // Grain 0 holds the homes.
        Self(NonZeroU64::new((size << PLACE_BITS) | at).unwrap_or(NonZeroU64::MIN))
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0.get()
    }

    /// The address in a word; none for 0.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }

    /// Grain at which the block begins.
    #[must_use]
    pub fn grain(self) -> u64 {
        self.word() & ((1 << PLACE_BITS) - 1)
    }

    /// Grains of the block; 0 if the word does not say.
    pub(super) fn size(self) -> u64 {
        self.word() >> PLACE_BITS
    }
}

/// An allocated block, as its header says. A handle grows stale when the block is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub(super) header: Header,
    pub(super) capacity: u64,
}

impl Block {
    /// The word to keep.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::new(self.header.at, self.header.size)
    }

    /// Bytes asked for, or last written.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a container")]
    pub fn len(&self) -> u64 {
        u64::from(self.header.len)
    }

    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether this is an area: see [`FreeLists::allocate_area`](super::FreeLists::allocate_area).
    #[must_use]
    pub fn is_area(&self) -> bool {
        self.header.flags & Header::AREA != 0
    }
}
