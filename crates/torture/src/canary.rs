//! Canaries: stores broken on purpose. A harness that does not notice them proves nothing.

use crate::{
    plan::{Plan, Trouble},
    report::Violation,
    run::run,
    workload::operations,
};

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// Some deletes are acknowledged and not done.
    ForgetDelete,
    /// Some puts that replace are acknowledged and not done.
    ForgetReplacing,
    /// The devices acknowledge syncs and do not do them.
    SyncLies,
    /// A bit flips after the bytes were verified.
    FlipByte,
    /// Objects vanish.
    LoseObjects,
    /// More memory is used than was given.
    Gluttony,
}

impl Sabotage {
    /// All that a harness must notice.
    pub const ALL: [Self; 6] =
        [Self::ForgetDelete, Self::ForgetReplacing, Self::SyncLies, Self::FlipByte, Self::LoseObjects, Self::Gluttony];
}

/// Runs seeds until this sabotage is noticed, or there are none left.
#[must_use]
pub fn notice(sabotage: Sabotage, seeds: std::ops::Range<u64>, preset: &'static str) -> Option<Violation> {
    seeds.into_iter().find_map(|seed| {
        let plan = Plan { trouble: Trouble::Crashes, ..Plan::new(seed, None).with_preset(preset) };
        run(&plan, &operations(&plan), sabotage).err()
    })
}
