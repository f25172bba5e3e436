//! Rules about single Rust files: a header, a size, nothing unfinished, `unsafe` where it may stand.

use crate::{
    File, Finding, Tree,
    source::{line_of, whole_words},
    table,
};

/// Whether a file is test code as a whole: an integration test, or the file of a test module.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Every source file of a crate says what it is for before anything else.
pub(crate) fn header(tree: &Tree) -> Vec<Finding> {
    let ours = |file: &&File| file.path.starts_with("crates/") || file.path.starts_with("bench/");
    let bare = |file: &&File| !file.text.trim_start().starts_with("//!") && !starts_after_shebang(&file.text);
    tree.ending(&[".rs"])
        .filter(ours)
        .filter(|file| !file.text.is_empty())
        .filter(bare)
        .map(|file| Finding::new(&file.path, 1, "opens without a //! line that says what the file is for"))
        .collect()
}

fn starts_after_shebang(text: &str) -> bool {
    text.starts_with("#!/") && text.lines().nth(1).is_some_and(|line| line.starts_with("//!"))
}

/// A production file is at most [`table::FILE_LINES`] lines. Functions have clippy's `too_many_lines`.
pub(crate) fn size(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust().filter(|(file, _)| !is_test_file(&file.path)) {
        let lines = source.production_lines();
        if lines > table::FILE_LINES {
            let message = format!("{lines} lines without tests, at most {}: two subjects?", table::FILE_LINES);
            findings.push(Finding::new(&file.path, 0, message));
        }
    }
    findings
}

/// Nothing that says of itself that it is not done, and no test that never runs.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    // In parts, so that a plain search of the tree for these does not end here.
    let in_code = [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("db", "g!"), concat!("#[ign", "ore")];
    let in_prose = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let views = [(&source.code, &in_code[..]), (&source.prose, &in_prose[..])];
        for (view, marks) in views {
            for mark in marks {
                for at in whole_words(view, mark) {
                    findings.push(Finding::new(&file.path, line_of(view, at), format!("unfinished: `{mark}`")));
                }
            }
        }
    }
    findings
}

fn may_be_unsafe(path: &str) -> bool {
    table::UNSAFE.iter().any(|place| path == *place || (place.ends_with('/') && path.starts_with(place)))
}

/// `unsafe` stands only where [`table::UNSAFE`] lets it.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust().filter(|(file, _)| !may_be_unsafe(&file.path)) {
        for at in whole_words(&source.code, "unsafe") {
            let message = "`unsafe` outside the files of the allow-list in tidy's table";
            findings.push(Finding::new(&file.path, line_of(&source.code, at), message));
        }
    }
    findings
}

/// The root of every crate forbids `unsafe`, or denies it where one of the crate's files is on the allow-list.
pub(crate) fn crate_roots(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust().filter(|(file, _)| file.path.starts_with("crates/")) {
        let Some((folder, root)) = file.path.split_once("/src/") else { continue };
        if !matches!(root, "lib.rs" | "main.rs") || may_be_unsafe(&file.path) {
            continue;
        }
        let excepted = table::UNSAFE.iter().any(|place| place.starts_with(&format!("{folder}/")));
        let wanted = if excepted { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if !source.code.contains(wanted) {
            findings.push(Finding::new(&file.path, 1, format!("a crate's root says {wanted}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn a_missing_header_is_found() {
        let both = tree(&[("crates/a/src/a.rs", "use std;\n"), ("crates/a/src/b.rs", "//! B.\n")]);
        assert_eq!(places(&header(&both)), [("crates/a/src/a.rs", 1)]);
    }

    #[test]
    fn a_long_file_is_found_its_tests_not_counted() {
        let long = "fn a() {}\n".repeat(table::FILE_LINES + 1);
        let tested = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let files =
            tree(&[("crates/a/src/a.rs", &long), ("crates/a/src/b.rs", &tested), ("crates/a/tests/c.rs", &long)]);
        assert_eq!(places(&size(&files)), [("crates/a/src/a.rs", 0)]);
    }

    #[test]
    fn unfinished_work_is_found_but_not_in_strings() {
        let bad = [
            concat!("fn a() { to", "do!() }\n"),
            concat!("#[ign", "ore = \"slow\"]\n"),
            concat!("// FIX", "ME later\n"),
            concat!("let x = db", "g!(y);\n"),
            concat!("let x = \"FIX", "ME\"; // to", "do! as a word of a comment\n"),
        ]
        .concat();
        let found = tree(&[("a.rs", &bad)]);
        let mut lines: Vec<_> = unfinished(&found).iter().map(|finding| finding.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [1, 2, 3, 4]);
    }

    #[test]
    fn unsafe_outside_its_places_is_found() {
        let bad = "//! unsafe in prose\nfn a() { unsafe { b() } }\n";
        let files = tree(&[("crates/device/src/uring.rs", bad), ("crates/engine/src/put.rs", bad)]);
        assert_eq!(places(&unsafe_code(&files)), [("crates/engine/src/put.rs", 2)]);
    }

    #[test]
    fn a_root_that_does_not_forbid_unsafe_is_found() {
        let files = tree(&[
            ("crates/device/src/lib.rs", "//! D.\n"),
            ("crates/a/src/lib.rs", "//! A.\n"),
            ("crates/b/src/lib.rs", "//! B.\n#![forbid(unsafe_code)]\n"),
        ]);
        assert_eq!(places(&crate_roots(&files)), [("crates/a/src/lib.rs", 1)]);
    }
}
