//! wrk, the load: 64 connections kept alive, from a core of its own.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

/// What wrk saw.
pub(crate) struct Load {
    /// Requests answered.
    pub(crate) requests: f64,
    /// The same per second.
    pub(crate) rate: f64,
    /// The slowest of a hundred, in milliseconds.
    pub(crate) p99: f64,
}

/// Asks for these paths in no order for a while.
pub(crate) fn run(address: SocketAddr, paths: &[String], time: Duration, folder: &Path, core: &str) -> Result<Load> {
    let list = folder.join("paths.txt");
    fs::write(&list, paths.join("\n"))?;
    let script = folder.join("uniform.lua");
    fs::write(&script, include_str!("uniform.lua"))?;
    // wrk counts in whole seconds.
    let seconds = time.as_secs().max(1);
    let mut command = Command::new("taskset");
    command.args(["-c", core, "wrk", "-t1", "-c64", &format!("-d{seconds}s"), "--latency"]);
    if paths.len() > 1 {
        command.arg("-s").arg(&script).env("BENCH_PATHS", &list);
    }
    let url = format!("http://{address}{}", paths.first().context("no path")?);
    let output = command.args(["-H", "Host: bench.example", &url]).output().context("taskset and wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk: {text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(!text.contains("Non-2xx"), "not every answer was a success:\n{text}");
    ensure!(!text.contains("Socket errors"), "not every request was answered:\n{text}");
    parse(&text).with_context(|| format!("wrk printed:\n{text}"))
}

fn parse(text: &str) -> Option<Load> {
    let line = |name: &str| text.lines().map(str::trim).find_map(|line| line.strip_prefix(name)).map(str::trim);
    let requests = text.lines().find(|line| line.contains(" requests in "))?.split_whitespace().next()?;
    Some(Load {
        requests: requests.parse().ok()?,
        rate: line("Requests/sec:")?.parse().ok()?,
        p99: millis(line("99%")?)?,
    })
}

fn millis(text: &str) -> Option<f64> {
    let (unit, factor) = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)].into_iter().find(|(unit, _)| text.ends_with(unit))?;
    text.strip_suffix(unit)?.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_output_of_wrk_is_understood() {
        let text = "  Latency Distribution\n     50%  640.00us\n     99%    1.25ms\n  \
                    500000 requests in 5.00s, 2.00GB read\nRequests/sec: 100000.50\nTransfer/sec: 1GB\n";
        let load = super::parse(text).unwrap();
        assert_eq!((load.requests, load.rate, load.p99), (500_000.0, 100_000.5, 1.25));
    }
}
