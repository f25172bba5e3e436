//! What is wrong with an experiment is said before it runs, and by its name; what runs is what was asked for.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::fs;

use picaflor_lab::{
    experiment::{self, Ready, Spec},
    fs::FsProfile,
    trace::Report,
};

const SMALL: &str = r#"
title = "Small"
question = "Is it refused?"
workload = "dec"
replay = "cache"
gets = 3000
memory_mib = 16
disk_mib = [32]
presets = ["picaflor"]
devices = ["barracuda4"]

[[plot]]
title = "Hits a second"
y = "hits_per_second"
"#;

fn with(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replace(from, to)
}

/// Why this text is refused, at the latest when it is made ready.
fn refused(text: &str) -> String {
    let ready = Spec::parse("x", text).and_then(|spec| Ready::of(&spec).map(drop));
    ready.expect_err(text).to_string()
}

#[test]
fn files_that_would_run_nothing_or_something_else_are_refused() {
    for (from, to, said) in [
        ("disk_mib = [32]", "disk_mib = []", "disk_mib is empty"),
        ("disk_mib = [32]", "disk_mib = [32]\nseeds = []", "seeds is empty"),
        ("disk_mib = [32]", "disk_mib = [32]\nhints = []", "hints is empty"),
        ("disk_mib = [32]", "disk_mib = [32]\npages_kib = []", "pages_kib is empty"),
        ("disk_mib = [32]", "disk_mib = [32]\npages_kib = [[16]]", "through damelo"),
        ("disk_mib = [32]", "disk_mib = [0]", "from 1"),
        ("disk_mib = [32]", "disk_mib = [9223372036854775807]", "disk_mib"),
        ("disk_mib = [32]", "disk_mib = [32]\nfirst_level_mib = 100000000000000", "first_level_mib"),
        ("gets = 3000", "gets = 0", "at least 1"),
        ("gets = 3000", "operations = 0", "at least 1"),
        ("y = \"hits_per_second\"", "y = \"hits_per_secnd\"", "hits_per_secnd"),
        ("y = \"hits_per_second\"", "y = \"preset\"", "no number \"preset\""),
        ("y = \"hits_per_second\"", "y = \"hits_per_second\"\neach = \"devices\"", "no field \"devices\""),
        ("[[plot]]", "[sites]\nharpageloads = 3\n[[plot]]", "har-pageloads"),
        ("[[plot]]", "[sites]\nhar-pageloads = 3\n[[plot]]", "a workload of this experiment"),
        ("\"dec\"", "\"dex\"", "the workloads are: dec, isp"),
        ("\"barracuda4\"", "\"barracuda5\"", "barracuda4"),
        ("\"picaflor\"", "\"picaflor\", \"squid\"", "name a file_system"),
    ] {
        let why = refused(&with(from, to));
        assert!(why.contains(said), "{to}: {why}");
    }
}

#[test]
fn a_store_that_is_larger_than_its_disk_is_refused() {
    let why = refused(&with("disk_mib = [32]", "disk_mib = [32, 8192]"));
    assert!(why.contains("a store of 8192 MiB") && why.contains("the device has 4095"), "{why}");
    // What does fit is what runs.
    let spec = Spec::parse("x", &with("disk_mib = [32]", "disk_mib = [4095]")).unwrap();
    assert!(Ready::of(&spec).is_ok());
    let why = refused(&with("disk_mib = [32]", "disk_mib = [32]\nbuffers = [100000000]"));
    assert!(why.contains("buffers = 100000000") && why.contains("memory_mib"), "{why}");
}

#[test]
fn the_experiments_that_come_with_the_lab_are_ready() {
    for spec in experiment::all().unwrap() {
        let ready = Ready::of(&spec);
        assert!(ready.is_ok(), "{}: {:?}", spec.name, ready.err().map(|error| error.to_string()));
    }
}

#[test]
fn all_presets_are_all_that_the_engine_has() {
    let spec = experiment::find("presets-on-devices").unwrap();
    let missing: Vec<_> =
        picaflor_literature::presets().filter(|name| !spec.presets.iter().any(|own| own == name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_file_system_whose_costs_no_machine_has_is_refused() {
    for (from, to) in [("call_us = ", "call_us = -5 # "), ("change_us = ", "change_us = 1e300 # ")] {
        let text = include_str!("../filesystems/ufs.toml");
        assert!(text.contains(from));
        let why = FsProfile::parse("mine", &text.replace(from, to)).unwrap_err().to_string();
        assert!(why.contains("has to be from 0"), "{why}");
    }
}

#[test]
fn where_no_time_passes_there_are_no_rates() {
    let rows = experiment::run(&Spec::parse("x", &with("barracuda4", "memory")).unwrap(), None, &|_, _| {}).unwrap();
    let row = &rows[0];
    assert_eq!((row.number("hits_per_second"), row.text("hits_per_second").unwrap()), (None, String::new()));
    assert!(row.number("hits").unwrap() > 0.0);
}

/// 300 requests for 100 objects, and some lines that make no sense.
fn log(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("a,b.csv");
    let lines: String = (0..300).map(|n| format!("{n},{},{}\n", n % 100, 1000 + n % 100)).collect();
    fs::write(&path, format!("time,obj_id,size\n{lines}1,1,-100\nx\n")).unwrap();
    path.display().to_string()
}

#[test]
fn a_trace_of_ones_own_is_read_once_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let text = with("\"dec\"", &format!("{:?}", log(&folder))).replace("gets = 3000", "seeds = [1, 2]");
    let spec = Spec::parse("own", &text).unwrap();
    let ready = Ready::of(&spec).unwrap();
    let told: Vec<_> = ready.traces().iter().flat_map(Report::told).collect();
    assert!(told[0].contains("csv, 303 lines, 2 bad") && told[1].contains("line 302: no number of bytes"), "{told:?}");
    let steps = std::sync::Mutex::new((0, 0));
    let rows = ready.run(None, &|more, total| {
        let mut steps = steps.lock().unwrap();
        *steps = (steps.0 + more, total);
    });
    let rows = rows.unwrap();
    assert_eq!(*steps.lock().unwrap(), (600, 600), "what is to be done is known, and in the end it is done");
    experiment::write(&spec, ready.traces(), &rows, folder.path()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let table = read("results.csv");
    let mut lines = table.lines();
    let fields = lines.next().unwrap().split(',').count();
    for line in lines {
        let quoted = format!("\"{}\"", spec.workload[0]);
        assert!(line.contains(&quoted), "{line}");
        assert_eq!(line.replace(&quoted, "").split(',').count(), fields, "a name with a comma is one field: {line}");
    }
    let report = read("report.html");
    assert!(report.contains("303 lines, 2 bad") && report.contains("memory 16 MiB") && report.contains("replay cache"));
    assert!(report.contains("Not its own: seek curve: of ST32171W"), "what of the disk is another's");
    assert!(report.contains(">picaflor, seed 1<") && report.contains(">picaflor, seed 2<"), "labels tell bars apart");
    assert!(read("results.json").contains("\"memory_mib\": 16") && read("results.json").contains("\"bad\": 2"));
}

#[test]
fn a_quick_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::parse("x", &with("gets = 3000", "gets = 300000")).unwrap().quickly();
    let rows = experiment::run(&spec, None, &|_, _| {}).unwrap();
    assert_eq!(rows[0].outcome.gets, 3000);
    experiment::write(&spec, &[], &rows, folder.path()).unwrap();
    assert!(fs::read_to_string(folder.path().join("report.html")).unwrap().contains("A quick look: 0.01 of all"));
    assert!(fs::read_to_string(folder.path().join("results.json")).unwrap().contains("\"quick\": true"));
}
