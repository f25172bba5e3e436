//! Of each name of a pinned record, the values that it may have: one, unless a call failed half way or a device lies.

use std::collections::HashSet;

use crate::dice::bytes_of;

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

    pub(crate) fn set(&mut self, name: usize, id: Option<u64>, certain: bool) {
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
    pub(crate) fn judge(&mut self, found: &[Option<Vec<u8>>; NAMES], settles: bool) -> Result<(), String> {
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

/// The bytes of a pinned record. No object has them: what looks for those of a body on a device finds no record.
pub(crate) fn value(id: u64) -> Vec<u8> {
    bytes_of(id ^ 0x7069_6e00_0000_0000, 1 + id as usize % 700)
}
