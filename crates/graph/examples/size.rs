//! Measures a graph of the size of the paper's: 366,000 nodes and 925,000 edges on a file.
//!
//!     cargo run --release -p picaflor-graph --example size -- FILE build     makes it at once, closes it
//!     cargo run --release -p picaflor-graph --example size -- FILE apply     makes it by changes, closes it
//!     cargo run --release -p picaflor-graph --example size -- FILE open      opens, publishes, closes
//!     cargo run --release -p picaflor-graph --example size -- FILE crash     opens, changes, dies
//!
//! A number behind these multiplies the size.

use std::{error::Error, sync::Arc, time::Instant};

use picaflor_device::{FileDevice, OpenOptions};
use picaflor_graph::{Change, Graph, GraphOptions};

const NODES: u64 = 366_000;
const EDGES: u64 = 925_000;

/// A tenth are fragments of the lowest level; the others are built from some that come before them.
fn change(number: u64, nodes: u64) -> Change {
    let mix = |salt: u64| (number * 7 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let leaves = nodes / 10;
    let wanted = if number < leaves { 0 } else { (EDGES * 10 / 9 / (NODES / 10) + mix(9) % 10) / 10 };
    // One in ten comes from among the thousand that everybody uses.
    let pick = |salt| if mix(salt) % 10 == 0 { mix(salt + 10) % 1000 } else { mix(salt + 20) % number };
    let mut dependencies: Vec<String> = (0..wanted).map(|salt| name(pick(salt))).collect();
    dependencies.sort();
    dependencies.dedup();
    Change::Put { name: name(number), page: number * 2 > nodes, dependencies, expiry: None }
}

fn name(number: u64) -> String {
    format!("/olympics/2000/results/athletics/event-{number:07}/index.html")
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, what, rest @ ..] = &arguments[..] else { return Err("FILE and build, apply, open or crash".into()) };
    let times: u64 = rest.first().map_or(Ok(1), |times| times.parse())?;
    let nodes = NODES * times;
    let options = OpenOptions { capacity: Some(times << 30), create: true, block_size: 512, ..OpenOptions::default() };
    let device = Arc::new(FileDevice::open(path, options)?);
    let memory = 64 << 20;
    let began = Instant::now();
    let options = GraphOptions { memory, nodes: nodes as u32, ..GraphOptions::default() };
    let graph = if what == "build" {
        let folder = std::path::Path::new(path).parent().filter(|it| !it.as_os_str().is_empty());
        let all = (0..nodes).map(|number| change(number, nodes));
        let (graph, built) = Graph::build(device, &options, folder.unwrap_or(".".as_ref()), all)?;
        println!("{built:?} in {:?}", began.elapsed());
        graph
    } else {
        Graph::open(device, &options)?
    };
    println!("open {:?}", began.elapsed());
    if what == "apply" {
        let began = Instant::now();
        let mut edges = 0;
        for from in (0..nodes).step_by(400_000) {
            let changes: Vec<Change> = (from..nodes.min(from + 400_000)).map(|number| change(number, nodes)).collect();
            edges += changes.iter().map(edges_of).sum::<usize>();
            graph.apply(&changes)?;
        }
        println!("{nodes} nodes and {edges} edges in {:?}", began.elapsed());
    }
    let changed: Vec<String> = (0..100).map(|n| name(nodes / 2 + n * 1009)).collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    for round in 1..=3 {
        let began = Instant::now();
        let rebuilt = graph.publish(&changed)?.len();
        println!("publish of 100, round {round}: {rebuilt} to rebuild in {:?}", began.elapsed());
    }
    println!("records in memory: {} bytes of {memory}; {:?}", graph.cached_bytes(), graph.space()?);
    if what == "crash" {
        let changes: Vec<Change> = (0..100).map(|n| change(nodes / 3 + n, nodes)).collect();
        graph.apply(&changes)?;
        std::process::abort();
    }
    let began = Instant::now();
    graph.close()?;
    println!("close {:?}", began.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("no VmHWM here"));
    Ok(())
}

fn edges_of(change: &Change) -> usize {
    match change {
        Change::Put { dependencies, .. } => dependencies.len(),
        Change::Remove { .. } => 0,
    }
}
