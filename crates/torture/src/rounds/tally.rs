//! What came of rounds, in words and numbers.

use std::{collections::BTreeMap, fmt, path::PathBuf};

/// Something that a store must not do.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Seed of the store.
    pub seed: u64,
    /// How the store was set up.
    pub setup: String,
    /// Which of its lives, and how that ended.
    pub life: String,
    /// What was to be expected, and what came.
    pub what: String,
    /// Where its files are.
    pub kept: Option<PathBuf>,
    /// Runs the same setup again.
    pub command: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION in seed {}, {}", self.seed, self.life)?;
        writeln!(f, "  setup:  {}", self.setup)?;
        writeln!(f, "  what:   {}", self.what)?;
        if let Some(kept) = &self.kept {
            writeln!(f, "  files:  {}", kept.display())?;
        }
        write!(f, "  again:  {}", self.command)
    }
}

/// Why a version may be there that is not the last one acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excuse {
    /// It is the last one.
    None,
    /// It was not acknowledged.
    InFlight,
    /// The next one was acknowledged, and not durable.
    Volatile,
    /// The next one should have been durable, but for the grace.
    Late,
}

/// Numbers of many rounds, and what was wrong in them.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// Stores.
    pub stores: u64,
    /// Children that were killed, by what they did.
    pub kills: BTreeMap<String, u64>,
    /// Children that ended before they came to where they were to be killed.
    pub ended: u64,
    /// Read-only openings with an audit.
    pub audits: u64,
    /// Excuse: of these, openings before any child had made the store.
    pub unmade: u64,
    /// Stores that were opened with fewer bytes, opened with more, given more at work.
    pub resized: [u64; 3],
    /// Puts, deletes and flushes that were acknowledged.
    pub done: u64,
    /// Of these, durable when the child died.
    pub durable: u64,
    /// Answers judged.
    pub gets: u64,
    /// Of these, answers that had to bring something.
    pub due: u64,
    /// Excuse: a cache brought nothing where something was due.
    pub left: u64,
    /// Excuse: what came after a kill was under way when it came.
    pub in_flight: u64,
    /// Excuse: what came after a kill is older than what was acknowledged, and that was not durable.
    pub volatile: u64,
    /// Excuse: the same, and but for the grace it should have been durable.
    pub late: u64,
    /// Excuse: several versions were under way at once, and any may be the last.
    pub at_once: u64,
    /// Excuse: puts refused for want of room.
    pub full: u64,
    /// Excuse: puts refused by another name.
    pub refused: u64,
    /// Excuse: of what was volatile at a kill a part was left, and a get says that it is damaged.
    pub torn: u64,
    /// Excuse: damage that an opening noted.
    pub damage: u64,
    /// What was wrong.
    pub faults: Vec<Fault>,
}

impl Rounds {
    pub(super) fn excused(&mut self, excuse: Excuse) {
        match excuse {
            Excuse::None => {}
            Excuse::InFlight => self.in_flight += 1,
            Excuse::Volatile => self.volatile += 1,
            Excuse::Late => self.late += 1,
        }
    }

    /// All kills.
    #[must_use]
    pub fn killed(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Adds what came of others.
    pub fn join(&mut self, other: Self) {
        for (name, count) in other.kills {
            *self.kills.entry(name).or_default() += count;
        }
        self.faults.extend(other.faults);
        self.resized.iter_mut().zip(other.resized).for_each(|(sum, more)| *sum += more);
        let pairs = [
            (&mut self.stores, other.stores),
            (&mut self.ended, other.ended),
            (&mut self.audits, other.audits),
            (&mut self.unmade, other.unmade),
            (&mut self.done, other.done),
            (&mut self.durable, other.durable),
            (&mut self.gets, other.gets),
            (&mut self.due, other.due),
            (&mut self.left, other.left),
            (&mut self.in_flight, other.in_flight),
            (&mut self.volatile, other.volatile),
            (&mut self.late, other.late),
            (&mut self.at_once, other.at_once),
            (&mut self.full, other.full),
            (&mut self.refused, other.refused),
            (&mut self.torn, other.torn),
            (&mut self.damage, other.damage),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills: Vec<_> = self.kills.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(
            f,
            "{} kills on {} stores ({}), {} children ended before; {} read-only openings with an audit; \
             {} times shrunk, {} times grown, {} times at work",
            self.killed(),
            self.stores,
            kills.join(", "),
            self.ended,
            self.audits,
            self.resized[0],
            self.resized[1],
            self.resized[2]
        )?;
        writeln!(
            f,
            "{} deeds acknowledged, {} of them durable when the child died; {} answers, {} of them due",
            self.done, self.durable, self.gets, self.due
        )?;
        write!(
            f,
            "excuses: {} left a cache, {} in flight at a kill, {} volatile at a kill, {} late within the grace, \
             {} written at once, {} full, {} refused, \
             {} volatile ones torn, {} notes of damage, {} stores not made yet",
            self.left,
            self.in_flight,
            self.volatile,
            self.late,
            self.at_once,
            self.full,
            self.refused,
            self.torn,
            self.damage,
            self.unmade
        )
    }
}
