//! Question 6, persistence, first part: the journal of what happened between checkpoints.
//!
//! Records wait in memory until a commit writes them, as whole new pages, before its sync. Deletes,
//! grants of clusters and group settings are all there is: objects are their own log.
//!
//! Invariants: a page of the ring is overwritten only when both checkpoints that are kept began after
//! it; a commit writes all records that were pending when it began, in one batch of pages.

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
    /// Deletes among `pending`.
    pub(crate) deletes: u64,
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
        Self { map, store, pending: Vec::new(), deletes: 0, next_page, current_start, previous_start }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.deletes += u64::from(matches!(record, Record::Delete { .. }));
        self.pending.push(record);
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

    /// Encodes everything pending into the next pages of the ring.
    pub(crate) fn take_pages(&mut self, pool: &BufPool) -> Pages {
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
        self.pending.clear();
        self.deletes = 0;
        pages
    }

    /// Records that no page has taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
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
        let most_next = self.pending.len() as u64 / RECORDS_MIN as u64 + 1;
        self.next_page - self.previous_start + most_next > self.map.journal_pages() * 3 / 4
    }

    /// A checkpoint that began at this page is committed.
    pub(crate) fn checkpointed(&mut self, start: u64) {
        self.previous_start = self.current_start;
        self.current_start = start;
    }
}
