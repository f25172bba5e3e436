//! The clock of a run: storage age, bytes of objects deleted or replaced for each byte that lives (Sears & van Ingen,
//! §4.4). It names no seconds, so stores of different speeds and volumes of different sizes compare.

/// Counts what comes and goes. It stands still while a volume is filled, for nothing is deleted then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageAge {
    live: u64,
    dead: u64,
}

impl StorageAge {
    /// An object of so many bytes lives.
    pub fn put(&mut self, bytes: u64) {
        self.live += bytes;
    }

    /// One was deleted, or replaced by another version.
    pub fn removed(&mut self, bytes: u64) {
        self.live = self.live.saturating_sub(bytes);
        self.dead += bytes;
    }

    /// Bytes of objects that live.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live
    }

    /// Bytes of all that were deleted or replaced.
    #[must_use]
    pub fn dead_bytes(&self) -> u64 {
        self.dead
    }

    /// Of objects of one size, replacements of each.
    #[must_use]
    pub fn age(&self) -> f64 {
        if self.live == 0 { 0.0 } else { self.dead as f64 / self.live as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_replacements_of_each_object() {
        let mut clock = StorageAge::default();
        assert_eq!(clock.age(), 0.0, "an empty volume has none");
        (0..10).for_each(|_| clock.put(100));
        assert_eq!((clock.age(), clock.live_bytes()), (0.0, 1000), "filling is no aging");
        for _ in 0..20 {
            clock.removed(100);
            clock.put(100);
        }
        assert_eq!((clock.age(), clock.dead_bytes()), (2.0, 2000));
    }
}
