//! Puts in pieces beside each other, in a store that is nearly full: each holds room before all of its object is
//! there, and each may be refused for what the others hold, which is free again once they are refused.
//!
//! Steps: a put in pieces enters → one that finds the store full while others are in is tried once more alone, when
//! those are over. So the store is full only for a put that had it for itself.
//!
//! Invariants: a put that waits to be alone holds no piece; a put that was alone the first time is not tried again.
//! Streams and puts of tasks do not enter: they may last as long as their callers like.

use parking_lot::RwLock;
use picaflor_common::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::{Error, Result};

/// The puts in pieces of a store.
#[derive(Default)]
pub(crate) struct Beside {
    alone: RwLock<()>,
    /// Those that are in, or wait to be alone.
    inside: AtomicUsize,
}

/// Counts one out again, also when its put panics.
struct Inside<'a>(&'a AtomicUsize);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Beside {
    /// A put in pieces; `afresh` is called before it is tried once more.
    pub(crate) fn put<T>(&self, afresh: impl Fn(), put: impl Fn() -> Result<T>) -> Result<T> {
        let _inside = self.enter();
        let first = {
            let _beside = self.alone.read();
            put()
        };
        self.again(first, 1, afresh, put)
    }

    /// What a put came to, or, if it found the store full while more than `own` were in, what it comes to alone.
    pub(crate) fn again<T>(
        &self,
        first: Result<T>,
        own: usize,
        afresh: impl Fn(),
        put: impl Fn() -> Result<T>,
    ) -> Result<T> {
        match first {
            Err(Error::Full { .. }) if self.inside.load(SeqCst) > own => {
                let _alone = self.alone.write();
                afresh();
                put()
            }
            first => first,
        }
    }

    fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, SeqCst);
        Inside(&self.inside)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Barrier, atomic::AtomicU64},
        thread,
    };

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
        assert!(matches!(beside.again(put(), 0, || (), put), Err(Error::Full { .. })));
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
