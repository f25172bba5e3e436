//! Pinned records: what was acknowledged is there after any crash, of whatever is not it may be; nothing else ever is.
//!
//! Of each name a run knows the values that it may have: one, unless a call failed half way or a device lies.

use std::collections::{BTreeMap, HashSet};

use crate::{
    canary::Sabotage,
    dice::bytes_of,
    plan::Trouble,
    run::{Outcome, Run},
};

/// Names that a run uses.
pub(crate) const NAMES: usize = 5;

/// What the names may hold.
#[derive(Default)]
pub(crate) struct PinBounds {
    /// By name, what it may hold, each by its number; `None` is nothing.
    may: [HashSet<Option<u64>>; NAMES],
    /// By name, whatever it held.
    ever: [HashSet<u64>; NAMES],
    /// A cache started empty, or a device lied.
    unknown: bool,
}

impl PinBounds {
    /// A cache started empty, or may have: then what it does not know any more is gone.
    pub(crate) fn forget(&mut self) {
        self.unknown = true;
    }

    fn set(&mut self, name: usize, id: Option<u64>, certain: bool) {
        let may = &mut self.may[name];
        if certain {
            may.clear();
        } else if may.is_empty() {
            may.insert(None);
        }
        may.insert(id);
        self.ever[name].extend(id);
    }

    /// What is wrong with what was found; if nothing is, then it is what there is.
    fn judge(&mut self, found: &[Option<Vec<u8>>; NAMES], settles: bool) -> Result<(), String> {
        for (name, bytes) in found.iter().enumerate() {
            let id = bytes.as_ref().map(|bytes| self.ever[name].iter().find(|id| value(**id) == *bytes).copied());
            let id = match id {
                Some(None) => return Err(format!("pin {name} holds what was never put there")),
                Some(id) => id,
                None => None,
            };
            let may = &mut self.may[name];
            if !(self.unknown || may.contains(&id) || may.is_empty() && id.is_none()) {
                return Err(format!("pin {name} holds {id:?}, which is none of {may:?}"));
            }
            if settles {
                *may = HashSet::from([id]);
            }
        }
        self.unknown &= !settles;
        Ok(())
    }
}

fn value(id: u64) -> Vec<u8> {
    bytes_of(id, 1 + id as usize % 700)
}

impl Run<'_> {
    /// Pins a record, or takes one out.
    pub(crate) fn pin(&mut self, name: usize, id: Option<u64>) -> Outcome {
        self.judge_pins(true)?;
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
