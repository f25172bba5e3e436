//! Experiments: those that come with the lab are right, run, and give the same bytes whoever runs them.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{fs, num::NonZero};

use picaflor_lab::experiment::{self, Spec};

const SMALL: &str = r#"
title = "Small"
question = "Is it repeatable?"
workload = "dec"
replay = "method"
gets = 3000
first_level_mib = 1
memory_mib = 16
disk_mib = [32]
utilisation = [0.6]
presets = ["picaflor", "stream-pack"]
devices = ["memory", "barracuda4"]
seeds = [1, 2]

[[plot]]
title = "Requests a second"
y = "gets_per_second"
each = "device"
"#;

#[test]
fn those_that_come_with_the_lab_are_right() {
    let all = experiment::all().unwrap();
    assert!(all.len() > 4);
    for spec in all {
        assert!(!spec.title.is_empty() && !spec.question.is_empty(), "{}", spec.name);
        assert_eq!(experiment::find(&spec.name).unwrap().title, spec.title);
    }
    assert!(experiment::find("nothing").unwrap_err().to_string().contains("quick"), "it names those there are");
    let wrong = Spec::parse("x", &SMALL.replace("stream-pack", "stream-park")).unwrap_err().to_string();
    assert!(wrong.contains("stream-park") && wrong.contains("buddy"), "{wrong}");
    let wrong = Spec::parse("x", &SMALL.replace("disk_mib", "disk_mb")).unwrap_err().to_string();
    assert!(wrong.contains("disk_mb"), "{wrong}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let spec = Spec::parse("small", SMALL).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = ["results.json", "results.csv", "report.html"];
    let run = |jobs: usize| {
        let rows = experiment::run(&spec, NonZero::new(jobs), &|_, _| {}).unwrap();
        experiment::write(&spec, &rows, folder.path()).unwrap();
        (rows, files.map(|name| fs::read_to_string(folder.path().join(name)).unwrap()))
    };
    let (rows, first) = run(1);
    let (_, again) = run(3);
    assert!(first == again, "whatever the number of threads");
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in &rows {
        let outcome = &row.outcome;
        assert_eq!((outcome.gets, outcome.lost, outcome.refused), (3000, 0, 0), "{} on {}", row.preset, row.device);
        assert!(outcome.writes > 1000 && outcome.reads > 0, "{outcome:?}");
        assert_eq!(outcome.seconds > 1.0, row.device == "barracuda4", "memory takes no time, a disk does: {outcome:?}");
    }
    let [one, two] = [&rows[0].outcome, &rows[1].outcome];
    assert_ne!(one.writes, two.writes, "another seed is another stream");
    assert!(
        first[2].contains("<svg") && !first[2].contains("http://") || first[2].contains("www.w3.org"),
        "a page alone"
    );
}
