//! Experiments: those that come with the lab are right, run, and give the same bytes on each machine.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{collections::HashSet, fs, num::NonZero};

use picaflor_lab::{
    experiment::{self, Spec},
    synth::Sites,
    trace::{Kind, Known, Request},
};

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
        for name in spec.plot.iter().flat_map(|plot| plot.published.keys()) {
            assert!(spec.presets.iter().chain(&spec.workload).any(|own| own == name), "{}: {name}", spec.name);
        }
    }
    assert!(experiment::find("nothing").unwrap_err().to_string().contains("quick"), "it names those there are");
    let wrong = Spec::parse("x", &SMALL.replace("stream-pack", "stream-park")).unwrap_err().to_string();
    assert!(wrong.contains("stream-park") && wrong.contains("buddy"), "{wrong}");
    let wrong = Spec::parse("x", &SMALL.replace("disk_mib", "disk_mb")).unwrap_err().to_string();
    assert!(wrong.contains("disk_mb"), "{wrong}");
}

#[test]
fn what_a_paper_has_stands_beside_ours_and_not_beside_a_quick_look() {
    let plots = r#"
[plot.published]
stream-pack = [[0, 123456]]

[[plot]]
title = "By utilisation"
x = "target_utilisation"
y = "seconds"
published = { picaflor = [[0.6, 98765]] }
"#;
    let one = SMALL.replace("[1, 2]", "[1]").replace(r#""memory", "#, "");
    let mut spec = Spec::parse("small", &format!("{one}{plots}")).unwrap();
    let rows = experiment::run(&spec, None, &|_, _| {}).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut page = |is_quick| {
        spec.is_quick = is_quick;
        experiment::write(&spec, &[], &rows, folder.path()).unwrap();
        fs::read_to_string(folder.path().join("report.html")).unwrap()
    };
    let (whole, quick) = (page(false), page(true));
    for text in ["123k", ">published<", "as published"] {
        assert!(whole.contains(text) && !quick.contains(text), "{text}");
    }
}

const FILES: &str = r#"
title = "Files"
question = "Does a file for each object cost more?"
workload = "dec"
replay = "method"
gets = 1500
first_level_mib = 1
memory_mib = 16
disk_mib = [32]
utilisation = [0.6]
presets = ["simple", "squid", "multiple-dirs", "buddy"]
devices = ["barracuda4"]

[file_systems]
barracuda4 = "ufs"
"#;

/// An experiment by the method, as a cache of so many gets.
fn as_cache(experiment: &str, gets: u32) -> String {
    experiment.replace("method", "cache").replace("first_level_mib = 1", "").replace("1500", &gets.to_string())
}

#[test]
fn a_file_for_each_object_lies_on_a_modelled_file_system() {
    let rows = experiment::run(&Spec::parse("files", FILES).unwrap(), None, &|_, _| {}).unwrap();
    let [simple, squid, multiple, buddy] = [0, 1, 2, 3].map(|at| &rows[at]);
    assert_eq!((&*simple.file_system, &*buddy.file_system), ("ufs", ""), "only where it is needed");
    for row in [simple, squid, multiple] {
        let outcome = &row.outcome;
        assert_eq!((outcome.lost, outcome.refused, outcome.writes), (0, 0, buddy.outcome.writes), "{}", row.preset);
        // An inode and a block of the directory at least, at once, for each file made or removed.
        let changes = outcome.writes + outcome.deletes;
        assert!(outcome.disk_writes > 2 * changes, "{}: {} {changes}", row.preset, outcome.disk_writes);
        assert!(outcome.seconds > 2.0 * buddy.outcome.seconds, "{}: {}", row.preset, outcome.seconds);
        assert!(outcome.written_per_byte > 2.0, "{}: {}", row.preset, outcome.written_per_byte);
    }
    assert!(squid.outcome.disk_reads > simple.outcome.disk_reads, "4,096 directories are read again and again");
    let without = Spec::parse("files", &FILES.replace("barracuda4 = ", "exos = ")).unwrap();
    let wrong = experiment::run(&without, None, &|_, _| {}).unwrap_err().to_string();
    assert!(wrong.contains("file_system") && wrong.contains("simple"), "{wrong}");
    // SQUID's 4,096 directories alone are as large as this disk.
    let cache = as_cache(&FILES.replace(r#""squid", "#, ""), 9000);
    for row in experiment::run(&Spec::parse("cache", &cache).unwrap(), None, &|_, _| {}).unwrap() {
        let outcome = &row.outcome;
        // One object of 7 MB, a quarter of the disk, finds no room among BUDDY's slots.
        let refused = u64::from(row.preset == "buddy");
        assert!(outcome.refused <= refused && outcome.hits > 1000, "{}: {outcome:?}", row.preset);
        assert!(outcome.utilisation > 0.5, "it was filled: {outcome:?}");
    }
}

#[test]
fn a_cache_of_files_that_evicts_has_an_inode_for_each() {
    let one = FILES
        .replace(r#"["simple", "squid", "multiple-dirs", "buddy"]"#, r#"["multiple-dirs"]"#)
        .replace("[32]", "[64]")
        .replace("barracuda4", "exos")
        .replace("ufs", "extent");
    let cache = as_cache(&one, 40_000);
    let rows = experiment::run(&Spec::parse("cache", &cache).unwrap(), None, &|_, _| {}).unwrap();
    assert!(rows[0].outcome.evicted > 0, "it was not full: {:?}", rows[0].outcome);
}

#[test]
fn all_of_a_large_object_is_read() {
    let text = |cluster: u32| {
        format!(
            "title = 'x'\nquestion = 'x'\nworkload = 'semicomplete'\nreplay = 'cache'\ngets = 5000\nmemory_mib = 16\n\
             disk_mib = [256]\ncluster_kib = {cluster}\npresets = ['picaflor']\ndevices = ['nvme']\n"
        )
    };
    let read = |cluster| {
        let rows = experiment::run(&Spec::parse("large", &text(cluster)).unwrap(), None, &|_, _| {}).unwrap();
        rows[0].outcome.device_read
    };
    // What does not fit in a cluster lies in pieces, and is as long as it was.
    let (in_pieces, whole) = (read(64), read(256));
    assert!(in_pieces * 10 > whole * 7, "{in_pieces} bytes where {whole} are read of whole objects");
}

#[test]
fn a_folder_of_this_machine_is_a_device_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let text = FILES.replace(r#"["barracuda4"]"#, &format!("[{path:?}]")).replace("1500", "400");
    for row in experiment::run(&Spec::parse("real", &text).unwrap(), None, &|_, _| {}).unwrap() {
        assert_eq!((row.outcome.lost, row.outcome.refused), (0, 0), "{}", row.preset);
        assert!(row.outcome.writes > 100 && row.outcome.seconds > 0.0, "{}", row.preset);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let spec = Spec::parse("small", SMALL).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = ["results.json", "results.csv", "report.html"];
    let run = |jobs: usize| {
        let rows = experiment::run(&spec, NonZero::new(jobs), &|_, _| {}).unwrap();
        experiment::write(&spec, &[], &rows, folder.path()).unwrap();
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
    assert!(first[2].contains("<svg"));
    assert_eq!(asks_for(&first[2]), None, "a page alone");
    assert_eq!(asks_for("<img src=\"http://a.org/x.png\">"), Some("src="), "what must be found is found");
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_a_file_for_each_object() {
    let few = FILES.replace("1500", "20000").replace("[0.6]", "[0.2]").replace(r#""simple", "#, "");
    let spec = Spec::parse("files", &few).unwrap();
    let runs = [1, 2, 3].map(|_| experiment::run(&spec, NonZero::new(2), &|_, _| {}).unwrap());
    for rows in &runs {
        assert!(
            rows.iter().all(|row| row.outcome.deletes > 1000),
            "what was removed leaves its mark on tables in memory"
        );
        for (row, first) in rows.iter().zip(&runs[0]) {
            assert_eq!(format!("{:?}", row.outcome), format!("{:?}", first.outcome), "{}", row.preset);
        }
    }
}

/// What in a page has a browser fetch something. A name of a namespace is no address.
fn asks_for(page: &str) -> Option<&'static str> {
    let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    let asking = ["src=", "href=", "<script", "<link", "url(", "@import", "http:", "https:"];
    asking.into_iter().find(|word| page.contains(word))
}

const PAGES: &str = r#"
title = "Pages"
question = "Does the device do as it is told?"
workload = ["pages"]
replay = "pages"
gets = 30000
memory_mib = 24
disk_mib = [512]
presets = ["multiple-dirs", "hummingbird", "picaflor"]
hints = ["none", "group", "collocate"]
devices = ["exos"]

[hints_of]
multiple-dirs = ["server"]
hummingbird = ["none", "collocate"]

[file_systems]
exos = "extent"

[board]
title = "Reads"
note = ["of a page view"]
workload = "pages"
bars = ["device_reads_per_view", "reads", "exos"]
numbers = ["ms_per_view", "milliseconds"]
columns = [["exos", "today"]]
rows = [["picaflor", "none", "nothing", 0], ["picaflor", "collocate", "the page", 1]]
"#;

#[test]
fn what_belongs_together_is_read_together() {
    let spec = Spec::parse("pages", PAGES).unwrap();
    let rows = experiment::run(&spec, None, &|_, _| {}).unwrap();
    assert_eq!(rows.len(), 1 + 2 + 3);
    let of = |workload: &str, preset: &str, hints: &str| {
        let is_it = |row: &&experiment::Row| row.workload == workload && row.preset == preset && row.hints == hints;
        &rows.iter().find(is_it).unwrap().outcome
    };
    for row in &rows {
        let (outcome, first) = (&row.outcome, &of(&row.workload, "picaflor", "none"));
        // The same requests, and the same answers: what differs is what the device had to do for them.
        assert_eq!((outcome.views, outcome.hits, outcome.refused), (first.views, first.hits, 0), "{}", row.preset);
        assert!(outcome.views > 50 && outcome.device_reads_per_view > 0.0 && outcome.ms_per_view > 0.0);
    }
    let reads = |workload, preset, hints| of(workload, preset, hints).device_reads_per_view;
    for preset in ["picaflor", "hummingbird"] {
        let (with, without) = (reads("pages", preset, "collocate"), reads("pages", preset, "none"));
        assert!(with < 0.8 * without, "{preset}: {with} {without}");
    }
    let files = reads("pages", "multiple-dirs", "server");
    assert!(reads("pages", "picaflor", "none") < files, "{files}");
    let exact =
        |hints| (reads("pages", "picaflor", hints) * of("pages", "picaflor", hints).views as f64).round() as u64;
    assert_eq!(["none", "group", "collocate"].map(exact), [2634, 1313, 869], "a seed's own counts");
    let folder = tempfile::tempdir().unwrap();
    experiment::write(&spec, &[], &rows, folder.path()).unwrap();
    let board = fs::read_to_string(folder.path().join("pages.svg")).unwrap();
    assert!(board.contains("the page") && board.contains("today") && !board.contains("NaN"));
}

const SIZES: &str = r#"
title = "Pages"
question = "Does each group get pages of its own size?"
workload = ["har-pageloads+semicomplete"]
replay = "pages"
gets = 20000
memory_mib = 16
disk_mib = [256]
presets = ["damelo"]
hints = ["group"]
devices = ["exos"]
cluster_kib = 128
pages_kib = [[16], [128], [16, 128]]

[sites]
har-pageloads = 4
semicomplete = 2
"#;

#[test]
fn groups_of_one_store_have_pages_of_their_own_size() {
    let rows = experiment::run(&Spec::parse("pages", SIZES).unwrap(), None, &|_, _| {}).unwrap();
    let [small, large, both] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!([&small.pages_kib, &large.pages_kib, &both.pages_kib], ["16", "128", "16+128"]);
    let views = |row: &experiment::Row| (row.outcome.views, row.outcome.gets);
    assert!(views(small).0 > 100 && views(small) == views(large) && views(small) == views(both));
    let kib = |row: &experiment::Row| row.outcome.kib_read_per_view;
    // What half of a site's views fit in is small for one of the traces, and large for the other.
    assert!(kib(small) < kib(both) && kib(both) < kib(large), "{} {} {}", kib(small), kib(both), kib(large));
    let wrong = Spec::parse("pages", &SIZES.replace("[128]", "[256]")).unwrap_err().to_string();
    assert!(wrong.contains("256") && wrong.contains("128 of a cluster"), "{wrong}");
}

#[test]
fn the_traces_that_come_with_the_lab_are_whole() {
    for ((name, known, _), (requests, pages)) in Known::ALL.into_iter().zip([(1235, 17), (9348, 3754)]) {
        let trace = known.requests().unwrap();
        let of_pages = trace.iter().filter(|request| request.kind == Kind::Page).count();
        assert_eq!((Known::named(name), trace.len(), of_pages), (Some(known), requests, pages), "{name}");
        // Each site has objects of its own, and comes back to its beginning.
        let objects = |requests: &[Request]| requests.iter().map(|request| request.key).collect::<HashSet<_>>().len();
        let small: Vec<_> = trace.iter().filter(|request| request.size <= 1 << 20).copied().collect();
        let all: Vec<_> = Sites::new(trace, 3, 1).take(20 * small.len()).collect();
        assert_eq!(objects(&all), 3 * objects(&small), "{name}");
    }
}

#[test]
fn above_a_threshold_objects_have_files_beside_the_store() {
    let threshold = "threshold = [4, 64]\n";
    let above = FILES.replace(r#"["simple", "squid", "multiple-dirs", "buddy"]"#, r#"["buddy"]"#).replace(
        "[file_systems]\nbarracuda4 = \"ufs\"",
        &format!("{threshold}files_above = true\nfile_system = \"ufs\""),
    );
    let rows = experiment::run(&Spec::parse("above", &above).unwrap(), None, &|_, _| {}).unwrap();
    let of = |field| {
        [4, 64].map(|threshold| {
            rows.iter().find(|row| row.threshold == threshold).and_then(|row| row.number(field)).unwrap()
        })
    };
    assert_eq!((rows.len(), of("writes")[0], of("objects")[0]), (2, of("writes")[1], of("objects")[1]));
    assert!(of("reads")[0] > 0.0 && of("lost") == [0.0; 2]);
    assert!(rows[0].number("seconds") > rows[1].number("seconds"), "a file costs more than a slot");
    let wrong = Spec::parse("x", &above.replace(threshold, "")).unwrap_err().to_string();
    assert!(wrong.contains("files_above"), "{wrong}");
    // It is the preset that has them.
    let wrong = Spec::parse("x", &above.replace("buddy", "stream")).unwrap_err().to_string();
    assert!(wrong.contains("preset buddy"), "{wrong}");
}

#[test]
fn a_large_object_of_which_a_cache_lost_a_piece_is_put_again() {
    let mut spec = experiment::find("locality").unwrap();
    (spec.workload, spec.presets) = (vec!["pages".into()], vec!["damelo".into()]);
    (spec.devices, spec.hints_of) = (vec!["exos".into()], Default::default());
    spec.hints.retain(|hints| hints.name() == "group");
    // With seed 1 the index takes a piece for another object; once it ended the experiment.
    let rows = experiment::run(&spec, None, &|_, _| {}).unwrap();
    let reads = rows.iter().filter_map(|row| row.number("device_reads_per_view")).collect::<Vec<_>>();
    assert!(matches!(reads[..], [reads] if (1.5..3.0).contains(&reads)), "{reads:?}");
}

#[test]
fn policies_of_the_layout_are_cases_and_change_where_objects_lie() {
    let text = r#"
title = "Policies"
question = "What does each change?"
workload = "semicomplete"
replay = "pages"
gets = 6000
memory_mib = 16
disk_mib = [32]
presets = ["hummingbird"]
devices = ["barracuda4"]
policies = [{}, { pack_order = "lru-head" }, { next_cluster = "overwrite", unpacked_mib = 2 }, { written_s = 5 }]
"#;
    let rows = experiment::run(&Spec::parse("policies", text).unwrap(), None, &|_, _| {}).unwrap();
    let named: Vec<_> = rows.iter().map(|row| &*row.policies).collect();
    assert_eq!(named, ["", "lru-head", "overwrite, 2 MiB unpacked", "5 s written"]);
    let seconds: Vec<_> = rows.iter().map(|row| row.number("seconds").unwrap()).collect();
    assert!(seconds[1..].iter().all(|other| *other != seconds[0]), "{seconds:?}");
    let hits: Vec<_> = rows.iter().map(|row| row.number("hit_ratio").unwrap()).collect();
    assert!(hits[3] < hits[0], "what leaves by its age is missed: {hits:?}");
    for (policies, part) in [
        ("[{ pack_order = \"last\" }]", "lru-tail"),
        ("[{ written_s = 1, unused_s = 1 }]", "either written_s or unused_s"),
        ("[]", "policies is empty"),
    ] {
        let from = text.find("policies = ").unwrap();
        let wrong = Spec::parse("policies", &format!("{}policies = {policies}\n", &text[..from])).unwrap_err();
        assert!(wrong.to_string().contains(part), "{wrong}");
    }
}
