//! The tools for a store, run as a user runs them, on real files.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_picaflor"));
        command.current_dir(&self.0).args(arguments).env_remove("PICAFLOR_TOKEN");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    /// Runs what has to go well; gives standard output.
    fn good(&self, arguments: &[&str]) -> Vec<u8> {
        good(self.run(arguments))
    }

    /// Runs what has to fail with this code and these words.
    fn bad(&self, arguments: &[&str], code: i32, words: &[&str]) {
        bad(&self.run(arguments), code, words);
    }

    fn put(&self, key: &str, body: &[u8]) {
        good(self.run_with(&["put", "a.store", key, "--create", "--capacity", "64MiB"], body));
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = text(&self.good(&["ls", "a.store"])).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn good(output: Output) -> Vec<u8> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output.stdout
}

fn bad(output: &Output, code: i32, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
}

/// Bytes that look like no others and do not repeat.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| step()).collect()
}

/// Inverts one byte of the file where these bytes are.
fn flip(path: &Path, bytes: &[u8]) {
    let mut file = fs::read(path).unwrap();
    let at = file.windows(bytes.len()).position(|window| window == bytes).expect("the bytes are in the file");
    file[at] = !file[at];
    fs::write(path, file).unwrap();
}

#[test]
fn what_is_put_is_listed_got_and_removed() {
    let folder = Folder::new();
    folder.put("http://a/", b"first");
    folder.put("http://b/", b"");
    folder.put("http://a/", b"second");
    assert_eq!(folder.keys(), ["http://a/", "http://b/"]);
    assert_eq!(folder.good(&["get", "a.store", "http://a/"]), b"second");
    assert_eq!(folder.good(&["get", "a.store", "http://b/"]), b"");
    bad(&folder.run(&["get", "a.store", "http://c/"]), 1, &["a.store: http://c/ is not there"]);
    let done = folder.run(&["rm", "a.store", "http://c/", "http://a/"]);
    bad(&done, 1, &["not there: http://c/", "1 key was not there; 1 removed"]);
    assert_eq!(folder.keys(), ["http://b/"]);
    assert_eq!(folder.good(&["rm", "a.store", "--force", "http://c/"]), b"");
    assert_eq!(folder.good(&["rm", "a.store", "http://b/"]), b"");
    assert!(folder.keys().is_empty());
    let report = text(&folder.good(&["check", "a.store"]));
    assert!(report.contains("verdict   sound") && report.contains("closed cleanly"), "{report}");
}

#[test]
fn a_large_body_goes_through_in_pieces() {
    let folder = Folder::new();
    let body = noise(20_000_000, 7);
    good(folder.run_with(&["put", "a.store", "film", "--create", "--capacity", "128MiB"], &body));
    assert!(folder.good(&["get", "a.store", "film"]) == body);
    folder.good(&["get", "a.store", "film", "-o", "film.copy"]);
    assert!(fs::read(folder.path("film.copy")).unwrap() == body);
    folder.good(&["put", "a.store", "copy", "film.copy"]);
    assert!(folder.good(&["get", "a.store", "copy", "--range", "9999990-10000009"]) == body[9_999_990..=10_000_009]);
    assert!(folder.good(&["get", "a.store", "copy", "--range", "19999990-"]) == body[19_999_990..]);
    assert!(folder.good(&["get", "a.store", "copy", "--range=-3"]) == body[body.len() - 3..]);
    bad(&folder.run(&["get", "a.store", "copy", "--range", "20000000-"]), 1, &["20,000,000 bytes"]);
    bad(&folder.run(&["get", "a.store", "copy", "--range", "5-1"]), 2, &["ends before it begins"]);
    let parts = text(&folder.good(&["get", "a.store", "film", "--where"]));
    let device = fs::read(folder.path("a.store")).unwrap();
    let part = |line: &str| {
        let numbers: Vec<usize> = line.splitn(3, ' ').take(2).map(|number| number.parse().unwrap()).collect();
        assert!(line.ends_with(" a.store"), "{line}");
        device[numbers[0]..numbers[0] + numbers[1]].to_vec()
    };
    assert!(parts.lines().count() > 20_000_000 / (256 << 10) && parts.lines().flat_map(part).eq(body.iter().copied()));
    bad(&folder.run(&["get", "a.store", "none", "--where"]), 1, &["none is not there"]);
    let listed = text(&folder.good(&["ls", "--long", "a.store"]));
    assert_eq!(listed.matches("19.07 MiB").count(), 2, "{listed}");
    bad(&folder.run_with(&["put", "a.store", "more"], &noise(60_000_000, 1)), 1, &["too large", "quarter"]);
    bad(&folder.run(&["get", "a.store", "more"]), 1, &["not there"]);
    assert!(text(&folder.good(&["check", "a.store"])).contains("sound"));
}

#[test]
fn metadata_and_expiry_come_along() {
    let folder = Folder::new();
    fs::write(folder.path("meta"), "kind: x").unwrap();
    folder.put("for-ever", b"1");
    good(folder.run_with(&["put", "a.store", "hour", "-m", "meta", "--ttl", "1h", "--group", "7"], b"22"));
    good(folder.run_with(&["put", "a.store", "moment", "--ttl", "1ms"], b"333"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(folder.good(&["get", "a.store", "hour", "--metadata"]), b"kind: x");
    bad(&folder.run(&["get", "a.store", "moment"]), 1, &["past its expiry"]);
    assert_eq!(folder.keys(), ["for-ever", "hour"]);
    assert_eq!(text(&folder.good(&["ls", "--all", "a.store"])).lines().count(), 3);
    let long = text(&folder.good(&["ls", "-l", "-p", "hour", "a.store"]));
    let fields: Vec<&str> = long.split_whitespace().collect();
    assert!(
        matches!(fields[..], ["2", "B", time, "7", "hour"] if time.starts_with("20") && time.ends_with('Z')),
        "{long}"
    );
    bad(&folder.run(&["put", "a.store", "x", "--ttl", "soon"]), 2, &["`soon` is not a time such as"]);
    bad(&folder.run(&["put", "a.store", "x", "--capacity", "1GiB"]), 2, &["--create"]);
}

#[test]
fn any_key_is_shown_harmless_and_can_be_given_back() {
    let folder = Folder::new();
    let odd = "a\\nb\\x00\\x1b[31m\\xff\\\\";
    good(folder.run_with(&["put", "a.store", "--escaped", odd, "--create", "--capacity", "64MiB"], b"odd"));
    folder.put("plain", b"");
    assert_eq!(folder.keys(), [odd, "plain"]);
    assert_eq!(folder.good(&["get", "a.store", "--escaped", odd]), b"odd");
    let raw = folder.good(&["ls", "-0", "a.store", "-p", "a"]);
    assert_eq!(raw, b"a\nb\0\x1b[31m\xff\\\0");
    let json = text(&folder.good(&["ls", "--format", "json", "-p", "a", "a.store"]));
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(line["escaped"], odd);
    bad(&folder.run(&["get", "a.store", "-e", "a\\q"]), 2, &["`\\q` in the key"]);
    let listed = folder.good(&["ls", "a.store"]);
    good(folder.run_with(&["rm", "a.store", "--stdin", "--escaped"], &listed));
    assert!(folder.keys().is_empty());
    good(folder.run_with(&["put", "a.store", "b\nc"], b""));
    let mut ls = folder.command(&["ls", "-0", "a.store"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut rm = folder.command(&["rm", "a.store", "--stdin", "-0"]);
    good(rm.stdin(ls.stdout.take().unwrap()).output().unwrap());
    assert!(ls.wait().unwrap().success() && folder.keys().is_empty(), "as one pipeline");
}

#[test]
fn json_is_json() {
    let folder = Folder::new();
    for n in 0..5 {
        folder.put(&format!("key-{n}"), &noise(1000 * n, n as u64));
    }
    let lines = text(&folder.good(&["ls", "a.store", "--format", "json"]));
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    for line in &lines {
        let n: u64 = line["key"].as_str().unwrap().strip_prefix("key-").unwrap().parse().unwrap();
        assert_eq!((line["size"].as_u64(), line["group"].as_u64()), (Some(1000 * n), Some(0)));
        assert!(line["expires"].is_null() && line.get("escaped").is_none());
    }
    assert_eq!(text(&folder.good(&["ls", "a.store", "-n", "2"])).lines().count(), 2);
    let json = |arguments: &[&str]| -> serde_json::Value { serde_json::from_slice(&folder.good(arguments)).unwrap() };
    let stats = json(&["stats", "a.store", "--format", "json"]);
    assert_eq!((stats["store"]["objects"].as_u64(), stats["places"][0]["mode"].as_str()), (Some(5), Some("cache")));
    assert_eq!(stats["store"]["capacity"], 64 << 20);
    let report = json(&["check", "a.store", "--format", "json"]);
    assert_eq!((report["sound"].as_bool(), report["report"]["intact"].as_u64()), (Some(true), Some(5)));
    let human = text(&folder.good(&["stats", "a.store"]));
    assert!(human.contains("preset     picaflor"), "{human}");
    assert!(human.contains("cache: ") && human.contains("64 MiB") && human.contains("clusters free"), "{human}");
}

#[test]
fn damage_has_its_own_exit_code() {
    let folder = Folder::new();
    let (small, large) = (noise(3000, 1), noise(1_000_000, 2));
    folder.put("small", &small);
    folder.put("large", &large);
    folder.put("other", b"intact");
    let path = folder.path("a.store");
    flip(&path, &small[1000..1100]);
    let done = folder.run(&["check", "a.store"]);
    bad(&done, 3, &["damaged: a.store"]);
    let report = text(&done.stdout);
    assert!(report.contains("damaged") && report.contains("small at ") && report.contains("DAMAGED"), "{report}");
    bad(&folder.run(&["get", "a.store", "small"]), 3, &["fail their checksum"]);
    assert_eq!(folder.good(&["get", "a.store", "other"]), b"intact");
    flip(&path, &large[900_000..900_100]);
    fs::write(folder.path("kept"), "as it was").unwrap();
    bad(&folder.run(&["get", "a.store", "large", "-o", "kept"]), 3, &["a piece of large"]);
    assert_eq!(fs::read(folder.path("kept")).unwrap(), b"as it was", "half a file replaces nothing");
    let report: serde_json::Value =
        serde_json::from_slice(&folder.run(&["check", "--format", "json", "a.store"]).stdout).unwrap();
    assert_eq!((report["sound"].as_bool(), report["report"]["damaged"].as_array().unwrap().len()), (Some(false), 2));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..32 << 20]).unwrap();
    for command in ["check", "ls", "stats"] {
        folder.bad(&[command, "a.store"], 3, &["a.store is damaged: it had 67108864 bytes", "restore"]);
    }
    let mut bad_blocks = whole.clone();
    (bad_blocks[100], bad_blocks[4096 + 100]) = (1, 1);
    fs::write(&path, &bad_blocks).unwrap();
    folder.bad(&["check", "a.store"], 3, &["neither superblock verifies"]);
    bad_blocks[..8192].fill(0);
    fs::write(&path, &bad_blocks).unwrap();
    let serve = ["serve", "--store", "a.store", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    for command in [&["check", "a.store"][..], &["put", "a.store", "k", "--create"], &serve] {
        folder.bad(command, 3, &["both superblocks are blank", "remove the file or clear its first 256 KiB"]);
    }
}

#[test]
fn one_store_that_cannot_be_checked_keeps_no_other_from_it() {
    let folder = Folder::new();
    folder.put("a", b"body of a");
    fs::write(folder.path("letter"), b"dear store").unwrap();
    let paths = ["missing.store", "letter", "a.store", "other/missing.store"];
    let run = |more: &[&str]| folder.run(&[&["check"], more, &paths].concat());
    let done = run(&[]);
    bad(&done, 1, &["missing.store: no such file", "letter is not a picaflor store", "other/missing.store: no such"]);
    assert!(text(&done.stdout).contains("verdict   sound"), "{}", text(&done.stdout));
    let rows = |output: &Output| -> Vec<serde_json::Value> {
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let found = rows(&run(&["--format", "json"]));
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!((&found[0]["places"][0]["place"], &found[0]["sound"]), (&"a.store".into(), &true.into()));
    assert_eq!((&found[1]["places"][0]["place"], &found[1]["sound"]), (&paths[0].into(), &serde_json::Value::Null));
    assert!(found[2]["error"].as_str().unwrap().contains("letter is not"), "{found:?}");
    let done = folder.run(&["stats", "--format", "json", "missing.store", "a.store"]);
    bad(&done, 1, &["missing.store: no such file"]);
    assert_eq!(rows(&done)[0]["store"]["objects"], 1);
    flip(&folder.path("a.store"), b"body of a");
    let done = run(&["--format", "json"]);
    bad(&done, 3, &["damaged: a.store", "missing.store: no such file"]);
    assert_eq!(rows(&done)[0]["sound"], false);
}

#[test]
fn an_index_that_rots_is_mended_when_that_is_asked_for() {
    let folder = Folder::new();
    let make = ["--create", "--store-mode", "--preset", "pmflf-pfl", "--capacity", "32MiB"];
    for key in ["one", "two", "three"] {
        good(folder.run_with(&[&["put", "a.store", key][..], &make].concat(), &noise(3000, 1)));
    }
    folder.good(&["rm", "a.store", "two"]);
    let path = folder.path("a.store");
    let mut file = fs::read(&path).unwrap();
    // Every sector of an index page names its page; the third of each rots.
    for at in (0..file.len() - 512).step_by(512) {
        if file[at..].starts_with(b"PFhs") && file[at + 12] % 8 == 3 {
            file[at + 77] ^= 8;
        }
    }
    fs::write(&path, &file).unwrap();
    let done = folder.run(&["check", "a.store"]);
    bad(&done, 3, &["damaged: a.store"]);
    let said = text(&done.stdout);
    assert!(said.contains("index page 0 of table") && said.contains("--mend"), "{said}");
    assert!(fs::read(&path).unwrap() == file, "looking changes nothing");
    let done = folder.run(&["check", "--mend", "a.store"]);
    assert!(text(&done.stderr).contains("damaged, and made anew from the entries"), "{}", text(&done.stderr));
    assert!(text(&good(done)).contains("2 of 2 intact"));
    let keys = folder.keys();
    assert_eq!(keys, ["one", "three"]);
    assert_eq!(folder.good(&["get", "a.store", "three"]), noise(3000, 1));
}

#[test]
fn what_is_no_store_is_named_with_the_mend() {
    let folder = Folder::new();
    folder.bad(&["ls", "none"], 1, &["none: no such file", "put --create"]);
    folder.bad(&["put", "none", "key"], 1, &["none: no such file", "put --create"]);
    fs::write(folder.path("blank"), "").unwrap();
    folder.bad(&["ls", "blank"], 1, &["blank is blank", "put --create"]);
    fs::write(folder.path("letter"), "Dear all,").unwrap();
    folder.bad(&["check", "letter"], 1, &["letter is not a picaflor store"]);
    folder.bad(&["put", "letter", "k", "--create"], 1, &["letter is not a picaflor store"]);
    assert_eq!(fs::read(folder.path("letter")).unwrap(), b"Dear all,");
    folder.bad(&["check", "."], 1, &["is not a picaflor store: it holds something else"]);
    folder.put("k", b"v");
    folder.bad(&["ls", "a.store", "--memory", "1MiB"], 2, &["option memory", "the least"]);
    folder.bad(&["put", "a.store", "k", "absent"], 1, &["reading absent: No such file"]);
    folder.bad(&["rm", "a.store"], 2, &["KEY"]);
    folder.bad(&["stats"], 2, &["--admin"]);
    let mut file = fs::read(folder.path("a.store")).unwrap();
    (file[8], file[4096 + 8]) = (77, 77);
    fs::write(folder.path("a.store"), file).unwrap();
    for command in
        [&["check", "a.store"][..], &["ls", "a.store"], &["serve", "--store", "a.store", "--capacity", "1GiB"]]
    {
        folder.bad(command, 1, &["format version 77, this build reads 1"]);
    }
}

#[test]
fn a_store_in_use_says_so() {
    let folder = Folder::new();
    folder.put("k", b"v");
    let held = fs::File::open(folder.path("a.store")).unwrap();
    held.lock().unwrap();
    for arguments in [&["ls", "a.store"][..], &["get", "a.store", "k"], &["rm", "a.store", "k"], &["check", "a.store"]]
    {
        folder.bad(arguments, 1, &["a.store is in use by another process", "stats --admin"]);
    }
    let serve = ["serve", "--store", "a.store", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    folder.bad(&serve, 1, &["picaflor: a.store: open: in use by another process", "take another store"]);
    held.unlock().unwrap();
    held.lock_shared().unwrap();
    assert_eq!(folder.good(&["get", "a.store", "k"]), b"v", "readers share it");
    folder.bad(&["put", "a.store", "k"], 1, &["in use"]);
}

#[test]
fn a_store_is_opened_as_it_was_made() {
    let folder = Folder::new();
    let create = ["put", "a.store", "k0", "--create", "--capacity", "16MiB", "--store-mode"];
    good(folder.run_with(&create, b"0"));
    let stats = text(&folder.good(&["stats", "a.store"]));
    assert!(stats.contains("store: drops nothing"), "{stats}");
    let body = noise(3_000_000, 3);
    let full =
        (1..10).map(|n| folder.run_with(&["put", "a.store", &format!("k{n}")], &body)).find(|o| !o.status.success());
    bad(&full.unwrap(), 1, &["the store is full", "bytes of objects"]);
    assert_eq!(folder.good(&["get", "a.store", "k0"]), b"0");
    assert!(folder.good(&["get", "a.store", "k1"]) == body);
    let again = good(folder.run_with(&create, b"1"));
    assert!(again.is_empty(), "--create takes what is there");
    good(folder.run_with(&["put", "b.store", "k", "--create", "--capacity", "16MiB"], b""));
    folder.bad(&["put", "b.store", "k", "--create", "--store-mode"], 1, &["made as a cache"]);
    for capacity in ["32MiB", "24MiB"] {
        good(folder.run_with(&["put", "b.store", "l", "--create", "--capacity", capacity], b"more"));
        assert!(text(&folder.good(&["stats", "b.store"])).contains(&capacity.replace('M', " M")), "{capacity}");
    }
    assert_eq!(
        (folder.good(&["get", "b.store", "k"]), folder.good(&["get", "b.store", "l"])),
        (vec![], b"more".to_vec())
    );
    let too_much = ["put", "b.store", "k", "--create", "--capacity", "200MiB"];
    folder.bad(&too_much, 2, &["may grow to 8 times the 16777216 that it was made with"]);
}

#[test]
fn two_devices_are_one_store() {
    let folder = Folder::new();
    let both = ["--place", "b.store"];
    let put = |key: &str| {
        let arguments = [&["put", "a.store", key, "--create", "--capacity", "64MiB"][..], &both].concat();
        good(folder.run_with(&arguments, key.as_bytes()));
    };
    (0..8).for_each(|n| put(&format!("k{n}")));
    assert_eq!(folder.good(&[&["get", "a.store", "k5"][..], &both].concat()), b"k5");
    folder.bad(&["ls", "b.store"], 2, &["b.store is place 2 of the 2 of its store"]);
    assert_eq!(text(&folder.good(&["ls", "b.store", "a.store"])).lines().count(), 8);
    folder.bad(&["ls", "b.store", "b.store"], 2, &["given twice"]);
    good(folder.run_with(&["put", "c.store", "k", "--create", "--capacity", "16MiB"], b""));
    let checked = text(&folder.good(&["check", "a.store", "c.store", "b.store"]));
    assert_eq!(checked.matches("sound").count(), 2, "{checked}");
    folder.bad(&["ls", "a.store", "b.store", "c.store"], 2, &["different stores"]);
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let folder = Folder::new();
    good(folder.run_with(&["put", "a.store", "k", "--create", "--capacity", "64MiB"], &noise(5_000_000, 5)));
    let mut command = folder.command(&["get", "a.store", "k"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
}

#[test]
fn help_teaches_and_shells_complete() {
    let folder = Folder::new();
    for command in ["check", "stats", "ls", "get", "put", "rm", "completions", "man"] {
        let help = text(&folder.good(&[command, "--help"]));
        assert!(help.contains("Examples:") && help.contains(&format!("picaflor {command} ")), "{help}");
    }
    for command in ["serve", "check-config", "check", "stats", "ls", "get", "put", "rm", "completions"] {
        for flag in ["-h", "--help"] {
            let help = text(&good(folder.command(&[command, flag]).env("COLUMNS", "300").output().unwrap()));
            assert!(help.lines().all(|line| line.len() <= 100), "{help}");
            let wrapped = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.ends_with(':');
            assert!(!help.lines().any(wrapped), "a line of the examples was wrapped: {help}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&folder.good(&["completions", shell]));
        assert!(script.contains("picaflor") && script.contains("check-config"), "{shell}");
    }
    folder.good(&["man", "pages"]);
    let page = std::fs::read_to_string(folder.path("pages/picaflor-check-config.1")).unwrap();
    assert!(page.contains("Checks a configuration file"), "{page}");
    folder.bad(&["man", "/proc/pages"], 1, &["/proc/pages"]);
    assert_eq!(text(&folder.good(&["--version"])), format!("picaflor {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_running_server_is_asked() {
    let folder = Folder::new();
    let serve = ["serve", "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--capacity", "64MiB", "--memory", "32MiB"];
    let mut child = folder.command(&serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let admin = lines.find_map(|line| Some(line.strip_prefix("admin    ")?.split(',').next()?.to_owned())).unwrap();
    let url = format!("http://{admin}");
    let asked = text(&folder.good(&["stats", "--admin", &url]));
    assert!(asked.contains("hit ratio") && asked.contains("64 MiB") && asked.contains("memory"), "{asked}");
    let stats: serde_json::Value =
        serde_json::from_slice(&folder.good(&["stats", "--admin", &url, "--format", "json"])).unwrap();
    assert_eq!(stats["store"]["capacity"], 64 << 20);
    folder.bad(&["stats", "--admin", &url, "--token", "guess"], 1, &["refused the token"]);
    folder.bad(
        &["stats", "--admin", &url, "--token-file", "none"],
        1,
        &["reading the token file none", "--token-file"],
    );
    folder.bad(&["stats", "picaflor.store"], 1, &["in use"]);
    child.kill().unwrap();
    child.wait().unwrap();
    folder.bad(&["stats", "--admin", &url], 1, &["is `picaflor serve` running"]);
    assert!(text(&folder.good(&["check", "picaflor.store"])).contains("sound"), "a killed server leaves a sound store");
}

#[test]
fn a_store_of_any_preset_is_made_and_known_again() {
    let folder = Folder::new();
    for preset in ["simple", "squid", "multiple-dirs", "buddy", "stream", "lazy-reads-loc"] {
        let store = format!("{preset}.store");
        let make = ["put", &store, "a key", "--create", "--capacity", "64MiB", "--preset", preset];
        good(folder.run_with(&make, b"a body"));
        assert_eq!(folder.good(&["get", &store, "a key"]), b"a body", "{preset}");
        assert_eq!(text(&folder.good(&["ls", &store])), "a key\n", "{preset}");
        folder.good(&["check", &store]);
        folder.good(&["rm", &store, "a key"]);
        assert_eq!(text(&folder.good(&["ls", &store])), "", "{preset}");
    }
    folder.bad(&["put", "b.store", "k", "--create", "--preset", "gnu"], 2, &["no preset", "stream-pack"]);
}
