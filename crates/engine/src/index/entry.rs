//! One index entry: 64 bits that say where an object is.
//!
//! ```text
//! 63      47 46          11 10      4 3         2        1    0
//! | tag 17 | address 36    | size 7  | displaced | memory | use 2 |
//! ```
//!
//! - **tag**: the low bits of the key's 24-bit place in its segment; with the bucket's number they give
//!   back all 24, so that a segment can grow without reading a key (quotienting).
//! - **address**: in grains; of the device, or, when `memory` is set, buffer number and offset in it.
//! - **size**: length in grains as a small float with 3 bits of mantissa, rounded up: a read covers the
//!   frame and at most 12.5% more.
//! - **displaced**: lies in its other bucket.
//! - **use**: how often it was asked for since it was placed, up to 3.
//!
//! The entry 0 is an empty slot: a real entry has a size, which is never 0.

/// Bits of a key's place within its segment.
pub(crate) const PLACE_BITS: u32 = 24;
const TAG_BITS: u32 = 17;
const ADDRESS_BITS: u32 = 36;
const TAG_SHIFT: u32 = 47;
const ADDRESS_SHIFT: u32 = 11;
const SIZE_SHIFT: u32 = 4;
const DISPLACED: u64 = 1 << 3;
const MEMORY: u64 = 1 << 2;
const USE: u64 = 3;

/// Fewest buckets with which a tag and a bucket number still give back the place.
pub(crate) const BUCKETS_MIN: usize = 1 << (PLACE_BITS - TAG_BITS);

/// Bits of a buffer's offset, in grains, inside a memory address.
const OFFSET_BITS: u32 = 16;

const _: () = assert!(TAG_BITS + ADDRESS_BITS + 7 + 4 == 64);

/// Where an object is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// In a buffer: its number and the frame's offset in grains.
    Buffered { slot: u32, offset: u32 },
    /// On the device: grains from its start.
    OnDisk { grain: u64 },
}

impl Location {
    fn bits(self) -> u64 {
        match self {
            Self::Buffered { slot, offset } => {
                debug_assert!(u64::from(offset) < 1 << OFFSET_BITS);
                ((u64::from(slot) << OFFSET_BITS | u64::from(offset)) << ADDRESS_SHIFT) | MEMORY
            }
            Self::OnDisk { grain } => {
                debug_assert!(grain < 1 << ADDRESS_BITS);
                grain << ADDRESS_SHIFT
            }
        }
    }
}

/// Largest number of grains a device may have: 4 TiB with 64-byte grains.
pub(crate) const GRAINS_MAX: u64 = 1 << ADDRESS_BITS;
/// Most buffers that can be told apart.
pub(crate) const SLOTS_MAX: usize = 1 << (ADDRESS_BITS - OFFSET_BITS);

/// An index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry(pub(crate) u64);

impl IndexEntry {
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn new(place: u32, location: Location, grains: u32) -> Self {
        Self(u64::from(Self::tag_of(place)) << TAG_SHIFT | location.bits() | u64::from(size_code(grains)) << SIZE_SHIFT)
    }

    /// What of a place an entry keeps.
    pub(crate) fn tag_of(place: u32) -> u32 {
        place & ((1 << TAG_BITS) - 1)
    }

    pub(crate) fn tag(self) -> u32 {
        (self.0 >> TAG_SHIFT) as u32
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the entry may be the one for a key at this place.
    pub(crate) fn matches(self, place: u32, displaced: bool) -> bool {
        !self.is_empty() && self.tag() == Self::tag_of(place) && self.is_displaced() == displaced
    }

    pub(crate) fn location(self) -> Location {
        let address = (self.0 >> ADDRESS_SHIFT) & ((1 << ADDRESS_BITS) - 1);
        if self.0 & MEMORY == 0 {
            Location::OnDisk { grain: address }
        } else {
            Location::Buffered {
                slot: (address >> OFFSET_BITS) as u32,
                offset: (address & ((1 << OFFSET_BITS) - 1)) as u32,
            }
        }
    }

    /// The same entry elsewhere.
    pub(crate) fn at(self, location: Location) -> Self {
        let keep = !((((1 << ADDRESS_BITS) - 1) << ADDRESS_SHIFT) | MEMORY);
        Self(self.0 & keep | location.bits())
    }

    /// Length of the frame in grains, rounded up to what the size code can say.
    pub(crate) fn grains(self) -> u32 {
        size_of_code((self.0 >> SIZE_SHIFT & 0x7f) as u32)
    }

    /// Whether a frame of so many grains may be the one that was entered.
    pub(crate) fn is_of_grains(self, grains: u32) -> bool {
        self.grains() == size_of_code(size_code(grains))
    }

    pub(crate) fn is_displaced(self) -> bool {
        self.0 & DISPLACED != 0
    }

    pub(crate) fn displaced(self, displaced: bool) -> Self {
        Self(if displaced { self.0 | DISPLACED } else { self.0 & !DISPLACED })
    }

    pub(crate) fn uses(self) -> u32 {
        (self.0 & USE) as u32
    }

    pub(crate) fn with_uses(self, uses: u32) -> Self {
        Self(self.0 & !USE | u64::from(uses.min(3)))
    }

    /// Equal but for the use bits, which gets change without a lock that puts hold.
    pub(crate) fn same(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(USE | DISPLACED) == 0
    }

    /// The 24-bit place, given the bucket that the entry belongs to and the number of buckets.
    pub(crate) fn place(self, home: usize, buckets: usize) -> u32 {
        let tag = self.tag();
        // First place of the bucket; the place is the only one in the bucket's range with these low bits.
        let first = ((home as u64) << PLACE_BITS).div_ceil(buckets as u64) as u32;
        let candidate = first & !((1 << TAG_BITS) - 1) | tag;
        if candidate < first { candidate + (1 << TAG_BITS) } else { candidate }
    }
}

/// Smallest code whose size is at least `grains`.
fn size_code(grains: u32) -> u32 {
    let grains = grains.max(1);
    if grains < 16 {
        return grains;
    }
    let exponent = 31 - 3 - grains.leading_zeros();
    let mantissa = grains.div_ceil(1 << exponent);
    // A mantissa that rounds up to 16 is 8 of the next exponent; the codes are contiguous.
    (exponent << 3) + mantissa
}

fn size_of_code(code: u32) -> u32 {
    if code < 16 { code } else { (8 + (code & 7)) << ((code >> 3) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_codes_round_up_by_at_most_an_eighth() {
        for grains in (1..5000).chain((1..100_000).step_by(37)).chain([65_535, 65_536]) {
            let code = size_code(grains);
            assert!(code < 128, "{grains}");
            let back = size_of_code(code);
            assert!(back >= grains && u64::from(back) * 8 <= u64::from(grains) * 9 + 8, "{grains} -> {back}");
        }
    }

    #[test]
    fn tag_and_bucket_give_back_the_place() {
        for buckets in [BUCKETS_MIN, 133, 200, 512, 4096] {
            for place in (0..1 << PLACE_BITS).step_by(997) {
                let home = ((place as u64 * buckets as u64) >> PLACE_BITS) as usize;
                let entry = IndexEntry::new(place, Location::OnDisk { grain: 7 }, 3);
                assert_eq!(entry.place(home, buckets), place);
            }
        }
    }

    #[test]
    fn locations_survive() {
        let spots = [
            Location::OnDisk { grain: GRAINS_MAX - 1 },
            Location::Buffered { slot: 77, offset: 65_535 },
            Location::Buffered { slot: 0, offset: 0 },
        ];
        for spot in spots {
            let entry = IndexEntry::new(12345, spot, 100).with_uses(2);
            assert_eq!(entry.location(), spot);
            assert_eq!(entry.at(Location::OnDisk { grain: 5 }).location(), Location::OnDisk { grain: 5 });
            assert_eq!(entry.uses(), 2);
        }
    }
}
