//! What came of a run, in words and numbers.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::excuse::Excused;

static TRACING: AtomicBool = AtomicBool::new(false);

/// Whether every run from now on prints each of its operations and openings.
pub fn trace(on: bool) {
    TRACING.store(on, Relaxed);
}

pub(crate) fn tracing() -> bool {
    TRACING.load(Relaxed)
}

/// Something that the store must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// How the store was set up.
    pub plan: String,
    /// Number of the operation, from 0.
    pub step: usize,
    /// The operation.
    pub operation: String,
    /// What the oracle says.
    pub expected: String,
    /// What the store did.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION in seed {} at step {}: {}", self.seed, self.step, self.operation)?;
        writeln!(f, "  plan:     {}", self.plan)?;
        writeln!(f, "  expected: {}", self.expected)?;
        writeln!(f, "  found:    {}", self.found)?;
        write!(f, "  replay:   picaflor-torture --from {} --seeds 1 -v", self.seed)
    }
}

/// Numbers of one run, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations carried out.
    pub operations: u64,
    /// Crash points: times that the power failed.
    pub crashes: u64,
    /// Times that the process was killed.
    pub kills: u64,
    /// Clean closes.
    pub closes: u64,
    /// Openings that succeeded.
    pub openings: u64,
    /// Openings refused because of damage.
    pub refused_to_open: u64,
    /// Openings that failed because the device did, and then succeeded.
    pub failed_openings: u64,
    /// Times that bytes were changed between two lives.
    pub damages: u64,
    /// Operations that devices were asked for.
    pub device_operations: u64,
    /// Gets judged.
    pub gets: u64,
    /// Of those, gets that had to bring an object.
    pub due: u64,
    /// Answers that brought an object.
    pub hits: u64,
    /// Puts refused for want of room.
    pub full: u64,
    /// Puts refused for other reasons.
    pub refused: u64,
    /// Openings that gave a store more bytes than it was made with.
    pub growths: u64,
    /// Openings that gave it fewer.
    pub shrinks: u64,
    /// Openings only to look, judged.
    pub looks: u64,
    /// Objects damaged for the audit to find.
    pub planted: u64,
    /// Openings that had to be refused for what they asked.
    pub asked_wrongly: u64,
    /// Times that the time of day was set.
    pub clock_sets: u64,
    /// Crash points of runs on several devices.
    pub crashes_of_several: u64,
    /// Most bytes of memory that a store counted.
    pub memory_most: u64,
    /// What was let pass.
    pub excused: Excused,
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Self) {
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.closes += other.closes;
        self.openings += other.openings;
        self.refused_to_open += other.refused_to_open;
        self.failed_openings += other.failed_openings;
        self.damages += other.damages;
        self.device_operations += other.device_operations;
        self.gets += other.gets;
        self.due += other.due;
        self.hits += other.hits;
        self.full += other.full;
        self.refused += other.refused;
        self.growths += other.growths;
        self.shrinks += other.shrinks;
        self.looks += other.looks;
        self.planted += other.planted;
        self.asked_wrongly += other.asked_wrongly;
        self.clock_sets += other.clock_sets;
        self.crashes_of_several += other.crashes_of_several;
        self.memory_most = self.memory_most.max(other.memory_most);
        self.excused += &other.excused;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} crash points ({} on several devices), {} kills, {} closes, {} damages, {} openings ({} refused, \
             {} failed first, {} to grow, {} to shrink), {} looks, {} damages planted, {} wrong askings, clock set {} times, \
             {} operations, {} of the devices, {} gets ({} due, {} hits), {} full, {} otherwise refused, \
             at most {} KiB of memory counted; {}",
            self.crashes,
            self.crashes_of_several,
            self.kills,
            self.closes,
            self.damages,
            self.openings,
            self.refused_to_open,
            self.failed_openings,
            self.growths,
            self.shrinks,
            self.looks,
            self.planted,
            self.asked_wrongly,
            self.clock_sets,
            self.operations,
            self.device_operations,
            self.gets,
            self.due,
            self.hits,
            self.full,
            self.refused,
            self.memory_most >> 10,
            self.excused,
        )
    }
}
