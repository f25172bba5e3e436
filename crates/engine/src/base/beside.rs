//! Puts in pieces beside each other, in a store that is nearly full: each holds room before all of its object is
//! there, and each may be refused for what the others hold, which is free again once they are refused.
//!
//! Steps: a put in pieces enters → a put that finds the store full, with others in before it was over, is tried once
//! more alone, when those are over. So the store is full only for a put that had it for itself.
//!
//! Invariants: a put that waits to be alone holds no piece; a put that was alone the first time is not tried again.
//! Puts of tasks are counted, and tried once more by a thread; but none waits for them, nor for streams: these may last
//! as long as their callers like.

use parking_lot::RwLock;
use picaflor_common::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use crate::{Error, Result};

/// The puts in pieces of a store.
#[derive(Default)]
pub(crate) struct Beside {
    alone: RwLock<()>,
    /// Those that are in, or wait to be alone.
    inside: AtomicUsize,
    /// How many ever were.
    entered: AtomicU64,
}

/// What a put knows of those beside it; counts it out again, also when it panics.
pub(crate) struct Inside<'a> {
    beside: &'a Beside,
    /// Itself, if it is in pieces.
    own: usize,
    /// Whether others were in when it began.
    had_others: bool,
    /// How many had ever been in then, itself among them.
    entered: u64,
}

impl Inside<'_> {
    /// Whether this came of what others held while it was tried.
    pub(crate) fn is_in_vain<T>(&self, put: &Result<T>) -> bool {
        let Beside { inside, entered, .. } = self.beside;
        let was_beside = || self.had_others || inside.load(SeqCst) > self.own || entered.load(SeqCst) != self.entered;
        matches!(put, Err(Error::Full { .. })) && was_beside()
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.beside.inside.fetch_sub(self.own, SeqCst);
    }
}

impl Beside {
    /// A put in pieces; `afresh` is called before it is tried once more.
    pub(crate) fn put<T>(&self, afresh: impl Fn(), put: impl Fn() -> Result<T>) -> Result<T> {
        let inside = self.enter();
        let first = {
            let _beside = self.alone.read();
            put()
        };
        self.again(&inside, first, afresh, put)
    }

    /// A put in one piece, which others do not wait for.
    pub(crate) fn put_whole<T>(&self, afresh: impl Fn(), put: impl Fn() -> Result<T>) -> Result<T> {
        let inside = self.watch();
        self.again(&inside, put(), afresh, put)
    }

    fn again<T>(
        &self,
        inside: &Inside<'_>,
        first: Result<T>,
        afresh: impl Fn(),
        put: impl Fn() -> Result<T>,
    ) -> Result<T> {
        if !inside.is_in_vain(&first) {
            return first;
        }
        let _alone = self.alone.write();
        afresh();
        put()
    }

    /// A put of a task, in pieces.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let had_others = self.inside.fetch_add(1, SeqCst) > 0;
        Inside { beside: self, own: 1, had_others, entered: self.entered.fetch_add(1, SeqCst) + 1 }
    }

    /// The same in one piece.
    pub(crate) fn watch(&self) -> Inside<'_> {
        Inside { beside: self, own: 0, had_others: self.inside.load(SeqCst) > 0, entered: self.entered.load(SeqCst) }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    fn full() -> Error {
        Error::full(10, 5)
    }

    #[test]
    fn a_put_that_was_alone_is_not_tried_again() {
        let (beside, tries) = (Beside::default(), AtomicU64::new(0));
        let put = || -> Result<()> {
            tries.fetch_add(1, SeqCst);
            Err(full())
        };
        assert!(matches!(beside.put(|| (), put), Err(Error::Full { .. })));
        assert!(matches!(beside.put_whole(|| (), put), Err(Error::Full { .. })));
        assert_eq!(tries.load(SeqCst), 2);
    }

    #[test]
    fn a_put_is_tried_again_after_others_that_are_gone_when_it_fails() {
        let (beside, tries) = (Beside::default(), AtomicU64::new(0));
        let put = || {
            if tries.fetch_add(1, SeqCst) > 0 {
                return Ok(());
            }
            drop(beside.enter());
            Err(full())
        };
        beside.put(|| (), put).unwrap();
        tries.store(0, SeqCst);
        beside.put_whole(|| (), put).unwrap();
        assert_eq!(tries.load(SeqCst), 2);
    }

    #[test]
    fn puts_that_are_in_each_others_way_come_one_after_the_other() {
        let (beside, barrier, held, most) = (Beside::default(), Barrier::new(4), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let first = AtomicUsize::new(0);
                    let put = || {
                        if first.fetch_add(1, SeqCst) == 0 {
                            // All have a piece, and none finds room for the next.
                            barrier.wait();
                            return Err(full());
                        }
                        most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                        thread::yield_now();
                        held.fetch_sub(1, SeqCst);
                        Ok(())
                    };
                    beside.put(|| (), put).unwrap();
                });
            }
        });
        assert_eq!((most.load(SeqCst), beside.inside.load(SeqCst)), (1, 0));
    }
}
