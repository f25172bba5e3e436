//! Purge is a durable sequence, not a deletion.
//!
//! 1. Each stored response keeps the number of the sequence that was the last when its fetch began, and its tags.
//! 2. A purge takes the next number, and is noted with what it selects: in memory, and as a pinned record of the store,
//!    which is durable before the purge is acknowledged and is never evicted.
//! 3. A stored response is valid if no purge that selects it has a larger number. So a fetch that a purge meets on its
//!    way, a response that could not be deleted, and what a crash brings back are all one case.
//!
//! A hit compares one number unless something that is still noted was purged after its fetch began. What is purged is
//! deleted afterwards, of a URL at once, of anything else by the [sweeper](sweep), so that its space is free and the
//! note can go: that costs no purge its acknowledgement.

pub(crate) mod asked;
pub(crate) mod marks;
pub(crate) mod record;
pub(crate) mod selector;
pub(crate) mod sequence;
pub(crate) mod sweep;
pub(crate) mod tags;
pub(crate) mod taking;
