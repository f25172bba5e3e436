//! A volume drawn as cells: what lies in each, and in how many parts those objects are.
//!
//! A cell says what takes most of it. There are so many cells at most, however large the volume and however many
//! extents: a page that shows it moves the same number of pixels for ten extents as for a million.

use std::io::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::DeflateEncoder};
use serde::{Deserialize, Serialize};

use super::extents::Extent;

/// Cells, at most.
const CELLS: u64 = 1 << 16;
/// Bytes of a cell, at least.
const LEAST: u64 = 4 << 10;
/// What is in a cell: nothing, or objects in one part, two, up to four, up to eight, or more.
const KINDS: usize = 6;

/// Cells of a volume, one byte each, packed for a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Bytes of a cell.
    pub cell: u64,
    /// How many there are.
    pub cells: u64,
    /// One byte each, from 0 (free) to 5 (objects in more than eight parts), deflated, in base 64.
    pub packed: String,
}

fn kind(parts: usize) -> usize {
    match parts {
        0 => 0,
        1 => 1,
        2 => 2,
        3..=4 => 3,
        5..=8 => 4,
        _ => 5,
    }
}

pub(super) fn draw(objects: &[&[Extent]], volume: u64) -> Map {
    let end = objects.iter().flat_map(|extents| *extents).map(|extent| extent.offset + extent.len).max().unwrap_or(0);
    let volume = volume.max(end);
    let cell = volume.div_ceil(CELLS).max(LEAST).next_power_of_two();
    let cells = volume.div_ceil(cell) as usize;
    let mut taken = vec![[0_u64; KINDS]; cells];
    for extents in objects {
        for extent in *extents {
            let (mut at, end) = (extent.offset, extent.offset + extent.len);
            while at < end {
                let here = (at / cell) as usize;
                let to = ((here as u64 + 1) * cell).min(end);
                taken[here][kind(extents.len())] += to - at;
                at = to;
            }
        }
    }
    let most = taken.iter().map(|kinds| {
        let used: u64 = kinds.iter().sum();
        let free = cell.saturating_sub(used);
        let (kind, bytes) = (0_u8..).zip(*kinds).skip(1).max_by_key(|one| one.1).unwrap_or((0, 0));
        if bytes > free { kind } else { 0 }
    });
    let bytes: Vec<u8> = most.collect();
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
    // Memory takes whatever it is given.
    let packed = packer.write_all(&bytes).and_then(|()| packer.finish()).unwrap_or_default();
    Map { cell, cells: cells as u64, packed: BASE64_STANDARD.encode(packed) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;

    fn cells(map: &Map) -> Vec<u8> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&BASE64_STANDARD.decode(&map.packed).unwrap()[..]).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_cell_says_what_takes_most_of_it() {
        let whole = [Extent { offset: 0, len: 8192 }];
        let two = [Extent { offset: 8192, len: 4096 }, Extent { offset: 20480, len: 1000 }];
        let map = draw(&[&whole, &two], 32768);
        assert_eq!((map.cell, map.cells), (4096, 8));
        assert_eq!(cells(&map), [1, 1, 2, 0, 0, 0, 0, 0], "a quarter of a cell is not most of it");
        let large = draw(&[], 400 << 30);
        assert!(large.cells <= CELLS && large.packed.len() < 1000, "{}", large.cells);
        let parts: Vec<Extent> = (0..9).map(|n| Extent { offset: n * 8192, len: 4096 }).collect();
        assert_eq!(cells(&draw(&[&parts], 1 << 16))[..3], [5, 0, 5], "what is beyond the volume has cells too");
    }
}
