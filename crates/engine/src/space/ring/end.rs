//! The end of a device, which moves: clusters that are given back, from one of them to the last, retire when they are
//! free; those that come are free.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use super::{Space, State};

pub(crate) struct End<'a>(&'a Space);

impl Space {
    pub(crate) fn end(&self) -> End<'_> {
        End(self)
    }
}

impl End<'_> {
    /// So many clusters come.
    pub(crate) fn lengthen(&self, by: u32) {
        let mut clusters = self.0.clusters.lock();
        self.0.grants.lengthen(by);
        self.0.uses.lengthen(by);
        clusters.lengthen(by);
        self.0.live.lengthen(by);
        self.0.seen.is_old.store(true, Relaxed);
    }

    /// Those of these clusters that are free retire, as far as `keep` others that are free stay unpromised. Returns how
    /// many of them have not retired.
    pub(crate) fn retire(&self, these: Range<u32>, keep: u32) -> u32 {
        let mut clusters = self.0.clusters.lock();
        let mut left = 0;
        for id in these {
            let state = clusters.states[id as usize];
            if state == State::Free && clusters.free > clusters.reserved + keep {
                clusters.set(id, State::Retired);
            } else {
                left += u32::from(state != State::Retired);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::{super::NextCluster, *};
    use crate::space::{Site, Victim};

    #[test]
    fn what_is_given_back_is_granted_no_more_and_emptied_first() {
        let space = Space::new(20, 4096, (NextCluster::Overwrite, 16), false);
        for id in 0..16 {
            assert!(space.reserve(0) && space.grant(State::Busy, Site::Rest) == Some(id));
            space.told(id, 1);
            space.live.add(id, 100);
            space.set(id, State::Sealed);
        }
        space.set_floor(8);
        // Four are free, all of those to retire: two are kept.
        assert_eq!((space.end().retire(14..20, 2), space.available()), (4, 2));
        assert_eq!(space.victims().pick(Victim::Within(14, 20)), Some(14));
        assert_eq!(space.victims().pick(Victim::Within(14, 20)), Some(15));
        assert_eq!(space.victims().pick(Victim::Within(14, 20)), None);
        [3, 4, 14, 15].into_iter().for_each(|id| space.set(id, State::Free));
        assert_eq!((space.end().retire(14..20, 2), space.available()), (0, 2));
        let granted = || space.reserve(0).then(|| space.grant(State::Busy, Site::Rest)).flatten();
        assert_eq!([granted(), granted(), granted()], [Some(3), Some(4), None]);
    }
}
