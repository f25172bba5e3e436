//! Spells of time in which something was so: an origin that failed, a proxy that was being restarted.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;

use super::{durable::NEVER, log::now};

/// How many are remembered: no request takes longer.
const REMEMBERED: usize = 256;

/// Spells, the newest last; the last one may not be over.
#[derive(Default)]
pub(super) struct Spells(Mutex<VecDeque<(u64, u64)>>);

impl Spells {
    pub(super) fn begin(&self) {
        let mut spells = self.0.lock();
        spells.push_back((now(), NEVER));
        if spells.len() > REMEMBERED {
            spells.pop_front();
        }
    }

    pub(super) fn end(&self) {
        if let Some((_, end)) = self.0.lock().back_mut() {
            *end = (*end).min(now());
        }
    }

    /// Whether there was one between these times, or one that was over for less than `after` then.
    pub(super) fn touch(&self, from: u64, to: u64, after: Duration) -> bool {
        let after = after.as_nanos() as u64;
        self.0.lock().iter().any(|(begin, end)| *begin <= to && end.saturating_add(after) >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_touches_what_overlaps_it_and_what_follows_at_once() {
        let (spells, before) = (Spells::default(), now());
        assert!(!spells.touch(0, NEVER, Duration::ZERO));
        spells.begin();
        let within = now();
        assert!(spells.touch(within, within, Duration::ZERO) && spells.touch(before, NEVER, Duration::ZERO));
        spells.end();
        let over = now() + 1_000_000_000;
        assert!(spells.touch(before, over, Duration::ZERO), "it was in between");
        assert!(!spells.touch(over, over, Duration::ZERO) && spells.touch(over, over, Duration::from_secs(60)));
        assert!(!spells.touch(0, before - 1, Duration::ZERO));
    }
}
