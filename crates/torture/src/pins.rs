//! Pinned records: what was acknowledged is there after any crash, of whatever is not it may be; nothing else ever is.

use std::collections::BTreeMap;

use crate::{
    pin_bounds::value,
    plan::Trouble,
    sabotage::Sabotage,
    state::{Outcome, Run},
};

impl Run<'_> {
    /// Pins a record, or takes one out.
    pub(crate) fn pin(&mut self, name: usize, id: Option<u64>) -> Outcome {
        // What an opening found is durable, where no other device may know something else.
        let settles = std::mem::take(&mut self.pins_due) && self.plan.volumes == 1;
        self.judge_pins(settles)?;
        let Some(store) = self.store.as_ref().filter(|store| store.has_pins()) else { return Ok(()) };
        if self.sabotage == Sabotage::ForgetPin && id.is_some_and(|id| id.is_multiple_of(5)) {
            self.pins.set(name, id, true);
            return Ok(());
        }
        let done = match id {
            Some(id) => store.pin(name as u128, &value(id)),
            None => store.unpin(name as u128),
        };
        self.pins.set(name, id, done.is_ok());
        match done {
            Ok(()) => Ok(()),
            Err(error) => {
                self.errors += 1;
                self.must_be_excused(&error)
            }
        }
    }

    /// Compares what is pinned with what may be.
    pub(crate) fn judge_pins(&mut self, settles: bool) -> Outcome {
        let cold = self.is_cold();
        let Some(store) = self.store.as_ref().filter(|store| store.has_pins()) else { return Ok(()) };
        let pinned: BTreeMap<u128, _> = store.pinned().into_iter().collect();
        let found = std::array::from_fn(|name| pinned.get(&(name as u128)).map(|bytes| bytes.to_vec()));
        if cold || matches!(self.plan.trouble, Trouble::Lying | Trouble::Damage) {
            self.pins.forget();
        }
        self.pins.judge(&found, settles).map_err(|why| self.violation("the pinned records that were acknowledged", why))
    }
}
