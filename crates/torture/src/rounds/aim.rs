//! When a child is killed: drawn from the seed and the number of its life.

use std::{fmt, fs::File, time::Duration};

use super::{
    log::{Phase, Whereabouts, now},
    setup::Setup,
};
use crate::dice::Dice;

/// What a child is to be doing when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aim {
    Opening,
    Looking,
    Working,
    /// A delete was acknowledged just now.
    Deleted,
    Checkpoint,
    Reclaim,
    Closing,
    /// It is let to its end.
    Nothing,
}

/// One life of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) aim: Aim,
    /// How long after that begins.
    pub(super) after: Duration,
    /// After how many deletes, where it is killed after one.
    pub(super) deletes: u64,
    /// How long the child works.
    pub(super) work: Duration,
    /// Whether what the one before left is looked at read-only first.
    pub(super) audit: bool,
    /// Whether every key is looked at before work begins, or meanwhile.
    pub(super) apart: bool,
}

impl Life {
    /// The life with this number of a store.
    pub(super) fn new(setup: &Setup, number: u32) -> Self {
        let mut dice = Dice::new(setup.seed, 0x11fe_0000 + u64::from(number));
        let aim = match dice.below(100) {
            0..15 => Aim::Opening,
            15..22 => Aim::Looking,
            22..40 => Aim::Working,
            40..52 => Aim::Deleted,
            52..65 => Aim::Checkpoint,
            65..80 => Aim::Reclaim,
            80..95 => Aim::Closing,
            _ => Aim::Nothing,
        };
        let aim = match aim {
            // Files have neither.
            Aim::Checkpoint | Aim::Reclaim if setup.has_files() => Aim::Deleted,
            aim => aim,
        };
        let most = match aim {
            Aim::Opening | Aim::Closing => 20_000,
            Aim::Looking => 10_000,
            Aim::Working => setup.work.as_micros() as u64 * 5 / 6,
            // Nothing but the way of the signal.
            Aim::Deleted => 20,
            _ => 2_000,
        };
        Self {
            aim,
            after: Duration::from_micros(dice.scaled(10, most)),
            deletes: dice.scaled(1, 60),
            work: Duration::from_millis(dice.scaled(60, setup.work.as_millis() as u64)),
            audit: dice.percent(40),
            apart: dice.percent(70),
        }
    }

    /// Whether the child does now what it is to be killed at. One that does not come to it is killed when it closes.
    fn met(&self, before: &Whereabouts, at: &Whereabouts) -> Option<Aim> {
        let is_met = match self.aim {
            Aim::Opening => at.phase == Phase::Opening,
            Aim::Looking => at.phase == Phase::Looking,
            Aim::Working => at.phase == Phase::Working,
            Aim::Deleted => at.deletes >= self.deletes,
            // Bytes of one that is not complete.
            Aim::Checkpoint => at.checkpoint_bytes > before.checkpoint_bytes && at.checkpoints == before.checkpoints,
            Aim::Reclaim => at.reclaimed > before.reclaimed,
            Aim::Closing => at.phase == Phase::Closing,
            Aim::Nothing => return None,
        };
        match at.phase {
            _ if is_met => Some(self.aim),
            Phase::Closing => Some(Aim::Closing),
            _ => None,
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "killed {:?} after {:?} begins", self.after, self.aim)
    }
}

/// Waits until the child does what it is to be killed at, or `ended`. Returns what it does, if it came to that.
pub(super) fn wait_for(life: &Life, file: &File, mut ended: impl FnMut() -> bool) -> Option<Aim> {
    let mut before = Whereabouts::default();
    loop {
        let at = Whereabouts::hear(file);
        if let Some(met) = life.met(&before, &at) {
            // Sleeping takes longer than the shortest of these.
            let until = now() + life.after.as_nanos() as u64;
            if life.after > Duration::from_millis(2) {
                std::thread::sleep(life.after - Duration::from_millis(1));
            }
            while now() < until {
                std::hint::spin_loop();
            }
            return Some(met);
        }
        if ended() {
            return None;
        }
        let is_close = life.aim == Aim::Deleted && at.deletes + 2 >= life.deletes && at.deletes != before.deletes;
        before = at;
        if !is_close {
            std::thread::sleep(Duration::from_micros(if life.aim == Aim::Deleted { 20 } else { 100 }));
        }
    }
}
