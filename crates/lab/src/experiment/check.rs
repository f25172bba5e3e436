//! What of an experiment's file is wrong by itself, before anything is read or made.

use std::collections::BTreeMap;

use super::{
    Row,
    spec::{Kind, Spec},
};
use crate::{
    run::{Hints, Policies},
    trace::Known,
};

/// Most MiB of anything: a pebibyte, so that no sum of sizes begins again at 0.
const MOST_MIB: u64 = 1 << 30;

/// With what is wrong, and what would be right.
pub(super) fn spec(spec: &Spec) -> Result<(), String> {
    if spec.replay != Kind::Counts && (spec.presets.is_empty() || spec.devices.is_empty()) {
        return Err("presets and devices are needed, one at least of each".into());
    }
    if spec.workload.is_empty() || !(0.0..1.0).contains(&spec.warm) {
        return Err("a workload is needed, and warm is a share below 1".into());
    }
    if spec.utilisation.iter().any(|share| !(0.01..=1.0).contains(share)) {
        return Err("utilisation is a share, from 0.01 to 1".into());
    }
    if spec.files_above && (spec.replay != Kind::Method || spec.threshold.contains(&0)) {
        return Err("files_above is for replays by the method, with a threshold".into());
    }
    if spec.files_above && spec.presets.iter().any(|preset| preset != "buddy") {
        return Err("files_above is for the preset buddy: no other has long objects in files beside others".into());
    }
    if !(spec.quick > 0.0 && spec.quick <= 1.0) {
        return Err("quick is a share, up to 1".into());
    }
    lists(spec)?;
    spec.policies.iter().try_for_each(Policies::check)?;
    sizes(spec)?;
    pages(spec)?;
    names(spec)?;
    fields(spec)
}

/// Of an empty list no case would come, and an empty report.
fn lists(spec: &Spec) -> Result<(), String> {
    let lists = [
        ("disk_mib", spec.disk_mib.is_empty()),
        ("seeds", spec.seeds.is_empty()),
        ("hints", spec.hints.is_empty()),
        ("utilisation", spec.utilisation.is_empty()),
        ("buffers", spec.buffers.is_empty()),
        ("threshold", spec.threshold.is_empty()),
        ("pages_kib", spec.pages_kib.is_empty()),
        ("policies", spec.policies.is_empty()),
        ("a list of hints_of", spec.hints_of.values().any(Vec::is_empty)),
    ];
    match lists.iter().find(|(_, empty)| *empty) {
        Some((name, _)) => Err(format!("{name} is empty, so nothing would be run; leave it out for its default")),
        None => Ok(()),
    }
}

fn sizes(spec: &Spec) -> Result<(), String> {
    let mib = spec.disk_mib.iter().chain([&spec.memory_mib]);
    if mib.clone().any(|&mib| mib == 0) || mib.chain([&spec.first_level_mib]).any(|&mib| mib > MOST_MIB) {
        return Err(format!("disk_mib and memory_mib are from 1 to {MOST_MIB}, first_level_mib up to that"));
    }
    if spec.cluster_kib > 1 << 20 {
        return Err("cluster_kib is at most 1048576".into());
    }
    if spec.gets == Some(0) || spec.operations == Some(0) {
        return Err("gets and operations are at least 1".into());
    }
    Ok(())
}

/// Of which presets, and which there can be. What a cluster cannot be divided into, the engine says.
fn pages(spec: &Spec) -> Result<(), String> {
    let mut all = spec.pages_kib.iter().flatten();
    if spec.pages_kib.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let has_groups = |preset: &String| *spec.hints_of.get(preset).unwrap_or(&spec.hints) == [Hints::Group];
    if spec.replay != Kind::Pages || spec.presets.iter().any(|preset| preset != "damelo" || !has_groups(preset)) {
        return Err("pages_kib is for replays of pages through damelo, with hints = [\"group\"]".into());
    }
    // The engine's own, if nothing is said.
    let cluster = if spec.cluster_kib == 0 { 64 } else { spec.cluster_kib };
    match all.find(|kib| !kib.is_power_of_two() || !(16..=cluster).contains(*kib)) {
        Some(kib) => Err(format!("pages_kib: {kib}, where powers of two from 16 to the {cluster} of a cluster can be")),
        None => Ok(()),
    }
}

fn names(spec: &Spec) -> Result<(), String> {
    for name in spec.presets.iter().chain(spec.hints_of.keys()) {
        if !picaflor_literature::presets().any(|known| known == name) {
            let names: Vec<_> = picaflor_literature::presets().collect();
            return Err(format!("no preset {name:?}; there are: {}", names.join(", ")));
        }
    }
    for (name, &sites) in &spec.sites {
        let is_asked = spec.workload.iter().any(|workload| workload.split('+').any(|one| one == name));
        if Known::named(name).is_none() || !is_asked || sites == 0 {
            let known: Vec<_> = Known::ALL.iter().map(|row| row.0).collect();
            let known = known.join(", ");
            return Err(format!(
                "sites: {name:?} is to be one of {known}, a workload of this experiment, and one site at least"
            ));
        }
    }
    let Some(board) = &spec.board else { return Ok(()) };
    let devices = board.columns.iter().map(|column| &column.0).chain([&board.bars.2]);
    let missing = (devices.map(|name| (name, &spec.devices)))
        .chain(board.rows.iter().map(|row| (&row.0, &spec.presets)))
        .chain([(&board.workload, &spec.workload)])
        .find(|(name, all)| !all.contains(name));
    match missing {
        Some((name, all)) => Err(format!("board: {name:?} is none of {}, which this experiment runs", all.join(", "))),
        None => Ok(()),
    }
}

/// What is drawn has to be a field of the results, and a number if it is a length or a place.
fn fields(spec: &Spec) -> Result<(), String> {
    let fields: BTreeMap<_, _> =
        Row::default().fields().into_iter().map(|(name, value)| (name, value.is_number())).collect();
    let numbers = spec.plot.iter().flat_map(|plot| [Some(&plot.y), plot.x.as_ref()]).flatten();
    let numbers = numbers.chain(spec.board.iter().flat_map(|board| [&board.bars.0, &board.numbers.0]));
    let names = spec.plot.iter().flat_map(|plot| [Some(&plot.series), plot.each.as_ref()]).flatten();
    let wrong = (numbers.map(|name| (name, true)))
        .chain(names.map(|name| (name, false)))
        .find(|(name, number)| fields.get(*name).is_none_or(|is_number| *number && !is_number));
    let Some((name, number)) = wrong else { return Ok(()) };
    let there: Vec<_> = fields.iter().filter(|field| *field.1 || !number).map(|field| field.0.as_str()).collect();
    Err(format!(
        "the results have no {} {name:?} to draw; there are: {}",
        if number { "number" } else { "field" },
        there.join(", ")
    ))
}
