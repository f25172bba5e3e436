//! The programs whose lines the page counts run, and each peer passes through a very small run of everything.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{fs, path::Path, process::Command};

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_programs_run() {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("examples");
    let sources = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let names = sources.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name != "diskcache.py" && (cfg!(feature = "rocksdb") || name != "rocksdb.rs")) {
        let folder = tempfile::tempdir().unwrap();
        run(Command::new(built.join(name.trim_end_matches(".rs"))).arg(folder.path()));
    }
}

#[test]
fn every_peer_is_measured_and_the_page_written() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMPARISON.md"), &page).unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_compare"))
        .arg("--tiny")
        .arg("--folder")
        .arg(folder.path())
        .arg("--out")
        .arg(folder.path().join("out"))
        .arg("--page")
        .arg(&page));
    let text = fs::read_to_string(&page).unwrap();
    for name in ["picaflor 0", "foyer 0", "moka 0", "cacache 1", "sled 0", "redb 4", "fjall 3"] {
        assert!(text.contains(&format!("\n| {name}")), "{name}: {text}");
    }
    // After one kill with sync, what picaflor acknowledged is there.
    let found = fs::read_to_string(folder.path().join("out/picaflor.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let sync = &found["kill_sync"];
    let [opened, lost, returned, wrong] = ["opened", "lost", "returned", "wrong"].map(|name| sync[name].as_u64());
    assert_eq!([opened, lost, returned, wrong], [Some(1), Some(0), Some(0), Some(0)], "{sync}");
}
