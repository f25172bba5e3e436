//! Question 6, persistence, first part: the journal of what happened between checkpoints.
//!
//! Records wait in memory until a commit writes them, as whole new pages, before its sync. Deletes,
//! grants of clusters and group settings are all there is: objects are their own log.
//!
//! Invariants: a page of the ring is overwritten only when both checkpoints that are kept began after it, and what
//! would overwrite another is refused; the last quarter of the ring is for the commits of checkpoints, which free
//! pages; a commit writes all records that were pending when it began, in one batch of pages; a delete's page is never
//! before the page that tells of the cluster in which the deleted object may lie.

use picaflor_device::{AlignedBuf, BufPool};
use picaflor_format::{
    BLOCK,
    journal::{RECORDS_MIN, Record, encode_page},
    zone::Map,
};

pub(crate) struct Journal {
    map: Map,
    store: u64,
    pending: Vec<Record>,
    /// Deletes among `pending`, and those that a commit has taken and not made durable yet.
    deletes: u64,
    taken: u64,
    next_page: u64,
    /// First page that the newest checkpoint needs.
    current_start: u64,
    /// First page that the older one needs.
    previous_start: u64,
}

/// Pages to write: device offset and bytes.
pub(crate) type Pages = Vec<(u64, AlignedBuf)>;

impl Journal {
    pub(crate) fn new(map: Map, store: u64, next_page: u64, current_start: u64, previous_start: u64) -> Self {
        Self { map, store, pending: Vec::new(), deletes: 0, taken: 0, next_page, current_start, previous_start }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.deletes += u64::from(matches!(record, Record::Delete { .. }));
        self.pending.push(record);
    }

    /// Takes what another one was told and has not written.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        other.pending.drain(..).for_each(|record| self.push(record));
    }

    /// Deletes that a crash may cost.
    pub(crate) fn volatile_deletes(&self) -> u64 {
        self.deletes + self.taken
    }

    /// What is pending is durable with the commit that begins now, and no page has to say so. Until then its deletes
    /// are volatile: a caller that asks meanwhile waits for a commit too.
    pub(crate) fn take_untold(&mut self) {
        self.pending.clear();
        self.taken += std::mem::take(&mut self.deletes);
    }

    /// The commit that took records is complete.
    pub(crate) fn settle(&mut self) {
        self.taken = 0;
    }

    /// The page, or a later one, that will tell of the last record pushed.
    pub(crate) fn page_of_last(&self) -> u64 {
        self.next_page + self.pending.len() as u64 / RECORDS_MIN as u64
    }

    /// First page that any recovery reads.
    pub(crate) fn start(&self) -> u64 {
        self.previous_start
    }

    pub(crate) fn next_page(&self) -> u64 {
        self.next_page
    }

    /// Drops the records that are pending, which no page needs; deletes are counted on.
    pub(crate) fn forget(&mut self) {
        self.pending.clear();
    }

    /// Records that no page has taken yet: what a commit that begins now has to write.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Pages that what is pending takes at most.
    fn pending_pages(&self) -> u64 {
        (self.pending.len() as u64).div_ceil(RECORDS_MIN as u64)
    }

    /// Whether so much is pending that its commit should not wait: an eighth of the ring.
    pub(crate) fn is_long(&self) -> bool {
        self.pending_pages() > self.map.journal_pages() / 8
    }

    /// Whether a commit overwrites no page that is needed, be it one of a checkpoint, which may use all of the ring but
    /// `pages`. What is told while it gathers is kept room for.
    pub(crate) fn has_room(&self, pages: u64) -> bool {
        let ring = self.map.journal_pages();
        self.next_page - self.previous_start + self.pending_pages() + pages + ring / 16 <= ring
    }

    /// Whether a commit of puts and deletes may go on though checkpoints did not free enough: an eighth of the ring is
    /// left for those that come.
    pub(crate) fn has_room_for_puts(&self) -> bool {
        self.has_room(self.map.journal_pages() / 8)
    }

    /// Encodes what is pending into the next pages of the ring. Of what came after the first `begun` records,
    /// grants only: a delete that came later may be of an object in a buffer that this commit has passed by, and
    /// goes with the grant of its cluster or after it. None, and nothing was taken, if that would overwrite a page that
    /// is needed.
    pub(crate) fn take_pages(&mut self, begun: usize, pool: &BufPool) -> Option<Pages> {
        if self.next_page - self.previous_start + self.pending_pages() > self.map.journal_pages() {
            return None;
        }
        let mut later = self.pending.split_off(begun.min(self.pending.len()));
        self.pending.extend(later.extract_if(.., |record| !matches!(record, Record::Delete { .. })));
        let mut pages: Pages = Vec::new();
        let mut rest = &self.pending[..];
        let mut batch = 0;
        while !rest.is_empty() {
            let mut page = pool.take(BLOCK);
            let taken = encode_page(&mut page, self.next_page, batch, self.store, rest);
            rest = &rest[taken..];
            pages.push((self.map.journal_page(self.next_page), page));
            self.next_page += 1;
            batch = batch.saturating_add(1);
        }
        self.pending = later;
        let left = self.pending.len() as u64;
        self.taken += self.deletes - left;
        self.deletes = left;
        Some(pages)
    }

    /// Pages that recovery may need, and pages in the ring.
    pub(crate) fn pages(&self) -> (u64, u64) {
        (self.next_page - self.previous_start, self.map.journal_pages())
    }

    /// Whether a checkpoint should begin: a quarter of the ring since the last one.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.next_page - self.current_start > self.map.journal_pages() / 4
    }

    /// Whether the next commit might overwrite a page that is needed, so that checkpoints come first.
    pub(crate) fn is_tight(&self) -> bool {
        self.next_page - self.previous_start + self.pending_pages() + 1 > self.map.journal_pages() * 3 / 4
    }

    /// A checkpoint that began at this page is committed.
    pub(crate) fn checkpointed(&mut self, start: u64) {
        self.previous_start = self.current_start;
        self.current_start = start;
    }
}

#[cfg(test)]
mod tests {
    use picaflor_format::journal::decode_page;

    use super::*;

    #[test]
    fn a_delete_that_comes_while_a_commit_gathers_waits_for_the_next() {
        let map = Map::new(64 << 20, 256 << 10).unwrap();
        let mut journal = Journal::new(map, 7, 1, 1, 1);
        let delete = |generation| Record::Delete { hash: 9, generation };
        journal.push(delete(1));
        let begun = journal.pending();
        journal.push(delete(2));
        journal.push(Record::Reserve { cluster: 3, seq: 4 });
        let records = |pages: Pages| -> Vec<Record> {
            pages.iter().flat_map(|(_, page)| decode_page(page).unwrap().records).collect()
        };
        let pool = BufPool::new(1 << 20);
        assert_eq!(
            records(journal.take_pages(begun, &pool).unwrap()),
            [delete(1), Record::Reserve { cluster: 3, seq: 4 }]
        );
        assert_eq!((journal.pending(), journal.deletes), (1, 1));
        assert_eq!(records(journal.take_pages(journal.pending(), &pool).unwrap()), [delete(2)]);
        assert_eq!(journal.deletes, 0);
    }

    #[test]
    fn no_page_that_a_checkpoint_needs_is_overwritten() {
        let map = Map::new(64 << 20, 256 << 10).unwrap();
        let (mut journal, pool) = (Journal::new(map, 7, 1, 1, 1), BufPool::new(1 << 20));
        let commit = |journal: &mut Journal| {
            journal.push(Record::Delete { hash: 9, generation: 1 });
            journal.take_pages(usize::MAX, &pool).is_some()
        };
        let (mut tight, mut puts, mut any) = (0, 0, 0);
        while commit(&mut journal) {
            (tight, puts) = (tight + u64::from(!journal.is_tight()), puts + u64::from(journal.has_room_for_puts()));
            any += 1;
        }
        assert_eq!(any, map.journal_pages());
        assert!(tight < puts && puts < any, "{tight}, {puts}, {any}");
        assert!(!journal.has_room(0));
        // One checkpoint frees nothing, for the one before is kept too.
        journal.checkpointed(40);
        assert!(!commit(&mut journal));
        journal.checkpointed(journal.next_page());
        assert!(commit(&mut journal) && journal.has_room(0));
    }
}
