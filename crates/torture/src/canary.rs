//! Canaries: stores broken on purpose. A harness that does not notice them proves nothing.

use picaflor::Mode;
use picaflor_format::zone::Map;

use crate::{
    plan::{Plan, Trouble},
    report::{Tally, Violation},
    run::{Run, run},
    trouble,
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
    /// Some deletes drop another key too.
    DeleteAnother,
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
    /// An opening only to look shows a version that was replaced.
    ReplacedReadOnly,
    /// An opening only to look shows what was deleted.
    DeletedReadOnly,
    /// A device that works writes over its own journal while another one fails.
    OverrunJournal,
    /// The audit says nothing of damage.
    CheckIsBlind,
    /// The audit calls damaged what is not.
    CheckCriesWolf,
    /// Some pinned records are acknowledged and not set.
    ForgetPin,
    /// What is there is let pass as missing, for a reason that holds now and then.
    OveruseExcuse,
}

impl Sabotage {
    /// All that a harness must notice.
    pub const ALL: [Self; 14] = [
        Self::ForgetDelete,
        Self::DeleteAnother,
        Self::ForgetReplacing,
        Self::SyncLies,
        Self::FlipByte,
        Self::LoseObjects,
        Self::Gluttony,
        Self::ReplacedReadOnly,
        Self::DeletedReadOnly,
        Self::OverrunJournal,
        Self::CheckIsBlind,
        Self::CheckCriesWolf,
        Self::ForgetPin,
        Self::OveruseExcuse,
    ];

    /// Whether a row of this name can be broken so.
    #[must_use]
    pub fn fits(self, preset: &'static str) -> bool {
        let plan = Plan::new(0, None).with_preset(preset);
        match self {
            Self::OverrunJournal => plan.takes_several(),
            Self::CheckIsBlind => !plan.hides_damage(),
            Self::ForgetPin => plan.has_pins(),
            _ => true,
        }
    }

    /// The plan of this seed in which it shows.
    fn plan(self, seed: u64, preset: &'static str) -> Plan {
        let plan = |mode| Plan::new(seed, mode).with_preset(preset).extended();
        match self {
            Self::OverrunJournal => Plan { trouble: Trouble::Failing, ..plan(Some(Mode::Store)) },
            // A cache may let go of whatever it likes.
            Self::DeleteAnother => Plan { trouble: Trouble::Crashes, ..plan(Some(Mode::Store)) },
            _ => Plan { trouble: Trouble::Crashes, ..plan(None) },
        }
    }
}

/// Runs seeds until this sabotage is noticed, or there are none left.
#[must_use]
pub fn notice(sabotage: Sabotage, seeds: std::ops::Range<u64>, preset: &'static str) -> Option<Violation> {
    let mut total = Tally::default();
    for seed in seeds {
        let plan = sabotage.plan(seed, preset);
        match run(&plan, &operations(&plan), sabotage) {
            Ok(tally) => total += &tally,
            Err(violation) => return Some(violation),
        }
        if let Some(found) = total.excused.overused().into_iter().next() {
            let (plan, operation) = (plan.describe(), "all seeds so far".into());
            return Some(Violation { seed, plan, step: 0, operation, expected: "no excuse is overused".into(), found });
        }
    }
    None
}

impl Run<'_> {
    /// Damages the journal of a device that did not fail, as pages that were written over it would.
    pub(crate) fn overrun_a_journal(&mut self) {
        let Some(map) = Map::new(self.plan.capacity, self.plan.cluster) else { return };
        for medium in &self.media {
            for page in 0..map.journal.len / 4096 {
                trouble::flip(medium, map.journal.start + page * 4096 + 64, 1);
            }
        }
    }
}
