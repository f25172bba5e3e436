//! `picaflor completions SHELL`: a script that makes a shell complete our command line.

use clap::{Args, Command};
use clap_complete::Shell;

use super::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  picaflor completions bash > ~/.local/share/bash-completion/completions/picaflor
  picaflor completions fish > ~/.config/fish/completions/picaflor.fish
  picaflor completions zsh > ~/.zfunc/_picaflor

For zsh, `fpath+=~/.zfunc` goes before `compinit` in ~/.zshrc.";

/// Prints a completion script for a shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script for this command line.
    pub(crate) fn run(self, mut of: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut of, "picaflor", &mut script);
        let mut out = Output::new();
        out.bytes(&script)?;
        out.flush()
    }
}
