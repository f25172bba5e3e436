//! Miss ratios against those of an independent simulator (libCacheSim 0.3.5), on the traces that may be passed on.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::path::Path;

use picaflor_lab::{
    cache::{Policy, replay},
    trace::Trace,
};

/// How far from the reference each policy may be.
fn within(policy: Policy) -> f64 {
    match policy {
        Policy::Lru | Policy::Fifo => 0.0001,
        // Ghosts are counted, not weighed: docs/LAB.md.
        Policy::S3Fifo | Policy::S3Fifo1 => 0.02,
    }
}

#[test]
fn miss_ratios_are_those_of_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reference = std::fs::read_to_string(folder.join("tests/data/reference-miss-ratios.csv")).unwrap();
    let files = [
        ("semicomplete", "../cli/tests/data/semicomplete.csv.gz"),
        ("nasa-jul95-head", "tests/data/nasa-jul95-head.log.gz"),
    ];
    let mut compared = 0;
    for (name, file) in files {
        let mut trace = Trace::load(&[folder.join(file)], None, |_| {}).unwrap();
        trace.settle_sizes();
        for line in reference.lines().skip(1).filter(|line| line.split(',').next() == Some(name)) {
            let fields: Vec<_> = line.split(',').collect();
            let Ok(policy) = fields[1].parse::<Policy>() else { continue };
            let [capacity, requests, bytes] = [3, 4, 5].map(|at| fields[at].parse::<f64>().unwrap());
            let missed = replay(policy, capacity as u64, &trace.requests);
            for (what, ours, theirs) in [("requests", missed.requests, requests), ("bytes", missed.bytes, bytes)] {
                assert!((ours - theirs).abs() <= within(policy), "{line}: {what} {ours:.5}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 2 * 5 * 3, "three policies at five sizes on two traces");
}
