//! The long troubles of a plan, as they are drawn: a device that fails and stays so, the time of day set while the
//! store runs, and thousands of small puts and deletes.

use picaflor_sim::Fault;

use crate::{
    dice::Dice,
    operation::Op,
    plan::{Plan, Trouble},
};

/// How a device fails for good.
pub(crate) const LASTING: [(Fault, bool); 5] = [
    (Fault::SyncError, true),
    // Once is enough: it is not known then what of the write cache is on the medium.
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
