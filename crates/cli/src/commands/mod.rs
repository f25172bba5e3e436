//! The subcommands, and how they fail.

pub(crate) mod check;
pub(crate) mod check_config;
pub(crate) mod completions;
pub(crate) mod du;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod lab;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod put;
pub(crate) mod rm;
pub(crate) mod serve;
mod server;
pub(crate) mod share;
pub(crate) mod stats;
pub(crate) mod top;

use std::{
    fmt,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use clap::ValueEnum;
use picaflor_proxy::{ConfigError, StartError};

/// What `act` comes to on a thread of its own, or on this one where the system gives no more; `None` if it panicked.
pub(crate) async fn beside<T, F>(act: F) -> Option<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (done, outcome) = tokio::sync::oneshot::channel();
    // Both have it: a thread that cannot be begun gives nothing back.
    let mine = Arc::new(Mutex::new(Some((act, done))));
    let theirs = Arc::clone(&mine);
    if std::thread::Builder::new().spawn(move || act_once(&theirs)).is_err() {
        act_once(&mine);
    }
    drop(mine);
    outcome.await.ok()
}

fn act_once<T>(work: &Mutex<Option<(impl FnOnce() -> T, tokio::sync::oneshot::Sender<T>)>>) {
    let taken = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((act, done)) = taken {
        // Who waits no longer ends the process.
        let _ = done.send(act());
    }
}

/// How a command prints what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON value a line
    Json,
}

/// Why a command failed; each kind has its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1.
    Failed(String),
    /// 2: what the user wrote.
    Usage(String),
    /// 3.
    Damaged(String),
    /// 0: the reader of our output has had enough of it.
    ReaderGone,
}

impl Failure {
    /// Of several the worst gives the exit code: what is damaged before what could not be done, and that before what
    /// was not asked for rightly. The others are said here.
    pub(crate) fn worst(mut all: Vec<Self>) -> Result<(), Self> {
        all.sort_by_key(|failure| match failure {
            Self::ReaderGone => 0,
            Self::Usage(_) => 1,
            Self::Failed(_) => 2,
            Self::Damaged(_) => 3,
        });
        let worst = all.pop();
        all.iter().for_each(|failure| eprintln!("picaflor: {failure}"));
        worst.map_or(Ok(()), Err)
    }

    /// Says it on standard error and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if !matches!(self, Self::ReaderGone) {
            eprintln!("picaflor: {self}");
        }
        ExitCode::from(match self {
            Self::ReaderGone => 0,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Damaged(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Usage(why) | Self::Damaged(why) => f.write_str(why),
            Self::ReaderGone => Ok(()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(e: ConfigError) -> Self {
        Self::Usage(e.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(e: StartError) -> Self {
        match e {
            StartError::Damaged(..) => Self::Damaged(e.to_string()),
            StartError::Setting(..) => Self::Usage(e.to_string()),
            _ => Self::Failed(e.to_string()),
        }
    }
}

impl From<picaflor_shared::Error> for Failure {
    fn from(e: picaflor_shared::Error) -> Self {
        use picaflor_shared::{Error, Kind};
        match e {
            Error::Store { kind: Kind::Damaged, .. } => Self::Damaged(e.to_string()),
            Error::Store { kind: Kind::Limit, .. } => Self::Usage(e.to_string()),
            _ => Self::Failed(e.to_string()),
        }
    }
}

impl From<picaflor::Error> for Failure {
    fn from(e: picaflor::Error) -> Self {
        match e {
            picaflor::Error::Damaged { .. } => Self::Damaged(e.to_string()),
            picaflor::Error::Option { .. } | picaflor::Error::Limit { .. } => Self::Usage(e.to_string()),
            _ => Self::Failed(e.to_string()),
        }
    }
}
