//! Where index pages are, by arithmetic: linear hashing, and the extents that hold the pages.
//!
//! Invariants: with `pages` pages a hash belongs to one of them; page `n`, when it is made, takes what belongs to
//! it from its parent alone; page `n` lies in the same place of the same extent however many pages there are.
//!
//! An extent is an eighth of a doubling, so at most an eighth of the index is space that waits for pages.

/// log2 of the extents that one doubling is made in, where it has so many pages.
const SPREAD: u32 = 3;

/// Most pages of a table: sectors are numbered with 32 bits.
pub(super) const MOST_PAGES: u64 = 1 << 29;

/// The page that a hash belongs to.
pub(super) fn page_of(hash: u64, pages: u64) -> u64 {
    let below = 1u64 << pages.ilog2();
    let wide = hash & (2 * below - 1);
    if wide < pages { wide } else { hash & (below - 1) }
}

/// The page whose keys are divided when page `page` is made. Page 0 is not made so.
pub(super) fn parent(page: u64) -> u64 {
    page - (1 << page.ilog2())
}

/// The pages that hold what `page` held when there were `known` pages, itself first.
pub(super) fn offspring(page: u64, known: u64, pages: u64) -> Vec<u64> {
    let mut family = vec![page];
    let mut next = 0;
    while let Some(&of) = family.get(next) {
        let first = if of == 0 { 0 } else { of.ilog2() + 1 };
        let made = (first..u64::BITS).map(|bit| of + (1 << bit)).take_while(|&made| made < pages);
        family.extend(made.filter(|&made| made >= known));
        next += 1;
    }
    family
}

/// The extent that a page lies in, and its place there in pages.
pub(super) fn extent_of(page: u64) -> (usize, u64) {
    if page < 1 << SPREAD {
        return (page as usize, 0);
    }
    let level = page.ilog2();
    let within = page - (1 << level);
    let shift = level - SPREAD;
    let extent = (u64::from(shift) + 1) << SPREAD | within >> shift;
    (extent as usize, within & ((1 << shift) - 1))
}

/// Pages of an extent.
pub(super) fn extent_pages(extent: usize) -> u64 {
    1 << (extent >> SPREAD).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_hold_each_page_once_and_in_order() {
        let mut expected = (0, 0);
        for page in 0..1 << 14 {
            assert_eq!(extent_of(page), expected, "page {page}");
            expected.1 += 1;
            if expected.1 == extent_pages(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(extent_of(MOST_PAGES - 1).0 < picaflor_format::htod::EXTENTS);
    }

    #[test]
    fn a_new_page_takes_from_its_parent_alone() {
        for pages in 1..300 {
            for hash in 0..2048u64 {
                let (before, after) = (page_of(hash, pages), page_of(hash, pages + 1));
                assert!(before < pages);
                assert!(after == before || after == pages && before == parent(pages), "{hash} of {pages}");
            }
        }
    }

    #[test]
    fn offspring_holds_what_the_page_held() {
        for (known, pages) in [(1, 40), (5, 6), (7, 7), (13, 64)] {
            for hash in 0..4096u64 {
                let family = offspring(page_of(hash, known), known, pages);
                assert!(family.contains(&page_of(hash, pages)));
            }
        }
    }
}
