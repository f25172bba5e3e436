//! `picaflor man FOLDER`: manual pages of our command line, one a subcommand.

use std::path::PathBuf;

use clap::{Args, Command};

use super::Failure;

const EXAMPLES: &str = "\
Examples:
  picaflor man ~/.local/share/man/man1 && man picaflor-serve";

/// Writes manual pages to a folder, one a command
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// The folder, made if absent
    folder: PathBuf,
}

impl Man {
    /// Writes the pages of this command line.
    pub(crate) fn run(self, of: Command) -> Result<(), Failure> {
        let written = std::fs::create_dir_all(&self.folder).and_then(|()| clap_mangen::generate_to(of, &self.folder));
        written.map_err(|error| Failure::Failed(format!("{}: {error}", self.folder.display())))
    }
}
