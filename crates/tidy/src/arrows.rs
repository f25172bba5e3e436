//! Arrows point down only: between crates as their manifests say, between modules as their `use`s say.

use std::collections::BTreeSet;

use crate::{
    Finding, Tree,
    source::{line_of, whole_words},
    table,
};

/// A crate names only those of ours that [`table::CRATES`] gives it.
pub(crate) fn crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(&["/Cargo.toml"]).filter(|file| file.path.starts_with("crates/")) {
        let name = package_name(&file.text);
        let Some((_, allowed)) = table::CRATES.iter().find(|(crate_name, _)| *crate_name == name) else {
            findings.push(Finding::new(&file.path, 1, format!("crate `{name}` is not in tidy's table of arrows")));
            continue;
        };
        let below = closure(allowed);
        for (line, section, dependency) in our_dependencies(&file.text) {
            let may = match section {
                "dev-dependencies" => below.contains(dependency) || table::FOR_TESTS.contains(&dependency),
                _ => allowed.contains(&dependency),
            };
            if !may && dependency != name {
                let message = format!("`{name}` may not depend on `{dependency}`: arrows point down only");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

pub(crate) fn package_name(manifest: &str) -> &str {
    manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("without a name")
}

/// Everything below these crates, themselves included.
fn closure(allowed: &[&'static str]) -> BTreeSet<&'static str> {
    let mut below: BTreeSet<_> = allowed.iter().copied().collect();
    loop {
        let more: Vec<_> = table::CRATES
            .iter()
            .filter(|(name, _)| below.contains(name))
            .flat_map(|(_, uses)| uses.iter().copied())
            .filter(|name| !below.contains(name))
            .collect();
        if more.is_empty() {
            return below;
        }
        below.extend(more);
    }
}

/// Line, section and name of each dependency on a crate of ours, however it is written.
pub(crate) fn our_dependencies(manifest: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    let mut section = "";
    for (number, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let mut name = line.split(['.', ' ', '=']).next().unwrap_or("");
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let (kind, table_name) = match header.find("dependencies.") {
                Some(at) => header.split_at(at + "dependencies".len()),
                None => (header, ""),
            };
            section = kind.rsplit('.').next().unwrap_or(kind);
            name = table_name.trim_start_matches('.');
        }
        let ours = name == "picaflor" || name.starts_with("picaflor-");
        if ours && section.ends_with("dependencies") {
            found.push((number + 1, section, name));
        }
    }
    found
}

/// A module names only modules of its own floor and below ([`table::FLOORS`]).
pub(crate) fn modules(tree: &Tree) -> Vec<Finding> {
    table::FLOORS.iter().flat_map(|(crate_folder, floors)| modules_of(tree, crate_folder, floors)).collect()
}

fn modules_of(tree: &Tree, crate_folder: &str, floors: &[&[&str]]) -> Vec<Finding> {
    let floor_of = |module: &str| floors.iter().position(|floor| floor.contains(&module));
    let source_folder = format!("{crate_folder}/src/");
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let Some(inside) = file.path.strip_prefix(&source_folder) else { continue };
        let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        if matches!(module, "lib" | "main" | "tests") {
            continue;
        }
        let Some(floor) = floor_of(module) else {
            findings.push(Finding::new(&file.path, 1, format!("module `{module}` stands on no floor of tidy's table")));
            continue;
        };
        for (line, used) in used_modules(&source.code) {
            let above = floor_of(used).filter(|used_floor| *used_floor > floor);
            if above.is_some() && !source.is_test(line) {
                let message = format!("`{module}` may not use `{used}`, which stands above it");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// Line and first name of each `crate::name` and `crate::{name, ...}`.
fn used_modules(code: &str) -> Vec<(usize, &str)> {
    let mut used = Vec::new();
    for at in whole_words(code, "crate::") {
        let start = at + "crate::".len();
        let mut push = |from: usize| {
            let name = &code[from..];
            let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
            used.push((line_of(code, from), &name[..end]));
        };
        if !code[start..].starts_with('{') {
            push(start);
            continue;
        }
        let mut depth = 0;
        let mut fresh = false;
        for (offset, character) in code[start..].char_indices() {
            match character {
                '{' => (depth, fresh) = (depth + 1, depth == 0),
                '}' => depth -= 1,
                ',' => fresh = depth == 1,
                _ if fresh && !character.is_whitespace() => {
                    push(start + offset);
                    fresh = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn an_arrow_that_points_up_between_crates_is_found() {
        let device = "name = \"picaflor-device\"\n[dependencies]\nbytes = \"1\"\npicaflor.workspace = true\n\
                      [dev-dependencies]\npicaflor-sim = {}\n";
        let table = "name = \"picaflor-table\"\n[dependencies]\npicaflor-sim.workspace = true\n";
        let engine = "name = \"picaflor\"\n[dependencies.picaflor-proxy]\n[dev-dependencies]\npicaflor-device = {}\n";
        let proxy = "name = \"picaflor-proxy\"\n[target.'cfg(unix)'.dependencies]\npicaflor-format = {}\n\
                     [dev-dependencies]\npicaflor-format.workspace = true\n";
        let files = tree(&[
            ("crates/device/Cargo.toml", device),
            ("crates/engine/Cargo.toml", engine),
            ("crates/new/Cargo.toml", "name = \"picaflor-new\"\n"),
            ("crates/proxy/Cargo.toml", proxy),
            ("crates/table/Cargo.toml", table),
        ]);
        let expected = [
            ("crates/device/Cargo.toml", 4),
            ("crates/engine/Cargo.toml", 2),
            ("crates/new/Cargo.toml", 1),
            ("crates/proxy/Cargo.toml", 3),
            ("crates/table/Cargo.toml", 3),
        ];
        assert_eq!(places(&crates(&files)), expected);
    }

    #[test]
    fn an_arrow_that_points_up_between_modules_is_found() {
        let floors: &[&[&str]] = &[&["error"], &["index", "space"], &["put"]];
        let files = tree(&[
            ("crates/e/src/lib.rs", "use crate::put::Put;\n"),
            ("crates/e/src/error.rs", "use crate::{space::A, error::B};\n"),
            ("crates/e/src/index/shard.rs", "fn a() { crate::put::b(crate::space::c()) }\n"),
            ("crates/e/src/put.rs", "use crate::{\n    index::{put, A},\n    error::E,\n};\n"),
            ("crates/e/src/space.rs", "use crate::error;\n#[cfg(test)]\nmod tests {\n    use crate::put;\n}\n"),
            ("crates/e/src/stray.rs", ""),
        ]);
        let expected = [("crates/e/src/error.rs", 1), ("crates/e/src/index/shard.rs", 1), ("crates/e/src/stray.rs", 1)];
        assert_eq!(places(&modules_of(&files, "crates/e", floors)), expected);
    }
}
