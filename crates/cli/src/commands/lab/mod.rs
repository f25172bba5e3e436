//! `picaflor lab`: traces, workloads, experiments and papers.

mod age;
mod experiments;
mod folders;
mod traces;

use clap::{Args, Subcommand};

use super::Failure;

const EXAMPLES: &str = "\
Start here:
  What is my access log like? Prints statistics, and draws them into a page:
      picaflor lab trace stat access.log.gz --html access.html

  How large a cache does it want?
      picaflor lab trace miss access.log.gz --cache 100M --cache 1G --cache 10G

  The storage managers of the literature on disks of 1996 and of today:
      picaflor lab list
      picaflor lab run presets-on-devices --out results
      picaflor lab reproduce markatos

  Files or a database, and what becomes of them in a year?
      picaflor lab age --quick

An experiment is a small TOML file: `picaflor lab run my.toml` runs yours; `picaflor lab list --show quick` prints one \
to begin with. Runs are on virtual time and functions of their seed: the same experiment gives the same bytes, \
whatever the machine.";

/// Replays traces and workloads through storage managers, on real and simulated devices, and draws the answer
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor lab --help` has examples.")]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(experiments::List),
    Run(experiments::Run),
    Reproduce(experiments::Reproduce),
    Age(Box<age::Age>),
    /// Looks at traces and makes them
    #[command(subcommand, arg_required_else_help = true)]
    Trace(traces::Trace),
}

impl Lab {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Run(run) => run.run(),
            Command::Reproduce(reproduce) => reproduce.run(),
            Command::Age(age) => age.run(),
            Command::Trace(trace) => trace.run(),
        }
    }
}

impl From<picaflor_lab::Error> for Failure {
    fn from(error: picaflor_lab::Error) -> Self {
        match error {
            picaflor_lab::Error::Experiment { .. } => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
