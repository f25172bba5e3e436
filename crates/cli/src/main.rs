//! The `picaflor` command. Each subcommand is one file in `commands`; this one only chooses.
//!
//! Exit codes: 0 done, 1 failed, 2 the command line or a configuration is wrong, 3 the store is damaged.
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A crash-safe store for web objects, and a caching HTTP proxy on it.
#[derive(Parser)]
#[command(name = "picaflor", version, about, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<commands::serve::Serve>),
    CheckConfig(commands::check_config::CheckConfig),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::CheckConfig(check) => check.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("picaflor: {failure}");
            failure.code()
        }
    }
}
