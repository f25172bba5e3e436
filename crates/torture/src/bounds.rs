//! What groups were told of how long their puts may be volatile.

/// How long the puts of each group may be volatile, as far as that is known.
#[derive(Default)]
pub(crate) struct GroupBounds {
    /// Milliseconds; `Some(None)` is for ever.
    pub(crate) set: [Option<Option<u64>>; 8],
    /// Set since the last flush, so that a crash may undo it.
    volatile: [bool; 8],
    /// A crash may have undone it.
    pub(crate) unknown: [bool; 8],
}

impl GroupBounds {
    pub(crate) fn flushed(&mut self) {
        self.volatile = Default::default();
    }

    pub(crate) fn crash(&mut self) {
        for (unknown, volatile) in self.unknown.iter_mut().zip(&mut self.volatile) {
            *unknown |= std::mem::take(volatile);
        }
    }

    /// A cache started empty, and what its groups were set to is gone as well.
    pub(crate) fn forget(&mut self) {
        self.unknown = self.set.map(|bound| bound.is_some());
    }

    pub(crate) fn change(&mut self, group: u32, bound: Option<u64>) {
        let at = group as usize % self.set.len();
        (self.set[at], self.volatile[at], self.unknown[at]) = (Some(bound), true, false);
    }
}
