//! What fragments a volume before it is filled: small objects, as many bytes as are to live on it, which leave in
//! random order as the volume's own come. Each of those finds the holes that so many bytes of small ones have left, all
//! over the volume: the pathological start of Sears & van Ingen, §5.3. When the volume is filled, no small one is left.

use super::{
    load::{Turn, Version},
    spec::{Case, Start},
};
use crate::synth::Dice;

/// Small objects of the mean length of the others, at most.
const PARTS: u64 = 32;
/// Their room is whole blocks. A file system has an inode for each 16 KiB, so they have no less.
const BLOCK: u64 = 4 << 10;
const LEAST: u64 = 16 << 10;
/// What a store writes around an object is to fit into its blocks beside it.
const AROUND: u64 = 512;
/// Their numbers, which no other object has.
const FIRST: u32 = 1 << 31;

pub(super) struct Chaff {
    dice: Dice,
    /// Bytes of the volume that one takes.
    room: u64,
    wanted: u64,
    made: u32,
    left: Vec<u32>,
    /// Bytes of objects that came, for which none has left yet.
    owed: u64,
}

impl Chaff {
    /// That of a case; of none that starts on a fresh volume.
    pub(super) fn of(case: &Case) -> Self {
        let room = (case.object.mean() / PARTS).next_multiple_of(BLOCK).max(LEAST);
        let wanted = if case.start == Start::Fragmented { case.live_bytes() / room } else { 0 };
        Self { dice: Dice::new(case.seed, 0xc4aff), room, wanted, made: 0, left: Vec::new(), owed: 0 }
    }

    /// The next ones to be written; `None` when the volume is full of them.
    pub(super) fn fill(&mut self, writers: usize) -> Option<Turn> {
        let count = (self.wanted - u64::from(self.made)).min(writers as u64) as u32;
        let numbers = (self.made..self.made + count).map(|number| FIRST + number);
        self.left.extend(numbers.clone());
        self.made += count;
        let len = self.room - AROUND;
        let writes: Vec<_> = numbers.map(|object| Version { object, version: 1, len }).collect();
        (count > 0).then(|| Turn { deletes: Vec::new(), writes })
    }

    /// Those that leave before so many bytes of others come.
    pub(super) fn leave(&mut self, bytes: u64) -> Vec<u32> {
        self.owed += bytes;
        let mut gone = Vec::new();
        while self.owed > 0 && !self.left.is_empty() {
            gone.push(self.left.swap_remove(self.dice.below(self.left.len() as u64) as usize));
            self.owed = self.owed.saturating_sub(self.room);
        }
        gone
    }

    /// All that are left.
    pub(super) fn rest(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::spec::Spec;

    #[test]
    fn small_objects_fill_the_volume_and_leave_at_random() {
        let case =
            Spec { starts: vec![Start::Fragmented], candidates: vec![crate::age::Kind::Sqlite], ..Spec::default() };
        let case = case.cases().unwrap().remove(0);
        let mut chaff = Chaff::of(&case);
        let mut bytes = 0;
        while let Some(turn) = chaff.fill(4) {
            bytes += turn.writes.iter().map(|write| write.len + AROUND).sum::<u64>();
            assert!(turn.writes.iter().all(|write| write.object >= FIRST));
        }
        assert!(bytes <= case.live_bytes() && bytes > case.live_bytes() - (64 << 10), "{bytes}");
        let gone = chaff.leave(1 << 20);
        assert_eq!(gone.len(), 32, "as many bytes as come");
        assert!(gone.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 3, "{gone:?}");
        let rest = chaff.rest();
        assert_eq!(rest.len() + gone.len(), (bytes >> 15) as usize);
        assert!(chaff.leave(1 << 20).is_empty());
        let fresh = Case { start: Start::Fresh, ..case };
        assert!(Chaff::of(&fresh).fill(4).is_none());
    }
}
