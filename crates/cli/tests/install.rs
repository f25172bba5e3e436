//! The command as `scripts/install` leaves it: it runs, is stripped, and names the file in which its symbols are.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{path::Path, process::Command};

/// Runs a program to its end and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn the_command_is_installed_stripped_with_its_symbols_apart() {
    let prefix = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_picaflor"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install");
    run(Command::new(script).arg("command").arg(prefix.path()).env("BUILT", built.parent().unwrap()));

    let (installed, symbols) = (prefix.path().join("bin/picaflor"), prefix.path().join("bin/.debug/picaflor.debug"));
    assert!(run(Command::new(&installed).arg("--version")).starts_with("picaflor "));
    let sections = |file: &Path| run(Command::new("readelf").args(["--wide", "--section-headers"]).arg(file));
    assert!(sections(built).contains(".debug_line") && sections(&symbols).contains(".debug_line"));
    assert!(!sections(&installed).contains(".debug_line"));
    let link = run(Command::new("readelf").args(["-p", ".gnu_debuglink"]).arg(&installed));
    assert!(link.contains("picaflor.debug"), "{link}");
}
