//! The examples run, and print what they are to show. `cargo test -p picaflor` builds them.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{path::Path, process::Command, time::SystemTime};

/// Runs an example on a store in this folder; what it printed, line by line.
fn printed(name: &str, folder: &Path) -> Vec<String> {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).with_extension("rs");
    // `--test examples` alone builds none, and would run those of before.
    let [built, written] = [&program, &source].map(|path| path.metadata().and_then(|about| about.modified()));
    let built = built.unwrap_or(SystemTime::UNIX_EPOCH);
    assert!(built >= written.unwrap(), "{name} is not built: cargo test -p picaflor, or cargo build --examples before");
    let output = Command::new(&program).arg(folder.join("example.store")).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<f64> {
    line.split([' ', ',', ':']).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_cache_takes_what_it_is_given_and_evicts() {
    let expected = ["greeting: hello", "after its delete: a miss", "the oldest is there: false, the newest: true"];
    let folder = tempfile::tempdir().unwrap();
    // Again where it was.
    (0..2).for_each(|_| assert_eq!(printed("cache", folder.path()), expected));
}

#[test]
fn tasks_share_what_one_of_them_fetches() {
    let folder = tempfile::tempdir().unwrap();
    let lines = printed("fetch", folder.path());
    assert_eq!(lines[0], "/news: 448 bytes, origin asked 1 times");
    assert_eq!(lines[1], format!("/film: {} bytes, origin asked 1 times", 32 * (8 << 20)));
    assert!(lines[2].starts_with("/gone: status 404, origin asked "), "{lines:?}");
    let again = printed("fetch", folder.path());
    assert!(again[..2].iter().all(|line| line.ends_with("asked 0 times")), "{again:?}");
}

#[test]
fn what_was_acknowledged_is_there_after_the_process_was_killed() {
    let lines = printed("crash", tempfile::tempdir().unwrap().path());
    let [killed, puts, lost] = numbers(&lines[0].replace(';', ""))[..] else { panic!("{lines:?}") };
    assert!(killed == 5.0 && puts >= 5.0 && lost == 0.0, "{lines:?}");
}

#[test]
fn a_service_asks_its_origin_once_and_not_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(printed("service", folder.path()), ["32 answers, origin asked 1 times"]);
    assert_eq!(printed("service", folder.path()), ["32 answers, origin asked 0 times"]);
}

#[test]
fn blobs_are_kept_and_a_full_store_takes_more_after_what_it_asked_for() {
    let expected =
        ["video: 1000 bytes of second 5", "full: yes, and nothing was lost: true", "after a restart, as before: true"];
    assert_eq!(printed("blobs", tempfile::tempdir().unwrap().path()), expected);
}

#[test]
fn a_batch_costs_one_sync() {
    let lines = printed("load", tempfile::tempdir().unwrap().path());
    let [objects, batches, syncs, ..] = numbers(&lines[0])[..] else { panic!("{lines:?}") };
    assert_eq!((objects, batches), (20_000.0, 40.0));
    // A checkpoint may come in between.
    assert!(syncs >= batches && syncs < 2.0 * batches, "{lines:?}");
    assert_eq!(lines[1], "20000 keys");
}

#[test]
fn hints_and_love_save_reads() {
    let lines = printed("pages", tempfile::tempdir().unwrap().path());
    let [without, with] = numbers(&lines[0])[..] else { panic!("{lines:?}") };
    assert!(with < without / 2.0, "{lines:?}");
    let [hundred, others, loved] = numbers(&lines[1])[..] else { panic!("{lines:?}") };
    assert!(hundred == 100.0 && others > 20.0 && loved == 0.0, "{lines:?}");
}
