//! What is done beside the verbs: making room, warming, verifying, and the threads that do it.

mod ahead;
mod contents;
pub(crate) mod daemons;
pub(crate) mod eviction;
pub(crate) mod full_store;
mod give_back;
pub(crate) mod reclaim;
pub(crate) mod room;
mod runs;
pub(crate) mod scrub;
pub(crate) mod survivors;
