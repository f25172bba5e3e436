//! What survives a crash: the journal, and checkpoints of the index.

pub(crate) mod checkpoint;
pub(crate) mod flush_queue;
pub(crate) mod hot;
pub(crate) mod journal;
pub(crate) mod known;
pub(crate) mod recorder;
pub(crate) mod unfinished;
