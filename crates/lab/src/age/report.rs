//! What is said of aged volumes: JSON, CSV, and a page with drawings, tables and the map.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    advice,
    compare::{disks, groups, mean_of, on_disk},
    run::{Aged, Sample},
};
use crate::{
    Error, Result,
    draw::{Bars, Chart, Mark, Page, Scale, Series, short},
};

const MAP: &str = include_str!("../../pages/age-map.html");

/// Writes `results.json`, `results.csv` and `report.html` into a folder.
///
/// # Errors
/// If one of them cannot be written.
pub fn write(all: &[Aged], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::file("making", folder))?;
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file("writing", path))
    };
    save("results.json", format!("{:#}\n", json!({ "cases": json(all), "advice": advice::of(all) })))?;
    save("results.csv", csv(all))?;
    save("report.html", page(all)?)
}

/// The results without their maps.
#[must_use]
pub fn json(all: &[Aged]) -> Value {
    let mut value = json!(all);
    let cases = value.as_array_mut().into_iter().flatten();
    for sample in cases.filter_map(|case| case["samples"].as_array_mut()).flatten() {
        sample.as_object_mut().map(|fields| fields.remove("map"));
    }
    value
}

fn csv(all: &[Aged]) -> String {
    let disks: Vec<&str> = disks(all);
    let head = "candidate,object,volume,fill,request,force,announce,writers,deletes,seed,age,objects,live_bytes,lost,\
                fragments,median,p99,max,counted_by,told,unseen,write_mb_s,read_mb_s,written_per_byte";
    let names: String = disks.iter().map(|disk| format!(",{disk}_mb_s")).collect();
    let mut text = format!("{head}{names}\n");
    for aged in all {
        let case = &aged.case;
        for sample in &aged.samples {
            let of = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
            let parts = sample.fragments.as_ref();
            let whole = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
            let mut cells = vec![
                case.candidate.to_string(),
                case.object.to_string(),
                case.volume.to_string(),
                case.fill.to_string(),
                case.request.to_string(),
                case.force.to_string(),
                case.announce.to_string(),
                case.writers.to_string(),
                case.deletes.to_string(),
                case.seed.to_string(),
                of(Some(sample.age)),
                sample.objects.to_string(),
                sample.live_bytes.to_string(),
                sample.lost.to_string(),
                of(parts.map(|parts| parts.mean)),
                whole(parts.map(|parts| parts.median)),
                whole(parts.map(|parts| parts.p99)),
                whole(parts.map(|parts| parts.max)),
                sample.counted_by.clone(),
                of(sample.told),
                of(Some(sample.unseen)),
                of(Some(sample.write_mb_s)),
                of(Some(sample.read_mb_s)),
                of(sample.written_per_byte),
            ];
            cells.extend(disks.iter().map(|disk| of(on_disk(sample, disk))));
            text += &(cells.join(",") + "\n");
        }
    }
    text
}

/// A line for each case.
fn lines(title: String, unit: &str, cases: &[&Aged], of: impl Fn(&Sample) -> Option<f64>) -> Chart {
    let series = cases.iter().map(|aged| Series {
        name: aged.case.way(),
        points: aged.samples.iter().filter_map(|sample| Some((sample.age, of(sample)?))).collect(),
        mark: Mark::Both,
        ..Series::default()
    });
    Chart {
        title,
        x: ("storage age: bytes deleted or replaced for each that lives".into(), Scale::Linear),
        y: (unit.into(), Scale::Linear),
        series: series.filter(|series| !series.points.is_empty()).collect(),
    }
}

fn page(all: &[Aged]) -> Result<String> {
    let mut page = Page::new("How storage ages");
    page.text(
        "Volumes were filled with objects, and objects were replaced by safe writes. A fragment is a part of an object \
         that lies by itself on the volume; an object in one part has one. Storage age is the bytes deleted or replaced \
         for each byte that lives.",
    );
    page.heading("What to choose");
    advice::of(all).iter().for_each(|line| page.text(line));
    let disks = disks(all);
    for (what, cases) in groups(all) {
        page.heading(&what);
        let mut chart = lines("Fragments an object".into(), "fragments", &cases, mean_of);
        chart.series.extend(published(cases[0]));
        page.drawing(&chart.svg()?);
        for disk in &disks {
            let title = format!("Reads in random order, from {disk}");
            page.drawing(&lines(title, "MB/s, simulated", &cases, |sample| on_disk(sample, disk)).svg()?);
        }
        // The first look has the bulk load before it, as in the paper's Figure 4.
        page.drawing(&lines("Safe writes up to each age".into(), "MB/s of this machine", &cases, wrote).svg()?);
        let title = "Reads in random order, on this machine".into();
        page.drawing(&lines(title, "MB/s of this machine", &cases, |sample| Some(sample.read_mb_s)).svg()?);
        page.drawing(&distribution(&cases).svg());
        page.table(
            &[&HEAD[..], &disks].concat(),
            &cases.iter().flat_map(|aged| rows(aged, &disks)).collect::<Vec<_>>(),
        );
        for aged in &cases {
            if let Some(why) = &aged.ended {
                page.text(&format!("{}: {why}.", aged.case.way()));
            }
        }
    }
    for disk in &disks {
        break_even(&mut page, all, disk);
    }
    page.heading("The volumes");
    page.text(
        "Each point is a piece of a volume, from its beginning at the top left, coloured by the objects that take most \
         of it. Rates of this machine are of a file on it, and of whatever else it did.",
    );
    page.part(&map(all));
    Ok(page.finish())
}

/// Which store reads objects of each size fastest at each age: where that changes is the break-even.
fn break_even(page: &mut Page, all: &[Aged], disk: &str) {
    let groups = groups(all);
    let looks = all.iter().map(|aged| aged.samples.len()).max().unwrap_or(0);
    if groups.len() < 2 || all.len() == groups.len() {
        return;
    }
    let fastest = |cases: &[&Aged], look: usize| {
        let rates = cases.iter().filter_map(|aged| Some((on_disk(aged.samples.get(look)?, disk)?, aged.case.way())));
        let best = rates.max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or("-".into(), |(rate, way)| format!("{way}: {}", short(rate)))
    };
    let rows = groups.iter().map(|(what, cases)| {
        std::iter::once(what.clone()).chain((0..looks).map(|look| fastest(cases, look))).collect()
    });
    let ages = all.iter().max_by_key(|aged| aged.samples.len()).map(|aged| &aged.samples);
    let head: Vec<String> = ages.into_iter().flatten().map(|sample| format!("age {:.1}", sample.age)).collect();
    page.heading(&format!("What reads fastest from {disk}, MB/s"));
    let head: Vec<&str> = std::iter::once("").chain(head.iter().map(String::as_str)).collect();
    page.table(&head, &rows.collect::<Vec<_>>());
}

fn wrote(sample: &Sample) -> Option<f64> {
    Some(sample.write_mb_s).filter(|rate| *rate > 0.0)
}

/// What the paper says that such objects tend to.
fn published(aged: &Aged) -> Option<Series> {
    let (case, last) = (&aged.case, aged.samples.last()?.age);
    let (name, parts) = match (case.object.mean() >> 10, case.fill as u64) {
        (256, _) => ("published: NTFS and SQL Server tend to 4", 4.0),
        (10_240, 50) if case.volume < 100 << 30 => ("published: NTFS, 40 GB, 11 to 12", 11.5),
        (10_240, 50) => ("published: NTFS, 400 GB, 4 to 5", 4.5),
        _ => return None,
    };
    Some(Series {
        name: name.into(),
        points: vec![(0.0, parts), (last, parts)],
        mark: Mark::Dashed,
        ..Series::default()
    })
}

/// How many objects lie in how many parts, at the end.
fn distribution(cases: &[&Aged]) -> Bars {
    const ENDS: [(&str, usize, usize); 5] =
        [("1", 1, 1), ("2", 2, 2), ("3 or 4", 3, 4), ("5 to 8", 5, 8), ("more", 9, usize::MAX)];
    let rows = cases.iter().filter_map(|aged| {
        let counts = &aged.samples.last()?.fragments.as_ref()?.histogram;
        let all: u64 = counts.iter().sum();
        let share = |from: usize, to: usize| {
            let part: u64 = counts.iter().enumerate().filter(|(n, _)| (from..=to).contains(n)).map(|one| one.1).sum();
            part as f64 * 100.0 / all.max(1) as f64
        };
        Some((aged.case.way(), ENDS.iter().map(|end| share(end.1, end.2)).collect()))
    });
    Bars {
        title: "Objects by their parts, at the end".into(),
        unit: "%".into(),
        rows: rows.collect(),
        groups: ENDS.iter().map(|end| end.0.into()).collect(),
        log: false,
    }
}

const HEAD: [&str; 9] =
    ["", "age", "fragments", "99 of 100", "most", "by its own word", "write MB/s", "read MB/s", "written a byte"];

fn rows(aged: &Aged, disks: &[&str]) -> Vec<Vec<String>> {
    let shown = |value: Option<f64>| value.map_or("-".into(), short);
    let row = |sample: &Sample| {
        let parts = sample.fragments.as_ref();
        let mut cells = vec![
            aged.case.way(),
            format!("{:.1}", sample.age),
            shown(mean_of(sample)),
            shown(parts.map(|parts| parts.p99 as f64)),
            shown(parts.map(|parts| parts.max as f64)),
            shown(sample.told),
            shown(wrote(sample)),
            shown(Some(sample.read_mb_s)),
            shown(sample.written_per_byte),
        ];
        cells.extend(disks.iter().map(|disk| shown(on_disk(sample, disk))));
        cells
    };
    aged.samples.iter().map(row).collect()
}

fn map(all: &[Aged]) -> String {
    let cases = all.iter().filter(|aged| !aged.samples.is_empty()).map(|aged| {
        let samples = aged
            .samples
            .iter()
            .map(|sample| json!({ "age": sample.age, "fragments": mean_of(sample), "map": sample.map }));
        json!({ "label": aged.case.label(), "samples": samples.collect::<Vec<_>>() })
    });
    // What ends a script would end it in a string too.
    let data = Value::from(cases.collect::<Vec<_>>()).to_string().replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"map-data\">{data}</script>\n{MAP}")
}
