//! The hot log: where the most used objects lie, so that they are read first after a restart.
//!
//! ```text
//! 0      4    8    16     24     28    32
//! magic  crc  seq  store  count  zero  locations, 8 bytes each
//! ```
//!
//! Invariants: two slots written alternately; losing one costs warmth, never correctness, since every
//! location is checked against the index before its object is served.

use crate::{
    Corrupt,
    codec::{check, put, seal, u32_at, u64_at},
    zone::HOT_SLOT,
};

const MAGIC: u32 = u32::from_le_bytes(*b"PFht");
const HEADER: usize = 32;

/// Most locations that one hot log holds.
pub const CAPACITY: usize = (HOT_SLOT as usize - HEADER) / 8;

/// Fills a slot with the first [`CAPACITY`] locations.
pub fn encode(slot: &mut [u8], seq: u64, store: u64, locations: &[u64]) {
    let slot = &mut slot[..HOT_SLOT as usize];
    slot.fill(0);
    let locations = &locations[..locations.len().min(CAPACITY)];
    for (i, location) in locations.iter().enumerate() {
        put(slot, HEADER + i * 8, location.to_le_bytes());
    }
    put(slot, 8, seq.to_le_bytes());
    put(slot, 16, store.to_le_bytes());
    put(slot, 24, (locations.len() as u32).to_le_bytes());
    seal(slot, MAGIC);
}

/// Reads a slot: its sequence number, the store's identity, and the locations.
///
/// # Errors
/// [`Corrupt`] for anything but an intact slot.
pub fn decode(slot: &[u8]) -> Result<(u64, u64, Vec<u64>), Corrupt> {
    let slot = slot.get(..HOT_SLOT as usize).ok_or(Corrupt::Short)?;
    check(slot, MAGIC)?;
    let count = u32_at(slot, 24) as usize;
    if count > CAPACITY {
        return Err(Corrupt::Field("count"));
    }
    let locations = (0..count).map(|i| u64_at(slot, HEADER + i * 8)).collect();
    Ok((u64_at(slot, 8), u64_at(slot, 16), locations))
}
