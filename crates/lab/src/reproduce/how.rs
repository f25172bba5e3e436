//! How a paper is run.

use std::num::NonZero;

/// Told what is run, how many steps of it more are done, and of how many in all.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// How a paper is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// Runs at a time; as many as there are processors, if nothing is said.
    pub jobs: Option<NonZero<usize>>,
    /// A hundredth of everything: shows that it runs, and nothing else.
    pub quick: bool,
    /// This part of the paper alone.
    pub only: Option<Part>,
    /// Added to each seed of the paper's runs.
    pub seed: u64,
}

impl How {
    /// Whether the runs are wanted that have the claim of this id.
    pub(super) fn wants(self, id: &str) -> bool {
        self.only.is_none_or(|part| part.ids().contains(&id))
    }
}

/// A part of a paper's runs, by the ids of its claims: those of a part are taken from the same runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(pub(super) &'static [&'static str]);

impl Part {
    /// The ids of its claims.
    #[must_use]
    pub fn ids(self) -> &'static [&'static str] {
        self.0
    }
}
