//! Children broken on purpose. Rounds that do not notice them prove nothing.

use std::{io, ops::Range, path::Path};

use super::{proxied::run_proxied, series::run_series, setup::Setup, tally::Fault, wish::Wish};
use picaflor::{Durability, Mode};

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Break {
    /// Nothing.
    #[default]
    None,
    /// Some puts are acknowledged and not done.
    ForgottenPuts,
    /// Some deletes are acknowledged and not done.
    ForgottenDeletes,
    /// Everything is acknowledged before it is durable.
    EarlyAcks,
    /// Some gets are answered with an older version.
    OldAnswers,
    /// A block of some answers is of the version before.
    TornAnswers,
    /// What is read-only answers with an older version.
    OldReadOnly,
}

impl Break {
    /// All that rounds must notice.
    pub const ALL: [Self; 6] = [
        Self::ForgottenPuts,
        Self::ForgottenDeletes,
        Self::EarlyAcks,
        Self::OldAnswers,
        Self::TornAnswers,
        Self::OldReadOnly,
    ];

    /// Those that clients of a proxy can do.
    pub const PROXIED: [Self; 2] = [Self::ForgottenDeletes, Self::TornAnswers];

    /// As it is said on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ForgottenPuts => "forgotten-puts",
            Self::ForgottenDeletes => "forgotten-deletes",
            Self::EarlyAcks => "early-acks",
            Self::OldAnswers => "old-answers",
            Self::TornAnswers => "torn-answers",
            Self::OldReadOnly => "old-read-only",
        }
    }
}

/// Runs seeds until this break is noticed, or there are none left; through the proxy if one is given, of which the
/// clients can break less ([`Break::PROXIED`]).
///
/// # Errors
/// Those of the system: no process, no file.
pub fn notice_break(
    sabotage: Break,
    wish: &Wish,
    seeds: Range<u64>,
    proxy: Option<&Path>,
) -> io::Result<Option<Fault>> {
    for seed in seeds {
        // Where everything acknowledged is durable, it is the acknowledgement that lies.
        let durability = (sabotage == Break::EarlyAcks).then_some(Durability::EveryPut);
        let wish = Wish {
            sabotage,
            preset: wish.preset.or(Some("picaflor")),
            mode: wish.mode.or(Some(Mode::Store)),
            places: wish.places.or(Some(1)),
            durability: wish.durability.or(durability),
            ..wish.clone()
        };
        let mut series = match proxy {
            Some(picaflor) => run_proxied(picaflor, seed, &wish)?,
            None => run_series(&Setup::new(seed, &wish), &wish)?,
        };
        if let Some(fault) = series.faults.pop() {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}
