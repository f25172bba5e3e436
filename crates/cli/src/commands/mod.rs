//! The subcommands, and how they fail.

pub(crate) mod check_config;
pub(crate) mod serve;

use std::{fmt, process::ExitCode};

use picaflor_proxy::{ConfigError, StartError};

/// Why a command failed; each kind has its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1.
    Failed(String),
    /// 2: what the user wrote.
    Usage(String),
    /// 3.
    Damaged(String),
}

impl Failure {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
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
            _ => Self::Failed(e.to_string()),
        }
    }
}
