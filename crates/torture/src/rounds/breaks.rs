//! What can be broken on purpose, and the files of a store before that.

use std::{fs, io, path::PathBuf};

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
    /// Some answers end before their end.
    ShortAnswers,
    /// What a life wrote is gone after its kill: the device lied about its syncs.
    RolledBack,
    /// What is read-only answers with an older version.
    OldReadOnly,
    /// Some good answers are taken for failures.
    LostAnswers,
    /// The proxy has more resident each second.
    GrowingMemory,
}

impl Break {
    /// All that rounds must notice.
    pub const ALL: [Self; 8] = [
        Self::ForgottenPuts,
        Self::ForgottenDeletes,
        Self::EarlyAcks,
        Self::OldAnswers,
        Self::TornAnswers,
        Self::ShortAnswers,
        Self::RolledBack,
        Self::OldReadOnly,
    ];

    /// Those that clients of a proxy, or its device, can do.
    pub const PROXIED: [Self; 4] = [Self::ForgottenDeletes, Self::TornAnswers, Self::ShortAnswers, Self::RolledBack];

    /// Those that a soak must notice: of its clients, and of what it measures.
    pub const SOAKED: [Self; 5] =
        [Self::ForgottenDeletes, Self::TornAnswers, Self::ShortAnswers, Self::LostAnswers, Self::GrowingMemory];

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
            Self::ShortAnswers => "short-answers",
            Self::RolledBack => "rolled-back",
            Self::OldReadOnly => "old-read-only",
            Self::LostAnswers => "lost-answers",
            Self::GrowingMemory => "growing-memory",
        }
    }
}

/// What the files of a store were before a life, for a device that goes back to it.
pub(super) struct Before(Vec<PathBuf>);

impl Before {
    const ENDING: &str = "before";

    /// Copies them, if that is what is to be broken. A file that is not there yet was never lied about.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn take(sabotage: Break, files: Vec<PathBuf>) -> io::Result<Self> {
        let rolls_back = sabotage == Break::RolledBack;
        let files: Vec<_> = files.into_iter().filter(|file| rolls_back && file.is_file()).collect();
        for file in &files {
            fs::copy(file, file.with_extension(Self::ENDING))?;
        }
        Ok(Self(files))
    }

    /// The life was killed.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn roll_back(self) -> io::Result<()> {
        self.0.iter().try_for_each(|file| fs::rename(file.with_extension(Self::ENDING), file))
    }
}
