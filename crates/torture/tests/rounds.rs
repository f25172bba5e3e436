//! Rounds of `kill -9` over all presets, and a soak, both short: they show that these look at anything. `scripts/test`
//! runs them optimized, too, and with each break that they must notice; the long ones are run by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Files of a violation stay in this folder.
fn rounds_in(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_picaflor-rounds"));
    let done = command.args(arguments).arg("--folder").arg(folder).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done, said)
}

fn rounds(arguments: &[&str]) -> (Output, String) {
    rounds_in(Path::new(env!("CARGO_TARGET_TMPDIR")), arguments)
}

/// The number before a word.
fn number(said: &str, word: &str) -> u64 {
    let before = said.split(word).next().unwrap_or_default();
    before.split_whitespace().next_back().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[test]
fn no_preset_breaks_a_promise_when_its_process_is_killed() {
    // On a machine with much else to do no process keeps time to a quarter of a second.
    let grace = ["--grace", "2000"];
    let (done, said) =
        rounds(&[&["--rounds", "64", "--kills", "4", "--jobs", "2", "--keep-going"], &grace[..]].concat());
    println!("{said}");
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("kills on 16 stores"), "every row of the table had a store: {said}");
    assert!(number(&said, " kills on") >= 40 && number(&said, " of them durable") > 500, "{said}");
    assert!(number(&said, " of them due") > 500, "{said}");
}

#[test]
fn a_violation_says_what_came_and_how_to_run_it_again() {
    let arguments = ["--break", "forgotten-deletes", "--preset", "picaflor", "--mode", "store", "--places", "1"];
    let folder = tempfile::tempdir().unwrap();
    let (done, said) =
        rounds_in(folder.path(), &[&arguments[..], &["--from", "3", "--rounds", "60", "--threads", "3"]].concat());
    assert_eq!(done.status.code(), Some(1), "{said}");
    for word in
        ["VIOLATION in seed", "setup:  picaflor Store", "not nothing", "Delete", "again:", "--threads 3", "files:"]
    {
        assert!(said.contains(word), "{word} in {said}");
    }
}

/// The proxy, which another package builds.
fn picaflor() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_picaflor-rounds")).with_file_name("picaflor");
    if !path.exists() {
        let folder = path.parent().unwrap();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--package", "picaflor-cli", "--target-dir"]).arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            command.arg("--release");
        }
        assert!(command.status().unwrap().success());
    }
    path
}

#[test]
fn a_soak_asks_purges_restarts_and_loses_its_device() {
    let picaflor = picaflor();
    let hours = |seconds: f64| (seconds / 3600.0).to_string();
    let soak = ["--proxy", picaflor.to_str().unwrap(), "--rate", "200", "--keys", "1500", "--capacity", "64"];
    let (done, said) = rounds(
        &[&soak[..], &["--grace", "2000", "--memory-over", "16", "--device-every", "0.1", "--soak", &hours(25.0)]]
            .concat(),
    );
    println!("{said}");
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("noticed after") && said.contains("the proxy restarted"), "its device failed: {said}");
    assert!(number(&said, " whole bodies") > 100 && number(&said, " purged") > 3, "{said}");
    let (done, said) = rounds(&["--soak", "1"]);
    assert!(done.status.code() == Some(2) && said.contains("needs --proxy"), "{said}");
}

#[test]
fn help_teaches_and_a_mistake_is_named() {
    let (done, said) = rounds(&["--help"]);
    assert!(done.status.success() && said.contains("Examples:") && said.contains("--proxy"), "{said}");
    let (done, said) = rounds(&["--preset", "squit"]);
    assert!(done.status.code() == Some(2) && said.contains("one of picaflor, hummingbird"), "{said}");
}
