//! `picaflor check-config FILE`: whether the file would do, and what it comes to.

use std::path::PathBuf;

use clap::Args;
use picaflor_proxy::Low;

use super::Failure;
use crate::output::Output;

/// Checks a configuration file and prints it with every default and every size filled in
///
/// What it prints is itself a valid file. An error names the file, the line, the key, and the nearest key that exists.
#[derive(Args)]
pub(crate) struct CheckConfig {
    /// The file
    file: PathBuf,
}

impl CheckConfig {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let config = Low::read(&self.file)?.resolve().map_err(|e| e.in_file(&self.file))?;
        let mut out = Output::new();
        out.bytes(config.to_toml().as_bytes())?;
        out.flush()
    }
}
