//! picaflor beside its peers: what `kill -9` and a power cut leave, memory an object, tails, lines of the same program.
//! Writes the tables of `docs/COMPARISON.md`. The folder's README says how to run it.

mod crash;
mod page;
mod peers;
mod run;
mod work;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::run::Plan;

const USAGE: &str = "usage: compare [--peers NAME,..] [--kills N] [--cuts N] [--tiny] [--folder FOLDER] [--out FOLDER] \
                     [--python PROGRAM] [--page FILE]";

fn plan(arguments: &[String]) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        if name == "--tiny" {
            plan.tiny();
            continue;
        }
        let value = arguments.next().with_context(|| format!("{name} wants a value; {USAGE}"))?;
        match name.as_str() {
            "--peers" => plan.peers = value.split(',').map(str::to_owned).collect(),
            "--kills" => plan.kills = value.parse().context("--kills")?,
            "--cuts" => plan.cuts = value.parse().context("--cuts")?,
            "--folder" => plan.folder = PathBuf::from(value),
            "--out" => plan.out = PathBuf::from(value),
            "--python" => plan.python = Some(PathBuf::from(value)),
            "--page" => plan.page = Some(PathBuf::from(value)),
            _ => bail!("{name} is unknown; {USAGE}"),
        }
    }
    Ok(plan)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == "child" => work::child(rest),
        _ => plan(&arguments).and_then(|plan| run::run(&plan)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}
