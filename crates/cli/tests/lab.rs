//! `picaflor lab`, as a user runs it: what it says, and what it leaves alone.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    fs,
    process::{Command, Output},
    time::{Duration, Instant},
};

use tempfile::TempDir;

fn command(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_picaflor"));
    command.current_dir(folder).arg("lab").args(arguments);
    command
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// What a command that failed said.
fn refused(folder: &TempDir, arguments: &[&str]) -> String {
    let done = run(folder, arguments);
    assert!(!done.status.success(), "{arguments:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn a_document_that_is_no_text_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.md");
    fs::write(&path, b"caf\xe9\n").unwrap();
    let begin = Instant::now();
    let said = refused(&folder, &["reproduce", "damelo", "--markdown", "latin1.md"]);
    assert!(said.contains("latin1.md") && said.contains("not written to"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(60), "before the runs, not after");
    assert_eq!(fs::read(&path).unwrap(), b"caf\xe9\n");
    let said = refused(&folder, &["reproduce", "damelo", "--quick", "--markdown", "new.md"]);
    assert!(said.contains("cannot be used with"), "a quick table is none: {said}");
}

#[test]
fn a_folder_that_cannot_be_made_is_said_before_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let begin = Instant::now();
    assert!(refused(&folder, &["run", "presets-on-devices", "--out", "file"]).contains("making file"));
    assert!(refused(&folder, &["reproduce", "damelo", "--out", "file"]).contains("making file"));
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn miss_ratios_come_with_what_was_bad() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.csv"), "time,obj_id,size\n1,1,100\n2,2,-100\n3,1,100\n4,1,100\n").unwrap();
    let text = String::from_utf8(run(&folder, &["trace", "miss", "a.csv", "--cache", "1M"]).stdout).unwrap();
    assert!(text.contains("a.csv: csv, 5 lines, 1 bad") && text.contains("line 3: no number of bytes"), "{text}");
    assert!(text.contains("misses 0.33333"), "{text}");
    let json = run(&folder, &["trace", "miss", "a.csv", "--cache", "1M", "--format", "json"]).stdout;
    let first: serde_json::Value = serde_json::from_slice(json.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!((&first["files"][0]["bad"], &first["left_out"]), (&1.into(), &0.into()));
    assert!(run(&folder, &["trace", "stat", "a.csv", "--html", "a.html"]).status.success());
    assert!(fs::read_to_string(folder.path().join("a.html")).unwrap().contains("5 lines, 1 bad"));
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "title = \"t\"\nquestion = \"q\"\nworkload = \"dec\"\nreplay = \"counts\"\ngets = 100\ndisk_mib = [32]\n";
    fs::write(folder.path().join("noext"), text).unwrap();
    assert!(run(&folder, &["run", "./noext"]).status.success(), "a file needs no ending");
    assert!(refused(&folder, &["run", "nothing"]).contains("presets-on-devices"));
    for paper in ["markatos", "pmflf"] {
        assert!(refused(&folder, &["list", "--show", paper]).contains("has no file"), "{paper}");
        assert!(refused(&folder, &["reproduce", paper, "--spec", "noext"]).contains("has no file"), "{paper}");
    }
    assert!(refused(&folder, &["list", "--show", "markatos"]).contains("markatos-fig6"));
    let help = String::from_utf8(run(&folder, &["trace", "make", "--help"]).stdout).unwrap();
    assert!(help.contains("zipf or pages"), "{help}");
    let list = String::from_utf8(run(&folder, &["list"]).stdout).unwrap();
    for name in ["barracuda4", "ebs-gp3", "memory", "ufs-soft-paper", "har-pageloads"] {
        assert!(list.contains(name), "{name}");
    }
}

#[test]
fn a_part_of_a_paper_is_written_among_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let help = String::from_utf8(run(&folder, &["reproduce", "--help"]).stdout).unwrap();
    assert!(help.contains("--only D-12") && help.contains("[proxy]"), "{help}");
    assert!(refused(&folder, &["reproduce", "damelo", "--only", "D-99"]).contains("D-12"));
    assert!(refused(&folder, &["reproduce", "pmflf", "--only", "P-1"]).contains("as a whole"));
    let done = run(&folder, &["reproduce", "damelo", "--quick", "--only", "D-12", "--format", "json", "--out", "out"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["verdicts"].as_array().unwrap().len(), 4);
    assert!(fs::read_to_string(folder.path().join("out/proxy.json")).unwrap().contains("hit_ratio"));
    fs::write(folder.path().join("a.md"), "# Nothing\n").unwrap();
    let spec = String::from_utf8(run(&folder, &["list", "--show", "damelo"]).stdout).unwrap();
    let short = spec.replace("seconds = 10 ", "seconds = 0.1 ").replace("rounds = 2", "rounds = 1");
    assert_ne!(spec, short);
    fs::write(folder.path().join("short.toml"), short).unwrap();
    let with = ["reproduce", "damelo", "--only", "D-12", "--spec", "short.toml", "--markdown", "a.md"];
    assert!(refused(&folder, &with).contains("no table of this paper"));
    let table =
        "<!-- damelo: begin -->\n\n| D-1 | a | 1 | 1 | 1 | pass |\n\n1 of 1 claims hold.\n\n<!-- damelo: end -->\n";
    fs::write(folder.path().join("a.md"), table).unwrap();
    assert!(run(&folder, &with).status.success());
    let text = fs::read_to_string(folder.path().join("a.md")).unwrap();
    assert!(text.contains("| D-1 | a |") && text.matches("| D-12 |").count() == 4, "{text}");
    assert!(text.contains("1 of 1 claims hold; 4 are not carried over."), "{text}");
}

#[test]
fn an_interrupted_run_leaves_nothing_in_a_users_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    let text = "title = \"t\"\nquestion = \"q\"\nworkload = \"dec\"\nreplay = \"cache\"\ngets = 100000000\n\
                memory_mib = 16\ndisk_mib = [64]\npresets = [\"picaflor\"]\ndevices = [\"./disk\"]\n";
    fs::write(folder.path().join("long.toml"), text).unwrap();
    let mut child = command(&folder, &["run", "long.toml"]).spawn().unwrap();
    let disk = folder.path().join("disk");
    let inside =
        || fs::read_dir(&disk).unwrap().next().is_some_and(|entry| entry.unwrap().path().join("volume").exists());
    let begin = Instant::now();
    while !inside() {
        assert!(begin.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}
