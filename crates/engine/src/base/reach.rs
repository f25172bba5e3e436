//! How far a read goes beyond the object that it is for, in parts of a cluster.

/// A 64th of a cluster behind the object, a 32nd, and so on; all that lies behind it; and all of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Reach(u8);

impl Reach {
    /// How many there are.
    pub(crate) const COUNT: usize = 8;
    /// All that lies behind the object.
    pub(crate) const REST: Self = Self(6);
    /// What lies before the object, too.
    pub(crate) const CLUSTER: Self = Self(7);

    /// All of them, the shortest first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The one that is needed for what ends so many bytes behind the end of the object.
    pub(crate) fn needed(behind: usize, cluster: usize) -> Self {
        Self::all().find(|reach| *reach == Self::REST || behind <= reach.bytes(cluster)).unwrap_or(Self::REST)
    }

    /// The longest that so many bytes behind the object have whole, short of all of them.
    pub(crate) fn within(behind: usize, cluster: usize) -> Self {
        let fits = |reach: &Self| *reach < Self::REST && reach.bytes(cluster) <= behind;
        Self::all().rev().find(fits).unwrap_or_default()
    }

    /// Bytes that are read for it beyond the object, at most.
    pub(crate) fn bytes(self, cluster: usize) -> usize {
        cluster >> Self::REST.0.saturating_sub(self.0)
    }

    /// As an index.
    pub(crate) fn at(self) -> usize {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_within_what_is_read_for_it() {
        const CLUSTER: usize = 256 << 10;
        assert_eq!(Reach::all().count(), Reach::COUNT);
        assert_eq!(
            Reach::all().map(|reach| reach.bytes(CLUSTER) >> 10).collect::<Vec<_>>(),
            [4, 8, 16, 32, 64, 128, 256, 256]
        );
        for behind in (1..CLUSTER).step_by(1000) {
            let needed = Reach::needed(behind, CLUSTER);
            assert!(behind <= needed.bytes(CLUSTER) && needed <= Reach::REST, "{behind}");
            assert!(needed == Reach::REST || Reach::within(needed.bytes(CLUSTER), CLUSTER) == needed, "{behind}");
        }
        assert_eq!(Reach::within(100, CLUSTER), Reach::default(), "none is shorter");
    }
}
