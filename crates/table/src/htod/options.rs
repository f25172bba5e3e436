//! How hash tables are opened.

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1 << 16;

/// How hash tables are opened.
#[derive(Debug, Clone)]
pub struct HtodOptions {
    /// Bytes of index pages in memory; at least 16 pages are kept. Default 16 MiB.
    pub cache: usize,
    /// When a put or remove is durable. Default [`Durable::EachCall`].
    pub durable: Durable,
    /// Seed of the hash of a place that is made by this opening, for runs that are to repeat. Default random, so that
    /// a caller cannot choose keys that fall on one page.
    pub seed: Option<u64>,
    /// Where the entries of [`put_many`](super::Table::put_many) go. Default [`Batch::ByLists`].
    pub batch: Batch,
}

impl Default for HtodOptions {
    fn default() -> Self {
        Self { cache: 16 << 20, durable: Durable::EachCall, seed: None, batch: Batch::ByLists }
    }
}

/// Where the entries of one [`put_many`](super::Table::put_many) go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Batch {
    /// Where each would go if it were put alone.
    #[default]
    ByLists,
    /// Optimized batch allocation (Iyengar et al. 2003, section 2.5): the largest first, each where it fits best among
    /// free blocks of at least [`crate::blocks::BlockOptions::batch_threshold`], else the tail. Costs a sync more where
    /// entries share what was one free block.
    BestFit,
}

/// When a put or remove is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// When the call returns.
    #[default]
    EachCall,
    /// When the next [`commit`](super::HashTables::commit) returns. A crash before may leave any of the calls since the
    /// last one done or undone, each wholly.
    AtCommit,
}
