//! Canaries: stores broken on purpose. A harness that does not notice them proves nothing.

use picaflor::Mode;

use crate::{
    plan::{Plan, Trouble},
    report::{Tally, Violation},
    run::run,
    sabotage::Sabotage,
    workload::operations,
};

impl Sabotage {
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
