//! Changes that a database commits together.

/// Counts the changes of the open transaction.
pub(super) struct Transactions {
    /// As [`super::Config::commit_every`].
    every: u32,
    open: u32,
}

impl Transactions {
    pub(super) fn new(every: u32) -> Self {
        Self { every, open: 0 }
    }

    /// Whether one begins with the next change.
    pub(super) fn begins(&self) -> bool {
        self.every != 1 && self.open == 0
    }

    /// Counts a change; whether the transaction ends with it.
    pub(super) fn ends(&mut self) -> bool {
        if self.every == 1 {
            return false;
        }
        self.open += 1;
        self.open == self.every && self.is_left()
    }

    /// Whether one is open, which is not from now on.
    pub(super) fn is_left(&mut self) -> bool {
        std::mem::take(&mut self.open) > 0
    }
}
