//! A clock that moves only when a wait ends by its time limit.

use std::{cell::Cell, ops::Add, time::Duration};

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Time passes.
pub(crate) fn pass(time: Duration) {
    NOW.set(NOW.get().saturating_add(time));
}

/// As in the standard library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The time.
    #[must_use]
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// The time between.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
