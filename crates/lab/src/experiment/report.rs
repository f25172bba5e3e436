//! Results as JSON, CSV, and a page with drawings.

use std::{fs, path::Path};

use super::{Plot, Row, Spec, spec::Board as BoardSpec};
use crate::{
    Error, Result,
    draw::{Bars, Board, BoardRow, Chart, Mark, Page, Scale, Series, short},
    run::Hints,
};

/// Writes `results.json`, `results.csv` and `report.html` into a folder, which is made if missing.
///
/// # Errors
/// If one of them cannot be written or drawn.
pub fn write(spec: &Spec, rows: &[Row], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::file("making", folder))?;
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file("writing", path))
    };
    save("results.json", json(spec, rows)?)?;
    save("results.csv", csv(rows))?;
    if let Some(board) = &spec.board {
        save(&format!("{}.svg", spec.name), board_of(board, rows).svg())?;
    }
    save("report.html", html(spec, rows)?)
}

fn json(spec: &Spec, rows: &[Row]) -> Result<String> {
    let all = serde_json::json!({ "experiment": spec.name, "title": spec.title, "results": rows });
    let wrong = |error: serde_json::Error| Error::Experiment { name: spec.name.clone(), why: error.to_string() };
    Ok(serde_json::to_string_pretty(&all).map_err(wrong)? + "\n")
}

fn csv(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let names: Vec<_> = first.fields().keys().cloned().collect();
    let mut text = names.join(",") + "\n";
    for row in rows {
        let values: Vec<_> = names.iter().map(|name| row.text(name).unwrap_or_default()).collect();
        text += &(values.join(",") + "\n");
    }
    text
}

fn html(spec: &Spec, rows: &[Row]) -> Result<String> {
    let mut page = Page::new(&spec.title);
    page.text(&spec.question);
    let sizes: Vec<_> = spec.disk_mib.iter().map(|mib| format!("{mib} MiB")).collect();
    let requests = rows.first().map_or(0, |row| row.outcome.gets);
    let file_system = spec.file_system.as_deref().map_or_else(String::new, |name| format!(", file system {name}"));
    page.text(&format!(
        "Workload {}, {requests} requests; disk {}{file_system}.",
        spec.workload.join(", "),
        sizes.join(", ")
    ));
    if !spec.file_systems.is_empty() {
        let on: Vec<_> = spec.file_systems.iter().map(|(device, name)| format!("{name} on {device}")).collect();
        page.text(&format!("File systems of the rows with a file for each object: {}.", on.join(", ")));
    }
    if let Some(board) = &spec.board {
        page.drawing(&board_of(board, rows).svg());
    }
    for plot in &spec.plot {
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

/// What the table shows: of all columns those that tell rows apart, or matter always.
fn columns(rows: &[Row]) -> Vec<(&'static str, &'static str)> {
    const ALL: [(&str, &str, bool); 29] = [
        ("workload", "workload", false),
        ("preset", "preset", false),
        ("hints", "hints", false),
        ("device", "device", false),
        ("files on", "file_system", false),
        ("disk, MiB", "disk_mib", false),
        ("target use", "target_utilisation", false),
        ("buffers", "buffers", false),
        ("threshold", "threshold", false),
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
        ("memory", "memory_used", true),
        ("refused", "refused", true),
    ];
    let differs = |field: &str| rows.iter().any(|row| row.text(field) != rows[0].text(field));
    let kept = ALL.iter().filter(|(_, field, always)| *always || *field == "preset" || differs(field));
    kept.map(|(name, field, _)| (*name, *field)).collect()
}

/// The drawing that says it all; what was not run has no number in it.
fn board_of(board: &BoardSpec, rows: &[Row]) -> Board {
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
        note: board.note.clone(),
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

fn lines(plot: &Plot, x: &str, title: String, rows: &[&Row]) -> Result<String> {
    let series = distinct(rows.iter().copied(), &plot.series).into_iter().map(|name| {
        let of_series = rows.iter().filter(|row| row.text(&plot.series).as_ref() == Some(&name));
        let mut points: Vec<_> = of_series.filter_map(|row| Some((row.number(x)?, row.number(&plot.y)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points, mark: Mark::Both }
    });
    let words = |field: &str| field.replace('_', " ");
    let scale = if plot.log { Scale::Log } else { Scale::Linear };
    let unit = if plot.unit.is_empty() { words(&plot.y) } else { format!("{}, {}", words(&plot.y), plot.unit) };
    Chart { title, x: (words(x), Scale::Linear), y: (unit, scale), series: series.collect() }.svg()
}

fn bars(plot: &Plot, title: String, rows: &[&Row]) -> String {
    let row = |row: &&Row| (row.text(&plot.series).unwrap_or_default(), vec![row.number(&plot.y).unwrap_or(f64::NAN)]);
    let rows = rows.iter().map(row).collect();
    Bars { title, unit: plot.unit.clone(), rows, groups: Vec::new(), log: plot.log }.svg()
}
