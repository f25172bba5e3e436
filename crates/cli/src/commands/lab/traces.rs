//! `picaflor lab trace`: statistics, miss ratios, and synthetic traces.

use std::{
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, Subcommand};
use picaflor_lab::{
    cache::{self, Policy},
    run,
    stat::{self, Counting},
    synth::Synthetic,
    trace::{self, Format as TraceFormat, Reader, Report},
};
use picaflor_proxy::config::Size;
use serde_json::json;

use super::super::{Failure, Format};
use crate::{
    human,
    output::{self, Output},
};

#[derive(Subcommand)]
pub(crate) enum Trace {
    Stat(Stat),
    Miss(Miss),
    Make(Make),
}

impl Trace {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Stat(stat) => stat.run(),
            Self::Miss(miss) => miss.run(),
            Self::Make(make) => make.run(),
        }
    }
}

const FORMATS: &str = "\
Formats, found by looking at the content, compressed with gzip or zstd or not: squid (its native log), common, combined, \
netscape (extended and extended-2), dec (Digital's proxy traces as text), csv (a header that names time, obj_id and size; \
also client, server, url, referer), libcachesim-csv (without a header), oracle-general (libCacheSim's binary), har. `-` is \
standard input. Counted are GETs answered 200, 206 or 304; the rest is skipped by name. Lines that make no sense are \
counted, and the first few shown; a file of which most lines are bad is refused.";

#[derive(Args)]
struct Input {
    /// Logs or traces, one after the other; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Their format, if looking at them does not tell
    #[arg(long = "from", value_name = "FORMAT")]
    from: Option<TraceFormat>,
}

/// Says what a trace is like, and draws it
#[derive(Args)]
#[command(after_long_help = FORMATS)]
pub(crate) struct Stat {
    #[command(flatten)]
    input: Input,
    /// A page with drawings
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

impl Stat {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut counting = Counting::default();
        let mut reports = Vec::new();
        let bar = output::waiting("reading");
        for path in &self.input.files {
            let mut reader = Reader::open(path, self.input.from)?;
            for request in &mut reader {
                counting.add(&request?);
            }
            reports.push(reader.report().clone());
        }
        bar.finish_and_clear();
        let stat = counting.finish();
        let names: Vec<_> = reports.iter().map(|report| title(&report.name)).collect();
        if let Some(path) = &self.html {
            let page = stat::page(&names.join(", "), &reports, &stat)?;
            std::fs::write(path, page).map_err(|e| Failure::Failed(format!("writing {}: {e}", path.display())))?;
        }
        let mut out = Output::new();
        match self.format {
            Format::Json => out.json(&json!({ "files": reports, "stat": stat }))?,
            Format::Text => {
                reports.iter().flat_map(Report::told).try_for_each(|line| out.line(line))?;
                let rows: Vec<_> =
                    stat.rows().into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok()).collect();
                let rows: Vec<_> = rows.into_iter().map(|[name, value]| (name, value)).collect();
                out.bytes(human::table(&rows).as_bytes())?;
            }
        }
        out.flush()
    }
}

fn title(name: &str) -> String {
    Path::new(name).file_name().map_or_else(|| name.into(), |name| name.to_string_lossy().into_owned())
}

/// Says which share of a trace caches of some sizes would miss
#[derive(Args)]
#[command(after_long_help = FORMATS)]
pub(crate) struct Miss {
    #[command(flatten)]
    input: Input,
    /// Bytes of a cache, as in 512M; may be given more than once. Without it: 0.1, 1, 5, 10 and 25% of the bytes of all
    /// objects
    #[arg(long, value_name = "SIZE")]
    cache: Vec<Size>,
    /// LRU, FIFO or S3-FIFO; without it, all of them
    #[arg(long, value_name = "NAME")]
    policy: Vec<Policy>,
    /// Also picaflor itself, as a cache with so many bytes of a device: with all that it keeps beside bodies, and a
    /// sixteenth of that as memory
    #[arg(long)]
    store: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

impl Miss {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let bar = output::waiting("reading");
        let mut trace = trace::Trace::load(&self.input.files, self.input.from, |_| {})?;
        let unweighed = trace.settle_sizes();
        let mut sizes: Vec<u64> = self.cache.iter().map(|size| size.0).collect();
        if sizes.is_empty() {
            let all = trace.unique_bytes() as f64;
            sizes = [0.001, 0.01, 0.05, 0.1, 0.25].iter().map(|share| (share * all) as u64).collect();
        }
        let policies = if self.policy.is_empty() { Policy::ALL.map(|row| row.1).to_vec() } else { self.policy };
        let trace = Arc::new(trace);
        let mut rows = Vec::new();
        for capacity in sizes {
            for policy in &policies {
                bar.set_message(format!("{policy} with {}", human::size(capacity)));
                rows.push((policy.to_string(), capacity, cache::replay(*policy, capacity, &trace.requests)));
            }
            if self.store {
                bar.set_message(format!("picaflor with {}", human::size(capacity)));
                rows.push(("picaflor".into(), capacity, run::misses(&trace, capacity)?));
            }
        }
        bar.finish_and_clear();
        let mut out = Output::new();
        match self.format {
            Format::Json => out.json(&json!({ "files": trace.reports, "left_out": unweighed }))?,
            Format::Text => trace.reports.iter().flat_map(Report::told).try_for_each(|line| out.line(line))?,
        }
        for (policy, capacity, missed) in rows {
            match self.format {
                Format::Json => out.json(&json!({ "policy": policy, "cache": capacity, "missed": missed }))?,
                Format::Text => out.line(format!(
                    "{policy:9} {:>12}  misses {:.5} of the requests, {:.5} of the bytes",
                    human::size(capacity),
                    missed.requests,
                    missed.bytes
                ))?,
            }
        }
        if unweighed > 0 && self.format == Format::Text {
            out.line(format!("({} left out: their objects' sizes are never told)", human::count(unweighed)))?;
        }
        out.flush()
    }
}

/// Writes a synthetic workload out as CSV
#[derive(Args)]
pub(crate) struct Make {
    #[arg(help = workloads())]
    workload: Synthetic,
    /// The same seed gives the same trace
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many requests, if not the usual number
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Where to; a name that ends in .zst or .gz is compressed. Without it, standard output
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn workloads() -> String {
    let names = Synthetic::ALL.map(|row| row.0);
    let [all @ .., last] = &names;
    format!("{} or {last}; `picaflor lab list` says what they are", all.join(", "))
}

impl Make {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let usual = usize::try_from(self.workload.usual()).unwrap_or(usize::MAX);
        let requests = self.workload.requests(self.seed).take(self.requests.unwrap_or(usual));
        match &self.out {
            None => {
                let mut out = BufWriter::new(std::io::stdout().lock());
                let written = trace::write_csv(requests, &mut out).and_then(|_| out.flush());
                match written {
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
                    other => other.map_err(|e| Failure::Failed(format!("writing to standard output: {e}"))),
                }
            }
            Some(path) => {
                let bar = output::waiting("writing");
                let written = trace::save_csv(requests, path)?;
                bar.finish_and_clear();
                output::say!("{}: {}", path.display(), human::counted(written, "request", "requests"));
                Ok(())
            }
        }
    }
}
