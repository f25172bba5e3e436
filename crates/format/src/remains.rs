//! Telling a place that never held a store from one that lost its superblocks: a backup tool that zeroes the beginning
//! of a disk, a `dd` that was stopped. The first would be made a store at once, the second must not be.

use crate::{
    BLOCK, Corrupt, blocks, hot, journal,
    zone::{BEGINNING, BLOCKS_START, HOT, HOT_SLOT, JOURNAL_START},
};

/// Whether the first [`BEGINNING`] bytes of a place hold a hot log, a journal page or a home of blocks, intact or not.
/// No more of the place is looked at, so that clearing just this much is a way to start empty.
pub fn has_remains(beginning: &[u8]) -> bool {
    let known = |found: Corrupt| !matches!(found, Corrupt::Magic | Corrupt::Short);
    let at = |start: u64, len: u64| beginning.get(start as usize..(start + len) as usize).unwrap_or_default();
    let hot = |slot| hot::decode(at(HOT.start + slot * HOT_SLOT, HOT_SLOT)).map_or_else(known, |_| true);
    let page = |start| journal::decode_page(at(start, BLOCK as u64)).map_or_else(known, |_| true);
    let home = |slot| blocks::Home::claims(at(BLOCKS_START + slot * BLOCK as u64, BLOCK as u64));
    (0..2).any(hot) || (0..2).any(home) || (JOURNAL_START..BEGINNING.end()).step_by(BLOCK).any(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_page_or_a_hot_log_tells() {
        let mut bytes = vec![0; BEGINNING.len as usize];
        assert!(!has_remains(&bytes) && !has_remains(&[]), "blank");
        bytes[JOURNAL_START as usize..].fill(7);
        assert!(!has_remains(&bytes), "something else");
        let mut with_page = vec![0; BEGINNING.len as usize];
        let page = &mut with_page[JOURNAL_START as usize + BLOCK..][..BLOCK];
        journal::encode_page(page, 1, 0, 9, &[]);
        assert!(has_remains(&with_page));
        with_page[JOURNAL_START as usize + BLOCK + 100] ^= 1;
        assert!(has_remains(&with_page), "damaged, and known all the same");
        let mut with_hot = vec![0; BEGINNING.len as usize];
        hot::encode(&mut with_hot[(HOT.start + HOT_SLOT) as usize..][..HOT_SLOT as usize], 3, 9, &[]);
        assert!(has_remains(&with_hot));
    }
}
