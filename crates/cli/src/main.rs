//! The `picaflor` command. Each subcommand is one file in `commands`; this one only chooses.
//!
//! What the subcommands share: `open` finds stores and opens them as they were made, `key` shows keys and reads them
//! back, `human` writes numbers for people, `output` is standard output and the progress bars.
//!
//! Exit codes: 0 done, 1 failed, 2 the command line or a configuration is wrong, 3 the store is damaged.
#![forbid(unsafe_code)]

mod commands;
mod human;
mod key;
mod open;
mod output;
mod policies;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 the command line or a configuration is wrong, 3 the store is damaged.
`picaflor COMMAND --help` has examples.";

/// A crash-safe store for web objects, and a caching HTTP proxy on it.
#[derive(Parser)]
#[command(name = "picaflor", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<commands::serve::Serve>),
    Share(Box<commands::share::Share>),
    CheckConfig(commands::check_config::CheckConfig),
    Check(commands::check::Check),
    Stats(commands::stats::Stats),
    Top(commands::top::Top),
    Explain(commands::explain::Explain),
    Ls(commands::ls::Ls),
    Du(commands::du::Du),
    Get(commands::get::Get),
    Put(commands::put::Put),
    Rm(commands::rm::Rm),
    Lab(commands::lab::Lab),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Share(share) => share.run(),
        Command::CheckConfig(check) => check.run(),
        Command::Check(check) => check.run(),
        Command::Stats(stats) => stats.run(),
        Command::Top(top) => top.run(),
        Command::Explain(explain) => explain.run(),
        Command::Ls(ls) => ls.run(),
        Command::Du(du) => du.run(),
        Command::Get(get) => get.run(),
        Command::Put(put) => put.run(),
        Command::Rm(rm) => rm.run(),
        Command::Lab(lab) => lab.run(),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
