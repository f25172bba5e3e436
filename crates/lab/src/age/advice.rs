//! What a user should choose for objects of a size, and when copying them anew pays.

use super::{
    compare::{disks, groups, mean_of, on_disk},
    kind::Kind,
    run::{Aged, Sample},
};
use crate::draw::short;

/// From such a share of the young volume's rate on, a copy is said to pay.
const WORN: f64 = 0.8;
/// Rates closer than this are one.
const SAME: f64 = 1.05;

/// Sentences, the most useful first.
#[must_use]
pub fn of(all: &[Aged]) -> Vec<String> {
    let Some(disk) = disks(all).first().copied() else { return Vec::new() };
    let mut lines = Vec::new();
    for (what, cases) in groups(all) {
        lines.extend(best(&what, &cases, disk));
        lines.extend(cases.iter().filter_map(|aged| worn(&what, aged, disk)));
        lines.extend(announced(&what, &cases));
    }
    lines.extend(break_even(all, disk));
    lines
}

/// What reads fastest when all are as old as the youngest of the last looks.
fn best(what: &str, cases: &[&Aged], disk: &str) -> Option<String> {
    let complete: Vec<_> = cases.iter().filter(|aged| aged.ended.is_none()).collect();
    let rate = |aged: &Aged| on_disk(aged.samples.last()?, disk);
    let mut rates: Vec<_> = complete.iter().filter_map(|aged| Some((rate(aged)?, aged.case.way()))).collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let ((first, name), (second, after)) = (rates.first()?, rates.get(1)?);
    let age = complete.first()?.samples.last()?.age;
    if first / second < SAME {
        let alike: Vec<_> = rates.iter().take_while(|one| first / one.0 < SAME).map(|one| &*one.1).collect();
        return Some(format!(
            "{what}: at age {age:.0}, these read alike from {disk}, at {} MB/s: {}.",
            short(*first),
            alike.join(", ")
        ));
    }
    let (first, second) = (short(*first), short(*second));
    Some(format!("{what}: at age {age:.0}, {name} reads fastest from {disk}, {first} MB/s; next is {after}, {second}."))
}

/// From which age on to copy.
fn worn(what: &str, aged: &Aged, disk: &str) -> Option<String> {
    let young = on_disk(aged.samples.first()?, disk)?;
    let tired = aged.samples.iter().find(|sample| on_disk(sample, disk).is_some_and(|rate| rate < young * WORN))?;
    let last = aged.samples.last()?;
    let now = on_disk(last, disk)?;
    let parts = |sample: &Sample| mean_of(sample).map_or("?".into(), |mean| format!("{mean:.1}"));
    Some(format!(
        "{what}: {} comes to {} fragments an object at age {:.0}. From age {:.0} on it pays to defragment or copy: reads \
         from {disk} fell from {} to {} MB/s, and a copy has them back.",
        aged.case.way(),
        parts(last),
        last.age,
        tired.age,
        short(young),
        short(now),
    ))
}

/// What it costs not to say how long an object will be.
fn announced(what: &str, cases: &[&Aged]) -> Vec<String> {
    let pairs = cases.iter().filter(|aged| aged.case.announce && aged.case.candidate.knows_requests());
    let lines = pairs.filter_map(|told| {
        let mut silent = told.case.clone();
        silent.announce = false;
        let silent = cases.iter().find(|aged| aged.case == silent)?;
        let parts = |aged: &Aged| mean_of(aged.samples.last()?);
        let (with, without) = (parts(told)?, parts(silent)?);
        let name = silent.case.way();
        Some(match without / with > SAME {
            true => {
                format!("{what}: {name} comes to {without:.2} fragments; told the length beforehand, to {with:.2}.")
            }
            false => format!(
                "{what}: {name} comes to {without:.2} fragments, and told the length beforehand hardly to others, {with:.2}."
            ),
        })
    });
    lines.collect()
}

/// Whether files or a database are better for objects of a size, at the first look and at the last.
fn break_even(all: &[Aged], disk: &str) -> Option<String> {
    let fastest = |aged: &[&Aged], last: bool, is_wanted: fn(Kind) -> bool| {
        let of = aged.iter().filter(|aged| aged.ended.is_none() && is_wanted(aged.case.candidate));
        let rates =
            of.filter_map(|aged| on_disk(if last { aged.samples.last()? } else { aged.samples.first()? }, disk));
        rates.max_by(f64::total_cmp)
    };
    let verdict = |cases: &[&Aged], last| {
        let (files, rows) = (fastest(cases, last, Kind::is_files)?, fastest(cases, last, Kind::is_database)?);
        Some(match files / rows {
            ratio if ratio > SAME => "files",
            ratio if ratio < 1.0 / SAME => "the database",
            _ => "either",
        })
    };
    let groups = groups(all);
    let of = groups.iter().filter_map(|(what, cases)| {
        Some(format!("{what}: {} when young, {} when old", verdict(cases, false)?, verdict(cases, true)?))
    });
    let lines: Vec<_> = of.collect();
    (!lines.is_empty()).then(|| format!("Files or a database, by reads from {disk}: {}.", lines.join("; ")))
}
