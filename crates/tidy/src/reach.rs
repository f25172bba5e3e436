//! A file that no `mod` reaches is never compiled: it looks alive and is not.

use std::collections::HashSet;

use crate::{Finding, Tree, source::Source};

/// Every `.rs` file of a crate is a root that cargo builds or is reached from one by `mod` statements.
pub(crate) fn dead_files(tree: &Tree) -> Vec<Finding> {
    let mut reached = HashSet::new();
    for (file, _) in tree.rust().filter(|(file, _)| is_root(tree, &file.path)) {
        follow(tree, &file.path, true, &mut reached);
    }
    tree.rust()
        .filter(|(file, _)| !reached.contains(&file.path))
        .map(|(file, _)| Finding::new(&file.path, 0, "no `mod` statement reaches this file"))
        .collect()
}

/// What cargo builds by itself: the targets of the layout it knows, and any path a manifest names.
fn is_root(tree: &Tree, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = folder.rsplit('/').next().unwrap_or("");
    let grandparent = folder.rsplit('/').nth(1).unwrap_or("");
    let targets = |folder: &str| matches!(folder, "tests" | "benches" | "examples" | "bin" | "fuzz_targets");
    let beside_manifest = |crate_folder: &str| tree.get(&join(crate_folder, "Cargo.toml")).is_some();
    let crate_folder = |depth: usize| path.rsplitn(depth + 1, '/').nth(depth).unwrap_or("");
    match name {
        "lib.rs" | "main.rs" if parent == "src" => true,
        "main.rs" if targets(grandparent) => true,
        "build.rs" => beside_manifest(folder),
        _ if parent == "bin" => true,
        _ if targets(parent) => beside_manifest(crate_folder(2)),
        _ => tree.ending(&["Cargo.toml"]).any(|manifest| {
            let home = manifest.path.rsplit_once('/').map_or("", |(home, _)| home);
            path.strip_prefix(home)
                .is_some_and(|rest| manifest.text.contains(&format!("\"{}\"", rest.trim_start_matches('/'))))
        }),
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Marks a file and all that its `mod` statements lead to.
fn follow(tree: &Tree, path: &str, root: bool, reached: &mut HashSet<String>) {
    let Some(file) = tree.get(path) else { return };
    let Some(source) = &file.source else { return };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let own = if root || name == "mod.rs" { folder.to_owned() } else { join(folder, name.trim_end_matches(".rs")) };
    for module in modules(source) {
        follow(tree, &join(&own, &format!("{module}.rs")), false, reached);
        follow(tree, &join(&own, &format!("{module}/mod.rs")), false, reached);
    }
    for named in named_paths(&file.text) {
        follow(tree, &join(folder, named), false, reached);
        follow(tree, &normal(&join(folder, named)), false, reached);
    }
}

/// `a/b/../c` is `a/c`.
pub(crate) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Names in `mod name;` statements.
fn modules(source: &Source) -> impl Iterator<Item = &str> {
    source.code.lines().filter_map(|line| {
        let (before, after) = line.split_once("mod ")?;
        let name = after.trim_end().strip_suffix(';')?.trim();
        let visible = before.trim_start();
        let visible = visible.rsplit(']').next().unwrap_or(visible).trim();
        (visible.is_empty() || visible.starts_with("pub")).then_some(name)
    })
}

/// Paths in `#[path = "..."]` and `include!("...")`.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_once("#[path = \"").or_else(|| line.split_once("include!(\"")))
        .filter_map(|(_, rest)| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn a_file_that_no_mod_reaches_is_found() {
        let files = tree(&[
            ("crates/a/Cargo.toml", "[[bench]]\npath = \"odd/bench.rs\"\n"),
            ("crates/a/build.rs", ""),
            ("crates/a/odd/bench.rs", ""),
            ("crates/a/src/lib.rs", "mod one;\n#[cfg(test)] mod tests;\npub(crate) mod two;\n// mod dead;\n"),
            ("crates/a/src/one.rs", "mod deep;\n#[path = \"../shared.rs\"]\nmod shared;\n"),
            ("crates/a/src/one/deep.rs", ""),
            ("crates/a/shared.rs", ""),
            ("crates/a/src/two/mod.rs", "mod leaf;\n"),
            ("crates/a/src/two/leaf.rs", ""),
            ("crates/a/src/tests.rs", ""),
            ("crates/a/src/dead.rs", "mod deader;\n"),
            ("crates/a/src/dead/deader.rs", ""),
            ("crates/a/tests/it.rs", "mod common;\n"),
            ("crates/a/tests/common/mod.rs", ""),
        ]);
        assert_eq!(places(&dead_files(&files)), [("crates/a/src/dead.rs", 0), ("crates/a/src/dead/deader.rs", 0)]);
    }
}
