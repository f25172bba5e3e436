//! Long troubles: a device that fails and stays so, and thousands of small puts and deletes, enough for every ring on
//! the devices to come round.

use std::time::Duration;

use picaflor_sim::Rule;

use crate::{
    dice::Dice,
    further::LASTING,
    operation::Draft,
    report::tracing,
    state::{Outcome, Run},
};

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
