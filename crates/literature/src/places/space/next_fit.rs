//! STREAM (Markatos et al. 1999, §3.5): each object goes to the next free slots behind the one before, round and round.
//!
//! The paper says that writing goes on "from the beginning of the file writing on free slots", and not what an object
//! does that is longer than the run it comes to. Here it passes by runs that are too short, and stays in one piece:
//! a read is then one read. Only where no run of the device is long enough is it cut (`ops/put.rs`).

use super::runs::Runs;

pub(crate) struct NextFit {
    pub(super) runs: Runs,
    cursor: u32,
}

impl NextFit {
    pub(super) fn new(first: u32, slots: u32) -> Self {
        let mut runs = Runs::default();
        runs.give(first, slots);
        Self { runs, cursor: first }
    }

    pub(super) fn take(&mut self, slots: u32) -> Option<u32> {
        let found = self.runs.fit_from(self.cursor, slots)?;
        self.runs.take_at(found, slots);
        self.cursor = found + slots;
        Some(found)
    }

    pub(super) fn cursor(&self) -> u32 {
        self.cursor
    }

    pub(super) fn set_cursor(&mut self, cursor: u32) {
        self.cursor = cursor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_behind_the_last_one_and_wraps() {
        let mut space = NextFit::new(10, 20);
        assert_eq!((0..4).map_while(|_| space.take(5)).collect::<Vec<_>>(), [10, 15, 20, 25]);
        assert_eq!(space.take(1), None);
        space.runs.give(20, 5);
        space.runs.give(10, 3);
        assert_eq!(space.take(2), Some(10), "the end was reached");
        assert_eq!(space.take(2), Some(20), "one slot is too short a run");
        assert_eq!(space.take(3), Some(22));
        assert_eq!(space.take(1), Some(12));
    }
}
