//! Puts picaflor beside other engines: the same objects, the same memory, in alternating rounds of one run.
//!
//! The first process plans and reports; each piece of work is done by a process of its own, this program called with
//! a job in its environment. `bench/README.md` describes the works and how to read the report.

mod data;
mod engines;
mod fio;
mod plan;
mod work;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::{Parser, builder::PossibleValuesParser};

/// Environment variable that makes a process a worker.
pub(crate) const JOB: &str = "BENCH_ENGINE_JOB";

const WORKS: [&str; 14] = [
    "load", "get", "zipf", "churn", "cache", "full", "near", "tails", "delete", "large", "durable", "reopen", "warm",
    "put",
];

/// Puts picaflor beside other engines and writes a report.
#[derive(Parser, Debug)]
#[command(name = "bench-engine")]
pub(crate) struct Arguments {
    /// Everything once and very small: shows that the bench works, measures nothing
    #[arg(long)]
    tiny: bool,
    /// Reports; both by default
    #[arg(long = "table", value_delimiter = ',')]
    tables: Vec<engines::Table>,
    /// Engines, by name; all of this build by default
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(engines::all()))]
    engines: Vec<String>,
    /// Works; all by default. The durable table has put, get, delete, churn and reopen
    #[arg(long, value_delimiter = ',', value_parser = WORKS)]
    works: Vec<String>,
    /// Rounds; the report shows medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement that has no end of its own
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Objects of web sizes; 370,000 are 3 GB
    #[arg(long, default_value_t = 370_000)]
    objects: u64,
    /// Tiny objects of `reopen` and `warm`
    #[arg(long, default_value_t = 10_000_000)]
    small: u64,
    /// Most memory of a process in MiB, page cache included, where control groups allow it
    #[arg(long, default_value_t = 512)]
    limit: u64,
    /// Where the engines' files go; on the device to be measured
    #[arg(long, default_value = "bench-data")]
    folder: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "bench-results")]
    out: PathBuf,
}

impl Arguments {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn wants(&self, work: &str) -> bool {
        self.works.is_empty() || self.works.iter().any(|wanted| wanted == work)
    }
}

fn main() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-engine: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act() -> Result<()> {
    if let Ok(job) = std::env::var(JOB) {
        return work::run(&serde_json::from_str(&job).context("a job that is none")?);
    }
    let mut arguments = Arguments::parse();
    if arguments.tiny {
        (arguments.rounds, arguments.seconds, arguments.objects, arguments.small) = (1, 0.2, 2_000, 10_000);
    }
    plan::run(&arguments)
}
