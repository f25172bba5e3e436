//! What is written and deleted, in which order: a volume is filled, then objects are replaced until it is as old as it
//! was asked to be. A function of the case: each store is asked for the same.

use std::collections::VecDeque;

use super::{
    clock::StorageAge,
    spec::{Case, Deletes},
};
use crate::synth::Dice;

/// Objects that come and go together, with [`Deletes::Group`].
const GROUP: usize = 16;
/// Live bytes may pass what was asked for by this share.
const SLACK: f64 = 1.01;

/// An object as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) object: u32,
    pub(super) version: u32,
    pub(super) len: u64,
}

/// What the store is to do next, all of it at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Deleted first.
    pub(super) deletes: Vec<u32>,
    /// Then written, each instead of its older version if that is there.
    pub(super) writes: Vec<Version>,
}

pub(super) struct Load {
    dice: Dice,
    case: Case,
    /// By number; none of those that are deleted.
    live: Vec<Option<Version>>,
    versions: Vec<u32>,
    /// Numbers in the order in which they were written.
    order: VecDeque<u32>,
    /// Numbers that are deleted and not yet written again.
    due: VecDeque<u32>,
    clock: StorageAge,
}

impl Load {
    pub(super) fn new(case: &Case) -> Self {
        Self {
            dice: Dice::new(case.seed, 0x0a9e),
            case: case.clone(),
            live: Vec::new(),
            versions: Vec::new(),
            order: VecDeque::new(),
            due: VecDeque::new(),
            clock: StorageAge::default(),
        }
    }

    pub(super) fn clock(&self) -> StorageAge {
        self.clock
    }

    /// Objects that live, by their number.
    pub(super) fn live(&self) -> impl Iterator<Item = Version> + '_ {
        self.live.iter().flatten().copied()
    }

    pub(super) fn version(&self, object: u32) -> Option<Version> {
        self.live.get(object as usize).copied().flatten()
    }

    /// The next objects of a volume that is not yet full; `None` when it is.
    pub(super) fn fill(&mut self) -> Option<Turn> {
        let wanted = self.case.live_bytes();
        let mut writes = Vec::new();
        while writes.len() < self.case.writers {
            let len = self.len();
            if self.clock.live_bytes() + len > wanted {
                break;
            }
            let object = self.live.len() as u32;
            self.live.push(None);
            self.versions.push(0);
            writes.push(self.write(object, len));
        }
        (!writes.is_empty()).then(|| Turn { deletes: Vec::new(), writes })
    }

    /// The next replacements.
    pub(super) fn churn(&mut self) -> Turn {
        match self.case.deletes {
            Deletes::Group => self.groups(),
            Deletes::Random => {
                let mut chosen: Vec<u32> = Vec::new();
                while chosen.len() < self.case.writers {
                    let object = self.dice.below(self.live.len() as u64) as u32;
                    if !chosen.contains(&object) {
                        chosen.push(object);
                    }
                }
                self.replace(&chosen)
            }
            Deletes::Age => {
                let chosen: Vec<u32> = self.order.drain(..self.case.writers).collect();
                let turn = self.replace(&chosen);
                self.order.extend(chosen);
                turn
            }
        }
    }

    /// A group leaves whole before its room is used again.
    fn groups(&mut self) -> Turn {
        let mut turn = Turn::default();
        if self.due.is_empty() {
            let groups = self.live.len().div_ceil(GROUP) as u64;
            let first = self.dice.below(groups) as usize * GROUP;
            for object in first..(first + GROUP).min(self.live.len()) {
                self.remove(object);
                turn.deletes.push(object as u32);
                self.due.push_back(object as u32);
            }
        }
        let count = self.case.writers.min(self.due.len());
        let chosen: Vec<u32> = self.due.drain(..count).collect();
        turn.writes = self.replace(&chosen).writes;
        turn
    }

    fn replace(&mut self, chosen: &[u32]) -> Turn {
        let writes = chosen.iter().map(|&object| {
            self.remove(object as usize);
            let len = self.fitting();
            self.write(object, len)
        });
        Turn { deletes: Vec::new(), writes: writes.collect() }
    }

    fn remove(&mut self, object: usize) {
        if let Some(old) = self.live[object].take() {
            self.clock.removed(old.len);
        }
    }

    fn write(&mut self, object: u32, len: u64) -> Version {
        let now = &mut self.versions[object as usize];
        *now += 1;
        let version = Version { object, version: *now, len };
        self.live[object as usize] = Some(version);
        self.clock.put(len);
        if version.version == 1 {
            self.order.push_back(object);
        }
        version
    }

    fn len(&mut self) -> u64 {
        self.case.object.draw(&mut self.dice)
    }

    /// A length with which the volume stays as full as it was asked to be: the shortest, if none is drawn in time.
    fn fitting(&mut self) -> u64 {
        let room = (self.case.live_bytes() as f64 * SLACK) as u64;
        for _ in 0..16 {
            let len = self.len();
            if self.clock.live_bytes() + len <= room {
                return len;
            }
        }
        self.case.object.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::spec::Spec;

    fn case(change: impl FnOnce(&mut Spec)) -> Case {
        let mut spec = Spec::default();
        change(&mut spec);
        spec.cases().unwrap().remove(0)
    }

    fn turns(case: &Case, count: usize) -> (Vec<Turn>, Load) {
        let mut load = Load::new(case);
        let mut turns = Vec::new();
        while let Some(turn) = load.fill() {
            turns.push(turn);
        }
        turns.extend((0..count).map(|_| load.churn()));
        (turns, load)
    }

    #[test]
    fn a_load_is_a_function_of_its_case() {
        for deletes in [Deletes::Random, Deletes::Age, Deletes::Group] {
            let one = case(|spec| {
                spec.deletes = vec![deletes];
                spec.objects = vec!["512K-1536K".parse().unwrap()];
                spec.writers = 4;
            });
            let (first, load) = turns(&one, 300);
            assert_eq!(first, turns(&one, 300).0);
            let other = Case { seed: 2, ..one.clone() };
            assert_ne!(first, turns(&other, 300).0);
            let wanted = one.live_bytes() as f64;
            let now = load.clock().live_bytes() as f64;
            assert!((0.94..=1.01).contains(&(now / wanted)), "{deletes}: {now} of {wanted}");
            assert!(load.clock().age() > 1.0);
        }
    }

    #[test]
    fn the_oldest_goes_first_and_a_group_goes_whole() {
        let (all, _) = turns(&case(|spec| spec.deletes = vec![Deletes::Age]), 768);
        let again: Vec<u32> = all[768..].iter().flat_map(|turn| &turn.writes).map(|write| write.object).collect();
        assert_eq!(again, (0..768).collect::<Vec<_>>());
        let (all, load) = turns(&case(|spec| spec.deletes = vec![Deletes::Group]), 16);
        assert_eq!(all[768].deletes.len(), 16);
        assert!(all[769..].iter().all(|turn| turn.deletes.is_empty() && turn.writes.len() == 1));
        assert_eq!(load.live().count(), 768);
        let first = all[768].deletes[0];
        assert_eq!(load.version(first).unwrap().version, 2);
        assert!(load.version(768).is_none());
    }
}
