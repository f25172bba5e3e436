//! The tables of the page, between two markers.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::{
    crash::Found,
    peers::{self, About},
    run::Measured,
};

const BEGIN: &str = "<!-- measured by bench/compare: begin -->\n";
const END: &str = "<!-- measured by bench/compare: end -->\n";

/// The version of a peer: of the crate, by this workspace's lock file, or of the Python package.
pub(crate) fn version(name: &str, python: Option<&Path>) -> String {
    if name == "diskcache" {
        let code = "import diskcache; print(diskcache.__version__)";
        let out = python.and_then(|python| Command::new(python).args(["-c", code]).output().ok());
        return out.map_or_else(String::new, |out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    if name == "rocksdb" {
        // The library is the system's.
        let out = Command::new("pkg-config").args(["--modversion", "rocksdb"]).output();
        return out.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next()).unwrap_or("?");
    version.to_owned()
}

/// Lines of an example that are code.
fn lines(name: &str) -> Result<usize> {
    let (file, comment) = if name == "diskcache" { ("diskcache.py".into(), "#") } else { (format!("{name}.rs"), "//") };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with(comment);
    Ok(text.lines().filter(is_code).filter(|line| !line.starts_with("\"\"\"")).count())
}

fn seconds(micros: u64) -> String {
    match micros {
        0..1_000 => "under 1 ms".into(),
        1_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// What a crash left, in a cell.
fn cell(found: &Found) -> String {
    if found.rounds == 0 {
        return "–".into();
    }
    if found.opened == 0 {
        return format!("opened 0 of {}", found.rounds);
    }
    let mut said = Vec::new();
    if found.opened < found.rounds {
        said.push(format!("**opened {} of {}**", found.opened, found.rounds));
    }
    match found.lost {
        0 => said.push("all there".into()),
        // But for a key whose delete was under way.
        lost if lost * 200 >= found.expected * 199 => said.push("empty".into()),
        lost => {
            said.push(format!("{:.0}% of keys lost", (lost as f64 * 100.0 / found.expected.max(1) as f64).max(1.0)))
        }
    }
    if found.returned > 0 {
        said.push(format!("{} deletes back", found.returned));
    }
    if found.lost + found.returned > 0 && found.lost * 200 < found.expected * 199 {
        said.push(format!("changes of the last {}", seconds(found.oldest_lost)));
    }
    if found.wrong > 0 {
        said.push(format!("**{} with wrong bytes**", found.wrong));
    }
    if found.errors > 0 {
        said.push(format!("{} of the lost by an error", found.errors));
    }
    said.join("; ")
}

fn memory(measured: &Measured) -> String {
    let [(few, small), (many, large)] = measured.memory[..] else { return "?".into() };
    let each = (large as f64 - small as f64) / (many - few) as f64;
    let each = if each < 1.0 { "under 1".into() } else { format!("{each:.0}") };
    format!("{each} | {} MiB of {many}", large >> 20)
}

fn tail(numbers: &[f64]) -> String {
    let [p50, p99, p999, used, misses] = numbers else { return "– | – | – | –".into() };
    let misses = if *misses > 0.0 { format!(", {misses} misses") } else { String::new() };
    format!("{p50:.2} | {p99:.1} | {p999:.1} | {used:.2}{misses}")
}

fn tables(results: &BTreeMap<&str, (&About, Measured)>, order: &[&str]) -> Result<String> {
    let mut out = String::new();
    let rows: Vec<_> = order.iter().filter_map(|name| results.get(name)).collect();
    let Found { rounds: kills, .. } = rows.first().map(|row| row.1.kill.clone()).unwrap_or_default();
    let Found { rounds: cuts, .. } = rows.first().map(|row| row.1.cut.clone()).unwrap_or_default();
    writeln!(
        out,
        "\n### After a crash\n\n{kills} rounds of `kill -9`, {cuts} of a power cut, of each kind and mode.\n"
    )?;
    writeln!(
        out,
        "| | `kill -9`, defaults | `kill -9`, sync | power cut, defaults | power cut, sync |\n|---|---|---|---|---|"
    )?;
    for (about, it) in &rows {
        let [kill, kill_sync, cut, cut_sync] = [&it.kill, &it.kill_sync, &it.cut, &it.cut_sync].map(cell);
        writeln!(out, "| {} {} | {kill} | {kill_sync} | {cut} | {cut_sync} |", about.name, it.version)?;
    }
    let failed = rows.iter().flat_map(|(about, it)| {
        [&it.kill, &it.kill_sync, &it.cut, &it.cut_sync].map(|found| (about.name, found.why.as_str()))
    });
    let failed: BTreeMap<_, _> = failed.filter(|(_, why)| !why.is_empty()).collect();
    for (name, why) in failed {
        writeln!(out, "\nWhere {name} did not open it said: `{}`", why.chars().take(200).collect::<String>())?;
    }
    writeln!(out, "\nChanges that were acknowledged in all:\n")?;
    writeln!(
        out,
        "| | `kill -9`, defaults | `kill -9`, sync | power cut, defaults | power cut, sync |\n|---|---|---|---|---|"
    )?;
    for (about, it) in &rows {
        let [a, b, c, d] = [&it.kill, &it.kill_sync, &it.cut, &it.cut_sync].map(|found| found.acknowledged);
        writeln!(out, "| {} | {a} | {b} | {c} | {d} |", about.name)?;
    }
    writeln!(out, "\n### Memory an object\n\n| | bytes an object | anonymous memory, and objects |\n|---|---|---|")?;
    for (about, it) in &rows {
        writeln!(out, "| {} | {} |", about.name, memory(it))?;
    }
    for (title, hot) in [("Hits in memory", true), ("First gets from the disk", false)] {
        writeln!(out, "\n### {title}\n\n| | p50 | p99 | p99.9 | processor |\n|---|---|---|---|---|")?;
        for (about, it) in &rows {
            writeln!(out, "| {} | {} |", about.name, tail(if hot { &it.hot } else { &it.cold }))?;
        }
    }
    writeln!(out, "\n### The same program\n\n| | lines | what was chosen here | load meanwhile |\n|---|---|---|---|")?;
    for (about, it) in &rows {
        writeln!(out, "| {} | {} | {} | {} |", about.name, lines(about.name)?, about.settings, it.load)?;
    }
    writeln!(out)?;
    Ok(out)
}

/// Writes the page's tables from the results in a folder.
pub(crate) fn write(page: &Path, results: &Path) -> Result<()> {
    let mut all = BTreeMap::new();
    for about in peers::ALL {
        if let Ok(text) = fs::read_to_string(results.join(format!("{}.json", about.name))) {
            all.insert(about.name, (about, serde_json::from_str(&text).context(about.name)?));
        }
    }
    let order: Vec<_> = peers::ALL.iter().map(|about| about.name).collect();
    let text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let lacks = || format!("{} lacks the markers", page.display());
    let (before, rest) = text.split_once(BEGIN).with_context(lacks)?;
    let (_, after) = rest.split_once(END).with_context(lacks)?;
    fs::write(page, format!("{before}{BEGIN}{}{END}{after}", tables(&all, &order)?))?;
    Ok(())
}
