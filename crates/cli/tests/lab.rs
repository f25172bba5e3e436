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
    let store =
        String::from_utf8(run(&folder, &["trace", "miss", "a.csv", "--cache", "8M", "--store"]).stdout).unwrap();
    assert!(store.lines().last().unwrap().starts_with("picaflor         8 MiB  misses 0.33333"), "{store}");
    assert!(refused(&folder, &["trace", "miss", "a.csv", "--cache", "1M", "--store"]).contains("are the least"));
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
    let table = "<!-- damelo: begin -->\n\n| D-1 | a | 1 | 1 | 1 | predicted | pass |\n\n1 of 1 predicted claims hold.\n\n<!-- damelo: end -->\n";
    fs::write(folder.path().join("a.md"), table).unwrap();
    assert!(run(&folder, &with).status.success());
    let text = fs::read_to_string(folder.path().join("a.md")).unwrap();
    assert!(text.contains("| D-1 | a |") && text.matches("| D-12 |").count() == 4, "{text}");
    assert!(text.contains("1 of 1 predicted claims hold; 4 are not carried over."), "{text}");
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

#[test]
fn aging_quickly_takes_less_than_a_minute_and_is_not_done_twice() {
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let done = run(&folder, &["age", "--quick"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let told = String::from_utf8(done.stdout).unwrap();
    for name in ["folder by", "sqlite,", "picaflor-cache by", "picaflor-store by", "pmflf-pfl by", "report.html"] {
        assert!(told.contains(name), "{name} in {told}");
    }
    assert_eq!(told.matches("  age 2.0 ").count(), 5, "{told}");
    let report = || fs::read_to_string(folder.path().join("lab-age/report.html")).unwrap();
    let first = report();
    assert!(first.contains("Fragments an object") && first.contains("map-data"));
    assert!(!first.contains("http://") || !first.contains("src="), "it needs nothing but itself");
    let again = String::from_utf8(run(&folder, &["age", "--quick"]).stdout).unwrap();
    assert_eq!(again.matches("(kept from before)").count(), 5, "{again}");
    assert_eq!(report(), first);
}

#[test]
fn a_limit_on_fragments_fails_a_build() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["age", "pmflf-pfl", "sqlite", "--volume", "16M", "--object", "256K", "--fill", "50", "--age", "1"];
    let with = |limit| run(&folder, &[&small[..], &["--limit", limit, "--format", "json"]].concat());
    let done = with("fragments=1.5@age1");
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("sqlite") && !said.contains("pmflf"), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["cases"][0]["samples"].as_array().unwrap().len(), 2);
    assert!(with("pmflf-pfl:fragments=1.5@age1").status.success());
    assert!(with("fragments=20@age1").status.success());
    let again = run(&folder, &[&small[..], &["--fresh", "--jobs", "2", "--format", "json"]].concat());
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    let parts = |all: &serde_json::Value| [0, 1].map(|at| all["cases"][at]["samples"][1]["fragments"].clone());
    assert_eq!(parts(&again), parts(&told), "in their order, however many at a time");
}

#[test]
fn what_is_wrong_with_aging_is_said_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str]| refused(&folder, &[&["age"], arguments].concat());
    assert!(said(&["ntfs"]).contains("picaflor-store"), "with what there is");
    assert!(said(&["--object", "0"]).contains("1 KiB to 1 GiB"));
    assert!(said(&["--object", "700M"]).contains("--volume"));
    assert!(said(&["--limit", "fragments<2"]).contains("fragments=2@age4"));
    assert!(said(&["--limit", "fragments=2@age9"]).contains("never reached"));
    assert!(said(&["--disk", "nothing"]).contains("barracuda7200_8"));
    assert!(said(&["--folder", "nowhere"]).contains("nowhere"));
    assert!(said(&["--quick", "--volume", "1G"]).contains("cannot be used with"));
    assert_eq!(run(&folder, &["age", "--fill", "0"]).status.code(), Some(2));
    let help = String::from_utf8(run(&folder, &["age", "--help"]).stdout).unwrap();
    assert!(help.contains("sqlite") && help.contains("buddy") && help.contains("--limit fragments=2@age4"), "{help}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was begun");
}

/// Whether file systems can be made and mounted here.
fn can_mount() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|done| done.stdout == b"0\n");
    is_root && Command::new("losetup").arg("--find").output().is_ok_and(|done| done.status.success())
}

#[test]
fn aging_that_is_interrupted_or_killed_leaves_no_volume() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let name = if can_mount() { "ext4" } else { "picaflor-store" };
    let long = ["age", name, "--folder", "disk", "--age", "900", "--volume", "64M"];
    let is_full = || {
        let made = fs::read_dir(&disk).unwrap().next().map(|entry| entry.unwrap().path());
        made.is_some_and(|path| path.join("mount/00000004").exists() || path.join("volume").exists())
    };
    let mounts = || fs::read_to_string("/proc/mounts").unwrap().matches(disk.to_str().unwrap()).count();
    for (signal, code) in [("-INT", Some(130)), ("-KILL", None)] {
        let mut child = command(&folder, &long).spawn().unwrap();
        let begin = Instant::now();
        while !is_full() {
            assert!(begin.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), code);
        if code.is_some() {
            assert_eq!((fs::read_dir(&disk).unwrap().count(), mounts()), (0, 0));
        }
    }
    if can_mount() {
        // The next one removes what the one that was killed could not.
        assert_eq!(mounts(), 1);
        let short =
            ["age", name, "--folder", "disk", "--age", "1", "--volume", "16M", "--fill", "50", "--out", "short"];
        let short = run(&folder, &short);
        assert!(short.status.success(), "{}", String::from_utf8_lossy(&short.stderr));
        assert_eq!((fs::read_dir(&disk).unwrap().count(), mounts()), (0, 0));
    }
}
