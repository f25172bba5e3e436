//! What can go wrong in the lab. Each message names the place and the mend.

use std::{io, path::PathBuf};

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the lab stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read or written.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What was tried: `opening`, `reading` ...
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A trace is not what it was taken for.
    #[error("{name}: {why}")]
    Trace {
        /// The file, or `standard input`.
        name: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// An experiment, workload or option is wrong.
    #[error("{name}: {why}")]
    Experiment {
        /// Which experiment, workload or option.
        name: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// A store failed under an experiment.
    #[error("{name}: {source}")]
    Store {
        /// Which run.
        name: String,
        /// Why.
        source: picaflor::Error,
    },
    /// A drawing could not be made.
    #[error("drawing {what}: {why}")]
    Drawing {
        /// Which one.
        what: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// An error of a file, to be given its cause.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
