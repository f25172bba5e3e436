//! What the graph answers, against one in memory, and what a crash leaves of it.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use picaflor_device::{AlignedBuf, CountedDevice, Device, MemoryDevice};
use picaflor_format::{
    BLOCK,
    htod::{SECTOR, check_sector},
};
use picaflor_graph::{Change, Graph, GraphError, GraphOptions};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{HashTables, HtodOptions},
};

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_size(64 << 20, 512))
}

fn options() -> GraphOptions {
    GraphOptions { memory: 256 << 10, nodes: 200, seed: Some(1) }
}

fn open(device: &Arc<dyn Device>) -> Graph {
    Graph::open(Arc::clone(device), &options()).unwrap()
}

fn put(name: &str, dependencies: &[&str]) -> Change {
    let dependencies = dependencies.iter().map(|&name| name.to_owned()).collect();
    Change::Put { name: name.to_owned(), page: name.ends_with(".html"), dependencies, expiry: None }
}

#[test]
fn a_site_is_rebuilt_in_the_order_of_its_parts() {
    let device = memory();
    let graph = open(&device);
    let site = [
        put("medal", &[]),
        put("flag", &[]),
        put("table", &["medal", "flag"]),
        put("country.html", &["table", "flag"]),
        put("home.html", &["table"]),
        put("about.html", &[]),
    ];
    graph.apply(&site).unwrap();
    let rebuilt = graph.publish(&["medal"]).unwrap();
    assert_eq!(rebuilt[0], "table");
    assert_eq!(
        rebuilt.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        ["table", "country.html", "home.html"].into()
    );
    assert_eq!(graph.publish(&["about.html", "nobody"]).unwrap(), Vec::<String>::new());
    assert_eq!(graph.publish(&["table", "medal"]).unwrap()[0], "table", "it changed, and is built from what changed");
    graph.close().unwrap();
    let graph = open(&device);
    assert_eq!(graph.publish(&["medal"]).unwrap().len(), 3);
    graph.apply(&[put("home.html", &["flag"]), Change::Remove { name: "country.html".to_owned() }]).unwrap();
    assert_eq!(graph.publish(&["medal"]).unwrap(), ["table"]);
    assert_eq!(graph.dependents("flag").unwrap().unwrap().len(), 2);
    assert_eq!(graph.node("country.html").unwrap(), None);
}

#[test]
fn cycles_are_refused_with_the_path_and_change_nothing() {
    let graph = open(&memory());
    graph.apply(&[put("a", &[]), put("b", &["a"]), put("c", &["b"])]).unwrap();
    let refused = graph.apply(&[put("d", &["c"]), put("a", &["d"])]).unwrap_err();
    let GraphError::Cycle(path) = &refused else { panic!("{refused}") };
    assert_eq!(path, &["a", "d", "c", "b", "a"]);
    assert_eq!(graph.node("d").unwrap(), None);
    assert!(matches!(graph.apply(&[put("a", &["a"])]), Err(GraphError::Cycle(_))));
    assert!(matches!(graph.apply(&[put("x", &["y"])]), Err(GraphError::Unknown(name)) if name == "y"));
    // Turned round within one call it is none.
    graph.apply(&[put("c", &[]), put("b", &["c"]), put("a", &["b"])]).unwrap();
    assert_eq!(graph.publish(&["c"]).unwrap(), ["b", "a"]);
}

#[test]
fn pages_expire_when_they_said() {
    let graph = open(&memory());
    let page = |name: &str, expiry| Change::Put { name: name.to_owned(), page: true, dependencies: Vec::new(), expiry };
    graph.apply(&[page("a", Some(1000)), page("b", Some(90_000)), page("c", None)]).unwrap();
    assert_eq!(graph.expired(999).unwrap(), Vec::<String>::new());
    assert_eq!(graph.expired(1000).unwrap(), ["a"]);
    graph.apply(&[page("a", Some(2000)), page("b", None)]).unwrap();
    assert_eq!(graph.expired(1500).unwrap(), Vec::<String>::new());
    assert_eq!(graph.expired(100_000).unwrap(), ["a"]);
    assert_eq!(graph.node("a").unwrap().unwrap().expiry, Some(2000));
}

#[test]
fn thousands_of_dependents_lie_in_chunks_and_come_back() {
    let device = memory();
    let graph = open(&device);
    graph.apply(&[put("header", &[])]).unwrap();
    for round in 0..12 {
        let pages: Vec<Change> = (0..250).map(|n| put(&format!("{round}/{n}.html"), &["header"])).collect();
        graph.apply(&pages).unwrap();
    }
    assert_eq!(graph.publish(&["header"]).unwrap().len(), 3000);
    let leave: Vec<Change> = (0..250).map(|n| put(&format!("3/{n}.html"), &[])).collect();
    graph.apply(&leave).unwrap();
    assert_eq!(graph.publish(&["header"]).unwrap().len(), 2750);
    assert!(graph.cached_bytes() <= 128 << 10, "{}", graph.cached_bytes());
    graph.close().unwrap();
    assert_eq!(open(&device).dependents("header").unwrap().unwrap().len(), 2750);
}

/// What each name is built from.
type Model = BTreeMap<String, BTreeSet<String>>;

/// Some nodes are put, built from what is there, and one is removed every other time.
fn changes(step: u64, known: &Model) -> Vec<Change> {
    let number = |salt: u64| (step.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(salt as u32 * 7) >> 20) % 60;
    let mut known = known.clone();
    let mut changes = Vec::new();
    for salt in 0..4 {
        let level = number(salt);
        let change = if salt == 1 && step.is_multiple_of(2) {
            Change::Remove { name: format!("n{level}") }
        } else {
            let below = (1..4).map(|it| number(salt * 5 + it)).filter(|&it| it < level).map(|it| format!("n{it}"));
            let dependencies: Vec<String> = below.filter(|name| known.contains_key(name)).collect();
            let dependencies: Vec<&str> = dependencies.iter().map(String::as_str).collect();
            put(&format!("n{level}"), &dependencies)
        };
        model(&mut known, std::slice::from_ref(&change));
        changes.push(change);
    }
    changes
}

fn model(model: &mut Model, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put { name, dependencies, .. } => {
                model.insert(name.clone(), dependencies.iter().cloned().collect());
            }
            Change::Remove { name } => {
                model.remove(name);
                model.values_mut().for_each(|of| of.retain(|it| it != name));
            }
        }
    }
}

fn check(graph: &Graph, model: &Model) -> Result<(), String> {
    for (name, dependencies) in model {
        let about = graph.node(name).unwrap().ok_or_else(|| format!("{name} is gone"))?;
        let found: BTreeSet<String> = about.dependencies.into_iter().collect();
        if found != *dependencies {
            return Err(format!("{name} is built from {found:?}, expected {dependencies:?}"));
        }
        let mut expected: BTreeSet<&String> = BTreeSet::new();
        let mut stack = vec![name];
        while let Some(at) = stack.pop() {
            for (dependent, of) in model {
                if of.contains(at) && expected.insert(dependent) {
                    stack.push(dependent);
                }
            }
        }
        let order = graph.publish(&[name]).unwrap();
        if order.iter().collect::<BTreeSet<_>>() != expected || order.len() != expected.len() {
            return Err(format!("{name} rebuilds {order:?}, expected {expected:?}"));
        }
        for (index, rebuilt) in order.iter().enumerate() {
            if order[index..].iter().any(|later| model[rebuilt].contains(later)) {
                return Err(format!("{rebuilt} comes before what it is built from"));
            }
        }
    }
    Ok(())
}

/// What is there of the last call, of which a crash left each change made or not.
fn found(graph: &Graph, (before, after): (&Model, &Model), last: &[Change]) -> Result<Model, String> {
    let mut found = Model::new();
    let put: BTreeSet<&String> =
        last.iter().filter_map(|it| if let Change::Put { name, .. } = it { Some(name) } else { None }).collect();
    for name in before.keys().chain(after.keys()) {
        match graph.node(name).unwrap() {
            Some(about) => drop(found.insert(name.clone(), about.dependencies.into_iter().collect::<BTreeSet<_>>())),
            None if before.contains_key(name) && after.contains_key(name) && !put.contains(name) => {
                return Err(format!("{name} is gone"));
            }
            None => {}
        }
    }
    for (name, is) in &found {
        // Without what is not there: removed, or not put.
        let there = |of: &BTreeSet<String>| of.iter().filter(|it| found.contains_key(*it)).cloned().collect();
        let states: Vec<BTreeSet<String>> = [before, after].iter().filter_map(|it| it.get(name)).map(there).collect();
        // A removal takes a node from all at once.
        let expected = if put.contains(name) { &states[..] } else { &states[..1] };
        if !expected.contains(is) {
            return Err(format!("{name} is built from {is:?}, expected one of {expected:?}"));
        }
    }
    Ok(found)
}

#[test]
fn a_crash_at_any_operation_leaves_each_change_made_or_not() {
    for point in (1..400).step_by(3) {
        let device = FaultyDevice::new(memory(), point);
        let as_device: Arc<dyn Device> = Arc::new(device.clone());
        let mut before = Model::new();
        let mut after = Model::new();
        let mut last = Vec::new();
        let graph = open(&as_device);
        let all: Vec<Change> = (0..60).map(|n| put(&format!("n{n}"), &[])).collect();
        graph.apply(&all).unwrap();
        model(&mut before, &all);
        device.add(Rule::nth(Fault::Crash(On::Any), point));
        for step in 0..20 {
            last = changes(step + point, &before);
            after.clone_from(&before);
            model(&mut after, &last);
            if graph.apply(&last).is_err() {
                break;
            }
            before.clone_from(&after);
        }
        drop(graph);
        device.clear_rules();
        device.revive().unwrap();
        let graph = open(&as_device);
        let found = found(&graph, (&before, &after), &last).unwrap_or_else(|what| panic!("point {point}: {what}"));
        check(&graph, &found).unwrap_or_else(|what| panic!("point {point}: {what}"));
        graph.mend().unwrap();
        check(&graph, &found).unwrap_or_else(|what| panic!("point {point}, mended: {what}"));
    }
}

#[test]
fn a_crash_in_a_removal_makes_it_or_not_and_nobody_is_built_from_who_comes_next() {
    let (mut gone, mut there) = (0, 0);
    for (point, seed) in (1..16).flat_map(|point| (0..12).map(move |seed| (point, seed))) {
        let what = format!("point {point}, seed {seed}");
        let device = FaultyDevice::new(memory(), seed);
        let as_device: Arc<dyn Device> = Arc::new(device.clone());
        let graph = open(&as_device);
        let pages: Vec<String> = (0..8).map(|n| format!("{n}.html")).collect();
        let all: Vec<Change> =
            std::iter::once(put("part", &[])).chain(pages.iter().map(|name| put(name, &["part"]))).collect();
        graph.apply(&all).unwrap();
        device.add(Rule::nth(Fault::Crash(On::Any), point));
        drop((graph.apply(&[Change::Remove { name: "part".to_owned() }]), graph));
        device.clear_rules();
        device.revive().unwrap();
        let graph = open(&as_device);
        let parts = |graph: &Graph, name: &String| graph.node(name).unwrap().unwrap().dependencies;
        let is_there = graph.node("part").unwrap().is_some();
        for name in &pages {
            assert_eq!(!parts(&graph, name).is_empty(), is_there, "{what}: {name}");
        }
        (gone, there) = (gone + u64::from(!is_there), there + u64::from(is_there));
        // One of so many comes to where the part was.
        let fresh: Vec<String> = (0..60).map(|n| format!("fresh {n}")).collect();
        let names: Vec<&str> = pages.iter().map(String::as_str).collect();
        for name in &fresh {
            graph.apply(&[put(name, &names)]).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        for name in &fresh {
            assert_eq!(graph.dependents(name).unwrap().unwrap(), Vec::<String>::new(), "{what}: {name}");
        }
        assert_eq!(graph.publish(&names[..1]).unwrap().len(), fresh.len(), "{what}");
    }
    assert!(gone > 20 && there > 20, "{gone} {there}");
}

#[test]
fn a_crash_while_edges_are_turned_round_leaves_no_cycle() {
    let names: Vec<String> = (0..16).map(|n| format!("n{n}")).collect();
    // Each is built from the next; then each from the one before.
    let chain = |names: &[String]| -> Vec<Change> {
        let parts = names.windows(2).map(|two| put(&two[1], &[&two[0]]));
        std::iter::once(put(&names[0], &[])).chain(parts).collect()
    };
    let (mut turned, mut half) = (0, 0);
    for (point, seed) in (1..80).chain((80..260).step_by(20)).flat_map(|point| (0..4).map(move |seed| (point, seed))) {
        let device = FaultyDevice::new(memory(), seed);
        let as_device: Arc<dyn Device> = Arc::new(device.clone());
        let graph = open(&as_device);
        let forth: Vec<String> = names.iter().rev().cloned().collect();
        graph.apply(&chain(&forth)).unwrap();
        device.add(Rule::nth(Fault::Crash(On::Any), point));
        // The draft has no cycle on its way either: first all are freed, the last built from them first.
        let freed = names.iter().map(|name| put(name, &[]));
        drop((graph.apply(&freed.chain(chain(&names)).collect::<Vec<_>>()), graph));
        device.clear_rules();
        device.revive().unwrap();
        let graph = open(&as_device);
        let mut found = 0;
        for (at, name) in names.iter().enumerate() {
            let about = graph.node(name).unwrap().unwrap();
            found += usize::from(at > 0 && about.dependencies == [names[at - 1].clone()]);
            let above = graph.publish(&[name]).unwrap();
            let mut seen = BTreeSet::new();
            let mut below = about.dependencies;
            while let Some(next) = below.pop() {
                assert!(next != *name && !above.contains(&next), "point {point}, seed {seed}: {name} meets {next}");
                if seen.insert(next.clone()) {
                    below.extend(graph.node(&next).unwrap().unwrap().dependencies);
                }
            }
        }
        turned += usize::from(found == names.len() - 1);
        half += usize::from(found > 0 && found < names.len() - 1);
    }
    assert!(turned > 5 && half > 5, "{turned} {half}");
}

#[test]
fn readers_go_on_beside_a_writer() {
    let graph = open(&memory());
    graph.apply(&[put("a", &[]), put("b", &["a"])]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| assert!(!graph.publish(&["a"]).unwrap().is_empty())));
        }
        (0..50).for_each(|n| graph.apply(&[put(&format!("{n}.html"), &["b"])]).unwrap());
    });
    assert_eq!(graph.publish(&["a"]).unwrap().len(), 51);
}

/// Device reads of an opening and of a first publish.
fn reads_of(device: &Arc<dyn Device>, options: &GraphOptions, changed: &[&str]) -> (u64, u64, usize) {
    let counted = CountedDevice::new(Arc::clone(device));
    let graph = Graph::open(Arc::new(counted.clone()), options).unwrap();
    let opened = counted.counts().reads;
    let rebuilt = graph.publish(changed).unwrap().len();
    (opened, counted.counts().reads - opened, rebuilt)
}

#[test]
fn what_was_in_memory_at_a_close_is_there_after_it_until_a_change() {
    let device = memory();
    let options = GraphOptions { memory: 4 << 20, nodes: 3000, seed: Some(1) };
    let graph = Graph::open(Arc::clone(&device), &options).unwrap();
    let name = |n: usize| format!("fragment-{n}");
    let nodes: Vec<Change> = (0..3000).map(|n| put(&name(n), &[name(n / 7).as_str()][..usize::from(n > 0)])).collect();
    graph.apply(&nodes).unwrap();
    graph.close().unwrap();
    let changed: Vec<String> = (100..140).map(name).collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    let (opening, reads, rebuilt) = reads_of(&device, &options, &changed);
    assert!(rebuilt >= 280, "{rebuilt}");
    // What is read is where there is no record.
    assert!(reads < 5 && opening < 60, "{reads} reads after an opening with {opening}");
    // Not closed: read like this, the image still holds. Changed, it does not, crash or not.
    let (_, again, same) = reads_of(&device, &options, &changed);
    assert_eq!((again, same), (reads, rebuilt));
    let graph = Graph::open(Arc::clone(&device), &options).unwrap();
    graph.apply(&[put("fragment-2999", &["fragment-120"])]).unwrap();
    drop(graph);
    let (_, reads, after) = reads_of(&device, &options, &changed);
    assert!(reads > 8, "{reads}: records side by side are one read");
    assert_eq!(after, rebuilt + 1);
    let graph = Graph::open(Arc::clone(&device), &options).unwrap();
    assert_eq!(graph.node("fragment-2999").unwrap().unwrap().dependencies, ["fragment-120"]);
    graph.publish(&changed).unwrap();
    graph.close().unwrap();
    assert!(reads_of(&device, &options, &changed).1 < 5, "written anew");
}

#[test]
fn an_image_of_another_version_is_not_read_and_taken_back_before_a_change() {
    let options = GraphOptions { memory: 4 << 20, nodes: 3000, seed: Some(1) };
    let name = |n: usize| format!("fragment-{n}");
    let nodes: Vec<Change> = (0..3000).map(|n| put(&name(n), &[name(n / 7).as_str()][..usize::from(n > 0)])).collect();
    let changed: Vec<String> = (100..140).map(name).collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    // A newer one, the one whose parts were not deflated, one from before there were versions, what cannot be read.
    for said in [&[1, 3, 0, 0, 0, 1, 0, 0, 0, 7][..], &[1, 1, 0, 0, 0, 1, 0, 0, 0], &[1, 1, 0, 0, 0], &[9]] {
        let device = memory();
        let graph = Graph::open(Arc::clone(&device), &options).unwrap();
        graph.apply(&nodes).unwrap();
        graph.close().unwrap();
        let settings = |say: Option<&[u8]>| {
            let (tables, _) =
                HashTables::open(Arc::clone(&device), BlockOptions::default(), HtodOptions::default()).unwrap();
            let settings = tables.table("settings").unwrap();
            say.iter().for_each(|said| settings.put(b"image", said).unwrap());
            let found = (settings.get(b"image").unwrap(), tables.table("image").unwrap().keys().count());
            tables.close().unwrap();
            found
        };
        assert!(settings(Some(said)).1 > 0);
        let (_, reads, rebuilt) = reads_of(&device, &options, &changed);
        assert!(reads > 8 && rebuilt >= 280, "{reads} reads: it is not used");
        let graph = Graph::open(Arc::clone(&device), &options).unwrap();
        graph.apply(&[put("fragment-2999", &["fragment-120"])]).unwrap();
        // As a crash leaves it.
        drop(graph);
        assert_eq!(settings(None), (None, 0), "gone before anything is changed");
        let graph = Graph::open(Arc::clone(&device), &options).unwrap();
        graph.publish(&changed).unwrap();
        graph.close().unwrap();
        let (_, reads, after) = reads_of(&device, &options, &changed);
        assert!(reads < 5 && after == rebuilt + 1, "one of this version took its place: {reads} reads");
    }
}

#[test]
fn a_damaged_index_page_costs_its_own_records_and_no_opening() {
    let options = GraphOptions { memory: 4 << 20, nodes: 3000, seed: Some(1) };
    let name = |n: usize| format!("fragment-{n}");
    let nodes: Vec<Change> = (0..3000).map(|n| put(&name(n), &[name(n / 7).as_str()][..usize::from(n > 0)])).collect();
    // Tables have numbers in the order in which they are made: of nodes, and of the image of memory.
    for (table, is_closed) in [(2, false), (6, true)] {
        let device = memory();
        let graph = Graph::open(Arc::clone(&device), &options).unwrap();
        graph.apply(&nodes).unwrap();
        if is_closed {
            graph.close().unwrap();
        } else {
            drop(graph);
        }
        let mut image = AlignedBuf::zeroed(device.capacity() as usize);
        device.read(0, &mut image).unwrap();
        let is_its_page = |at: &usize| check_sector(&image[*at..*at + BLOCK], table, 0, 0).is_ok();
        let rotten = (0..=image.len() - BLOCK).step_by(SECTOR).find(is_its_page).unwrap();
        device.write(rotten as u64, &AlignedBuf::zeroed(SECTOR)).unwrap();
        let graph = Graph::open(Arc::clone(&device), &options).unwrap();
        let (mut whole, mut damaged) = (0, 0);
        for n in 0..3000 {
            match graph.node(&name(n)) {
                Ok(found) => {
                    whole += 1;
                    assert_eq!(found.unwrap().dependencies.len(), usize::from(n > 0));
                }
                Err(GraphError::Store(picaflor_table::Error::Damaged { .. })) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        println!("table {table}: {whole} whole, {damaged} damaged");
        assert_eq!((whole > 100, damaged > 100), (true, table == 2), "{whole} whole, {damaged} damaged");
    }
}

/// A graph of some levels: what a node is built from comes before it.
fn levels(nodes: usize) -> Vec<Change> {
    let name = |n: usize| format!("node-{n}");
    let of = |n: usize| -> Vec<String> {
        let pick = |salt: usize| (n * 31 + salt).wrapping_mul(0x9e37_79b9) % n.max(1);
        (0..if n < nodes / 10 { 0 } else { n % 4 }).map(|salt| name(pick(salt) % (1 + n / 2))).collect()
    };
    let expiry = |n: usize| n.is_multiple_of(50).then_some(60 * n as u64);
    (0..nodes)
        .map(|n| Change::Put { name: name(n), page: n.is_multiple_of(2), dependencies: of(n), expiry: expiry(n) })
        .collect()
}

#[test]
fn a_graph_that_is_built_at_once_is_the_one_that_changes_make() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = levels(4000);
    let options = GraphOptions { memory: 512 << 10, nodes: 4000, seed: Some(1) };
    let (by_changes, at_once) = (memory(), CountedDevice::new(memory()));
    let changed = Graph::open(by_changes, &options).unwrap();
    changed.apply(&nodes).unwrap();
    let before = at_once.counts();
    let device: Arc<dyn Device> = Arc::new(at_once.clone());
    let (built, said) = Graph::build(Arc::clone(&device), &options, folder.path(), nodes.clone()).unwrap();
    let written = (at_once.counts() - before).write_bytes;
    let edges: usize = nodes.iter().map(|change| dependencies(change).len()).sum();
    assert_eq!((said.nodes, said.edges), (4000, edges as u64));
    // One record of nodes and one of edges for each group, once; and a handful of chunks.
    assert!(said.records <= 2 * 250 + 100, "{said:?}");
    assert!(written < 3 * built.space().unwrap().allocated, "{written} bytes for {:?}", built.space().unwrap());
    assert!(said.held < 512 << 10, "{said:?}");
    let same = |built: &Graph| {
        for change in nodes.iter().step_by(7) {
            let Change::Put { name, .. } = change else { continue };
            assert_eq!(built.node(name).unwrap(), changed.node(name).unwrap(), "{name}");
            let sorted = |graph: &Graph| {
                let mut names = graph.dependents(name).unwrap().unwrap();
                names.sort_unstable();
                names
            };
            assert_eq!(sorted(built), sorted(&changed), "{name}");
        }
        let rebuilt =
            |graph: &Graph| graph.publish(&["node-3", "node-70"]).unwrap().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(rebuilt(built), rebuilt(&changed));
        let expired = |graph: &Graph| graph.expired(60 * 2000).unwrap().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(expired(built), expired(&changed));
    };
    same(&built);
    built.apply(&[put("new", &["node-3"])]).unwrap();
    changed.apply(&[put("new", &["node-3"])]).unwrap();
    built.close().unwrap();
    same(&Graph::open(device, &options).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "what was laid aside is gone");
}

fn dependencies(change: &Change) -> BTreeSet<&String> {
    match change {
        Change::Put { dependencies, .. } => dependencies.iter().collect(),
        Change::Remove { .. } => BTreeSet::new(),
    }
}

#[test]
fn what_cannot_be_built_is_refused_and_half_of_it_is_no_graph() {
    let folder = tempfile::tempdir().unwrap();
    let build = |device: &Arc<dyn Device>, nodes: &[Change]| {
        Graph::build(Arc::clone(device), &options(), folder.path(), nodes.to_vec()).map(drop).unwrap_err()
    };
    let device = memory();
    assert!(matches!(build(&device, &[put("b", &["a"]), put("a", &[])]), GraphError::Unknown(name) if name == "a"));
    let again = Graph::open(Arc::clone(&device), &options()).map(drop).unwrap_err();
    assert!(matches!(again, GraphError::HalfBuilt), "{again}");
    assert!(matches!(build(&memory(), &[put("a", &[]), put("a", &[])]), GraphError::Order(name) if name == "a"));
    let remove = Change::Remove { name: "a".to_owned() };
    assert!(matches!(build(&memory(), &[put("a", &[]), remove]), GraphError::Order(name) if name == "a"));
    assert!(matches!(build(&memory(), &[put("a", &["a"])]), GraphError::Unknown(name) if name == "a"));
    let device = memory();
    open(&device).apply(&[put("a", &[])]).unwrap();
    assert!(matches!(build(&device, &[put("b", &[])]), GraphError::NotBlank));
}

#[test]
fn a_crash_anywhere_in_a_build_or_a_close_leaves_no_wrong_graph() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = levels(300);
    let mut whole = 0;
    for point in 1..200 {
        let device = FaultyDevice::new(memory(), point);
        let as_device: Arc<dyn Device> = Arc::new(device.clone());
        device.add(Rule::nth(Fault::Crash(On::Any), point));
        let done = Graph::build(Arc::clone(&as_device), &options(), folder.path(), nodes.clone())
            .and_then(|(graph, _)| graph.close());
        device.clear_rules();
        device.revive().unwrap();
        match Graph::open(as_device, &options()) {
            // A crash before anything was written leaves a blank device.
            Ok(graph) if graph.node("node-0").unwrap().is_none() => assert!(done.is_err()),
            Ok(graph) => {
                whole += 1;
                for change in &nodes {
                    let Change::Put { name, .. } = change else { continue };
                    let about = graph.node(name).unwrap().unwrap_or_else(|| panic!("point {point}: {name} is gone"));
                    assert_eq!(about.dependencies.iter().collect::<BTreeSet<_>>(), dependencies(change), "{name}");
                }
            }
            Err(error) => assert!(done.is_err() && matches!(error, GraphError::HalfBuilt), "point {point}: {error}"),
        }
    }
    assert!(whole > 3, "{whole}");
}
