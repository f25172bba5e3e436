//! Long troubles: a device that fails and stays so, the time of day set while the store runs, and thousands of small
//! puts and deletes, enough for every ring on the devices to come round.

use std::time::Duration;

use picaflor_sim::{Fault, Rule};

use crate::{
    dice::Dice,
    plan::{Plan, Trouble},
    report::tracing,
    run::{Outcome, Run},
    workload::{Draft, Op},
};

/// How a device fails for good.
const LASTING: [(Fault, bool); 5] = [
    (Fault::SyncError, true),
    // Once is enough: nobody knows then what of the write cache is on the medium.
    (Fault::SyncError, false),
    (Fault::WriteError, true),
    (Fault::NoSpace, true),
    (Fault::ReadError, true),
];

/// The long troubles of a plan, between its operations.
pub(crate) fn further(plan: &Plan, operations: Vec<Op>) -> Vec<Op> {
    let mut dice = Dice::new(plan.seed, 6);
    let often = if dice.percent(40) { dice.between(1, 3) } else { 0 };
    let mut all = Vec::with_capacity(operations.len() + 16);
    let blocks = match (plan.trouble, plan.volumes) {
        (Trouble::Failing, 2..) => dice.between(0, 2),
        _ => u64::from(dice.percent(8)),
    };
    let places: Vec<usize> = (0..blocks).map(|_| dice.below(operations.len() as u64) as usize).collect();
    for (at, op) in operations.into_iter().enumerate() {
        if dice.percent(often) {
            let millis = dice.scaled(1, 10 * 86_400_000) as i64;
            all.push(Op::SetClock { millis: if dice.percent(50) { -millis } else { millis } });
        }
        for number in places.iter().filter(|place| **place == at) {
            block(plan, plan.length as u64 + 2 + *number as u64, &mut dice, &mut all);
        }
        all.push(op);
    }
    all
}

/// A device fails for good, if this plan's fail; the others are kept busy; then the store goes down.
fn block(plan: &Plan, id: u64, dice: &mut Dice, all: &mut Vec<Op>) {
    if plan.trouble == Trouble::Failing {
        let device = dice.below(plan.volumes as u64) as usize;
        all.push(Op::Lasting { device, how: dice.below(LASTING.len() as u64) as usize, after: dice.scaled(1, 20) });
    }
    let most = if plan.trouble == Trouble::Failing { 4000 } else { 1500 };
    all.push(Op::Churn { id, count: dice.scaled(250, most) as u32, deletes: dice.pick(&[0, 30, 30, 50]) });
    if dice.percent(30) {
        all.push(Op::Sweep);
    }
    all.push(match dice.below(4) {
        0 => Op::Reopen(None),
        1 => Op::ArmCrash(dice.scaled(1, 20)),
        _ => Op::Crash,
    });
}

impl Run<'_> {
    /// From now on this device fails.
    pub(crate) fn fail_for_good(&mut self, device: usize, how: usize, after: u64) {
        let (fault, stays) = LASTING[how];
        let rule = if stays { Rule::since(fault, after) } else { Rule::nth(fault, after) };
        self.media[device].add(rule);
        self.fails_for_good = true;
    }

    /// So many small puts and deletes, and what daemons do between them.
    pub(crate) fn churn(&mut self, id: u64, count: u32, deletes: u64) -> Outcome {
        let mut dice = Dice::new(self.plan.seed ^ id, 7);
        for number in 0..u64::from(count) {
            if self.has_crashed() || self.store.is_none() {
                break;
            }
            self.tally.operations += 1;
            self.tally.excused.expose(self.plan);
            let key = dice.below(self.plan.keys.len() as u64) as usize;
            if dice.percent(deletes) {
                trace(|| format!("{number}: delete of key {key}"));
                self.delete(key)?;
            } else {
                let draft = small(id | (number + 1) << 32, key, &mut dice);
                trace(|| format!("{number}: put {} of key {key}, {} bytes", draft.id, draft.len));
                self.put(draft)?;
            }
            // Of what failed with the power the end was not seen: what memory still says decides nothing.
            if self.has_crashed() {
                break;
            }
            if dice.percent(8) {
                self.step(1)?;
            }
            if dice.percent(4) {
                self.get(dice.below(self.plan.keys.len() as u64) as usize)?;
            }
            if dice.percent(10) {
                self.clock.advance(Duration::from_millis(dice.scaled(1, 200)));
            }
            self.note_departures();
            self.plugs.iter().for_each(|plug| plug.let_some_land());
        }
        Ok(())
    }
}

fn trace(what: impl FnOnce() -> String) {
    if tracing() {
        println!("       {}", what());
    }
}

fn small(id: u64, key: usize, dice: &mut Dice) -> Draft {
    let len = dice.scaled(1, 400) as usize;
    Draft { key, id, len, group: 0, server: 0, beside: None, expires_in: Some(0), bypass: false, no_wait: false }
}

impl Plan {
    /// The same plan with what a second edition of it adds: several devices in half of the seeds, writes that land in
    /// any order, looks between lives, openings with other options, clocks that are set, failures that last. What the
    /// first edition draws stays as it was, so that a seed keeps what it is known for.
    #[must_use]
    pub fn extended(self) -> Self {
        let mut dice = Dice::new(self.seed, 8);
        let several = dice.percent(50);
        let volumes = dice.between(2, 4) as usize;
        let in_flight = dice.percent(60);
        let volumes = if self.takes_several() && several { volumes } else { 1 };
        let plan = Self { extended: true, audited: true, volumes, in_flight, ..self };
        Self { memory: plan.memory.max(plan.least_memory()), ..plan }
    }

    /// Whether a store of this row may lie on several devices.
    pub(crate) fn takes_several(&self) -> bool {
        !self.has_files() && !self.has_tables() && !self.is_scanned()
    }

    /// Whether damage to an object need not be seen by the audit, or cannot be made: a file has no place that the
    /// harness knows, and a slot that nothing else tells of is not there when its bytes are not.
    pub(crate) fn hides_damage(&self) -> bool {
        self.has_files() || self.is_scanned()
    }

    /// The least memory that a store of this plan opens with.
    pub(crate) fn least_memory(&self) -> u64 {
        u64::from(self.cluster) * 16.max(8 * self.volumes as u64)
    }

    /// Whether its objects lie in clusters, and its store so opens with each of these rows.
    pub(crate) fn is_ring(&self) -> bool {
        ["picaflor", "hummingbird", "damelo"].contains(&self.preset)
    }
}

#[cfg(test)]
mod tests {
    use picaflor::Mode;

    use super::*;
    use crate::workload::operations;

    #[test]
    fn half_of_all_seeds_have_several_devices_and_the_first_edition_stays() {
        let plans = || (0..400).map(|seed| Plan::new(seed, None));
        let several = plans().map(Plan::extended).filter(|plan| plan.volumes > 1).count();
        assert!((160..240).contains(&several), "{several}");
        let first = |plan: Plan| format!("{:?}", operations(&plan));
        assert!(plans().all(|plan| !first(plan).contains("Churn")));
        let churned = plans().map(Plan::extended).filter(|plan| first(plan.clone()).contains("Churn")).count();
        assert!(churned > 20, "{churned}");
    }

    #[test]
    fn every_row_that_takes_several_devices_gets_them() {
        for preset in picaflor_literature::presets() {
            let plans = (0..60).map(|seed| Plan::new(seed, Some(Mode::Cache)).with_preset(preset).extended());
            let several = plans.filter(|plan| plan.volumes > 1).count();
            let one = ["simple", "squid", "multiple-dirs", "buddy-scan", "pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];
            assert_eq!(several == 0, one.contains(&preset), "{preset}: {several}");
        }
    }
}
