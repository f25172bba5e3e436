//! Puts `picaflor serve` beside other caching proxies: one core for the server, another for the load, the same origin,
//! all answers true hits, in alternating rounds of one run. `bench/README.md` says how to read the report.

mod client;
mod load;
mod origin;
mod plan;
mod servers;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

/// Puts `picaflor serve` beside other caching proxies and writes a report.
#[derive(Parser, Debug)]
#[command(name = "bench-proxy")]
pub(crate) struct Arguments {
    /// Everything once and very small: shows that the bench works, measures nothing
    #[arg(long)]
    tiny: bool,
    /// Servers whose names begin so; all that are installed by default
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Works; all by default
    #[arg(long, value_delimiter = ',', value_parser = plan::WORKS)]
    works: Vec<String>,
    /// Rounds; the report shows medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Our program
    #[arg(long, default_value = "target/release/picaflor")]
    picaflor: PathBuf,
    /// Core of the servers
    #[arg(long, default_value = "0")]
    core: String,
    /// Core of the load
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    /// Where the servers' files go; on the device to be measured
    #[arg(long, default_value = "bench-data")]
    folder: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "bench-results")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.tiny {
        (arguments.rounds, arguments.seconds) = (1, 1);
    }
    match plan::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
