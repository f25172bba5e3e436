//! Results as JSON, CSV, and a page with drawings.

use std::{collections::BTreeMap, fs, path::Path};

use picaflor_sim::Profile;

use super::{Plot, Row, Spec, spec::Board as BoardSpec};
use crate::{
    Error, Result,
    draw::{Bars, Board, BoardRow, Chart, Mark, Page, Scale, Series, short},
    run::Hints,
    trace::Report,
};

/// Writes `results.json`, `results.csv` and `report.html` into a folder, which is made if missing. `traces` is what the
/// files were that were replayed.
///
/// # Errors
/// If one of them cannot be written or drawn.
pub fn write(spec: &Spec, traces: &[Report], rows: &[Row], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::file("making", folder))?;
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file("writing", path))
    };
    save("results.json", json(spec, traces, rows)?)?;
    save("results.csv", csv(rows))?;
    if let Some(board) = &spec.board {
        save(&format!("{}.svg", spec.name), board_of(spec, board, rows).svg())?;
    }
    save("report.html", html(spec, traces, rows)?)
}

fn json(spec: &Spec, traces: &[Report], rows: &[Row]) -> Result<String> {
    let all = serde_json::json!({
        "experiment": spec.name, "title": spec.title, "quick": spec.is_quick, "replay": spec.replay.name(),
        "first_level_mib": spec.first_level_mib, "memory_mib": spec.memory_mib, "cluster_kib": spec.cluster_kib,
        "traces": traces, "results": rows,
    });
    let wrong = |error: serde_json::Error| Error::Experiment { name: spec.name.clone(), why: error.to_string() };
    Ok(serde_json::to_string_pretty(&all).map_err(wrong)? + "\n")
}

fn csv(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let names: Vec<_> = first.fields().keys().cloned().collect();
    let mut text = names.join(",") + "\n";
    for row in rows {
        let values: Vec<_> = names.iter().map(|name| quoted(row.text(name).unwrap_or_default())).collect();
        text += &(values.join(",") + "\n");
    }
    text
}

/// As RFC 4180 has it: workloads and devices are paths of the user's.
fn quoted(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

fn html(spec: &Spec, traces: &[Report], rows: &[Row]) -> Result<String> {
    let mut page = Page::new(&spec.title);
    page.text(&spec.question);
    let sizes: Vec<_> = spec.disk_mib.iter().map(|mib| format!("{mib} MiB")).collect();
    let requests = rows.first().map_or(0, |row| row.outcome.gets);
    let file_system = spec.file_system.as_deref().map_or_else(String::new, |name| format!(", file system {name}"));
    if spec.is_quick {
        page.text(&format!("{}; what is said above of numbers is of the whole.", quick_look(spec)));
    }
    page.text(&format!(
        "Workload {}, {requests} requests; disk {}{file_system}; {}.",
        spec.workload.join(", "),
        sizes.join(", "),
        machine(spec)
    ));
    for line in traces.iter().flat_map(Report::told) {
        page.text(&line);
    }
    if !spec.file_systems.is_empty() {
        let on: Vec<_> = spec.file_systems.iter().map(|(device, name)| format!("{name} on {device}")).collect();
        page.text(&format!("File systems of the rows with a file for each object: {}.", on.join(", ")));
    }
    for device in &spec.devices {
        // Who quotes a number has to know what of the device is another's.
        if let Ok(profile) = Profile::find(device) {
            page.text(&format!("{device}: {}. Not its own: {}.", profile.title, profile.proxies.join("; ")));
        }
    }
    if let Some(board) = &spec.board {
        page.drawing(&board_of(spec, board, rows).svg());
    }
    for plot in &spec.plot {
        // What was published is of the whole.
        let plot = if spec.is_quick { &Plot { published: BTreeMap::new(), ..plot.clone() } } else { plot };
        for svg in drawings(plot, rows)? {
            page.drawing(&svg);
        }
    }
    page.heading("Results");
    let head = columns(rows);
    let cells = |row: &Row| {
        let cell = |(_, field): &(&str, &str)| match row.number(field) {
            Some(number) => short(number),
            None => row.text(field).unwrap_or_default(),
        };
        head.iter().map(cell).collect()
    };
    let names: Vec<_> = head.iter().map(|(name, _)| *name).collect();
    page.table(&names, &rows.iter().map(cells).collect::<Vec<_>>());
    Ok(page.finish())
}

fn quick_look(spec: &Spec) -> String {
    format!("A quick look: {} of all lengths and sizes", short(spec.quick))
}

/// How requests are replayed, and what the machine has.
fn machine(spec: &Spec) -> String {
    let mut parts = vec![format!("replay {}", spec.replay.name())];
    if spec.first_level_mib > 0 {
        parts.push(format!("first level {} MiB", spec.first_level_mib));
    }
    if !spec.presets.is_empty() {
        parts.push(format!("memory {} MiB", spec.memory_mib));
    }
    if spec.cluster_kib > 0 {
        parts.push(format!("clusters of {} KiB", spec.cluster_kib));
    }
    parts.join(", ")
}

/// What the table shows: of all columns those that tell rows apart, or matter always.
fn columns(rows: &[Row]) -> Vec<(&'static str, &'static str)> {
    const ALL: [(&str, &str, bool); 32] = [
        ("workload", "workload", false),
        ("preset", "preset", false),
        ("hints", "hints", false),
        ("device", "device", false),
        ("files on", "file_system", false),
        ("disk, MiB", "disk_mib", false),
        ("target use", "target_utilisation", false),
        ("buffers", "buffers", false),
        ("threshold", "threshold", false),
        ("pages, KiB", "pages_kib", false),
        ("policies", "policies", false),
        ("seed", "seed", false),
        ("views", "views", false),
        ("requests a view", "requests_per_view", false),
        ("device reads a view", "device_reads_per_view", false),
        ("KiB read a view", "kib_read_per_view", false),
        ("ms a view", "ms_per_view", false),
        ("hit ratio of views", "view_hit_ratio", false),
        ("seconds", "seconds", true),
        ("gets/s", "gets_per_second", true),
        ("ops/s", "operations_per_second", true),
        ("reads", "reads", true),
        ("writes", "writes", true),
        ("deletes", "deletes", true),
        ("hit ratio", "hit_ratio", true),
        ("hits/s", "hits_per_second", true),
        ("reads a hit", "reads_per_hit", true),
        ("written a byte", "written_per_byte", true),
        ("use", "utilisation", true),
        ("storage age", "storage_age", true),
        ("memory", "memory_used", true),
        ("refused", "refused", true),
    ];
    let differs = |field: &str| rows.iter().any(|row| row.text(field) != rows[0].text(field));
    let kept = ALL.iter().filter(|(_, field, always)| *always || *field == "preset" || differs(field));
    kept.map(|(name, field, _)| (*name, *field)).collect()
}

/// The drawing that says it all; what was not run has no number in it.
fn board_of(spec: &Spec, board: &BoardSpec, rows: &[Row]) -> Board {
    let number = |preset: &str, hints: Hints, device: &str, field: &str| {
        let is_it = |row: &&Row| {
            row.workload == board.workload && row.preset == preset && row.hints == hints.name() && row.device == device
        };
        rows.iter().find(is_it).and_then(|row| row.number(field)).unwrap_or(f64::NAN)
    };
    let rows = board.rows.iter().map(|(preset, hints, label, colour)| BoardRow {
        label: label.clone(),
        colour: *colour,
        bar: number(preset, *hints, &board.bars.2, &board.bars.0),
        numbers: board.columns.iter().map(|(device, _)| number(preset, *hints, device, &board.numbers.0)).collect(),
    });
    Board {
        title: board.title.clone(),
        // Else its note would tell of the whole.
        note: if spec.is_quick { vec![quick_look(spec)] } else { board.note.clone() },
        bars: board.bars.1.clone(),
        numbers: board.numbers.1.clone(),
        columns: board.columns.iter().map(|(_, name)| name.clone()).collect(),
        rows: rows.collect(),
    }
}

/// One drawing, or one for each value of a field.
fn drawings(plot: &Plot, rows: &[Row]) -> Result<Vec<String>> {
    let groups = match &plot.each {
        Some(field) => distinct(rows, field).into_iter().map(Some).collect(),
        None => vec![None],
    };
    let mut drawn = Vec::new();
    for group in groups {
        let of_group = |row: &&Row| match (&plot.each, &group) {
            (Some(field), Some(value)) => row.text(field).as_ref() == Some(value),
            _ => true,
        };
        let rows: Vec<_> = rows.iter().filter(of_group).collect();
        let title = group.map_or_else(|| plot.title.clone(), |value| format!("{}: {value}", plot.title));
        drawn.push(match &plot.x {
            Some(x) => lines(plot, x, title, &rows)?,
            None => bars(plot, title, &rows),
        });
    }
    Ok(drawn)
}

/// Values of a field, in the order in which they come.
fn distinct<'a>(rows: impl IntoIterator<Item = &'a Row>, field: &str) -> Vec<String> {
    let mut values = Vec::new();
    for value in rows.into_iter().filter_map(|row| row.text(field)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// What may vary from case to case, and what a label calls it.
const VARIES: [(&str, &str); 11] = [
    ("workload", ""),
    ("preset", ""),
    ("hints", ""),
    ("device", ""),
    ("disk_mib", "MiB "),
    ("target_utilisation", "use "),
    ("buffers", "buffers "),
    ("threshold", "threshold "),
    ("pages_kib", "pages "),
    ("policies", ""),
    ("seed", "seed "),
];

/// The label of a row: the value of the plot's series, and of whatever else varies among these rows and has no place in
/// the drawing.
fn label(plot: &Plot, rows: &[&Row], row: &Row) -> String {
    let shown = [Some(&plot.series), plot.x.as_ref(), plot.each.as_ref()];
    let varies = |field: &str| {
        !shown.iter().flatten().any(|known| *known == field)
            && rows.windows(2).any(|two| two[0].text(field) != two[1].text(field))
    };
    let others = VARIES.iter().filter(|(field, _)| varies(field));
    let others = others.filter_map(|(field, called)| Some(format!("{called}{}", row.text(field)?)));
    row.text(&plot.series).into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn lines(plot: &Plot, x: &str, title: String, rows: &[&Row]) -> Result<String> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().map(|row| label(plot, rows, row)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let series = names.into_iter().map(|name| {
        let of_series = rows.iter().filter(|row| label(plot, rows, row) == name);
        let mut points: Vec<_> = of_series.filter_map(|row| Some((row.number(x)?, row.number(&plot.y)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let published = plot.published.get(&name).cloned().unwrap_or_default();
        Series { name, points, mark: Mark::Both, published }
    });
    let words = |field: &str| field.replace('_', " ");
    let scale = if plot.log { Scale::Log } else { Scale::Linear };
    let unit = if plot.unit.is_empty() { words(&plot.y) } else { format!("{}, {}", words(&plot.y), plot.unit) };
    Chart { title, x: (words(x), Scale::Linear), y: (unit, scale), series: series.collect() }.svg()
}

fn bars(plot: &Plot, title: String, rows: &[&Row]) -> String {
    let groups: &[&str] = if plot.published.is_empty() { &[] } else { &["ours", "published"] };
    let row = |row: &&Row| {
        let name = label(plot, rows, row);
        let published = plot.published.get(&name).and_then(|points| points.first()).map_or(f64::NAN, |(_, y)| *y);
        let values = [row.number(&plot.y).unwrap_or(f64::NAN), published];
        (name, values[..groups.len().max(1)].to_vec())
    };
    let rows = rows.iter().map(row).collect();
    let groups = groups.iter().copied().map(String::from).collect();
    Bars { title, unit: plot.unit.clone(), rows, groups, log: plot.log }.svg()
}
