//! What a registry asks of a crate. The crates of the product can be published, with all that they depend on; the
//! others say that they are not to be.

use crate::{
    Finding, Tree,
    arrows::{our_dependencies, package_name},
    tree::File,
};

/// What stands in the manifest of a crate that can be published, at the begin of a line.
const NEEDED: [&str; 9] = [
    "description",
    "include",
    "version",
    "license",
    "repository",
    "readme = \"README.md\"",
    "keywords",
    "categories",
    "[package.metadata.docs.rs]",
];

/// A crate that can be published says what a registry asks for, has a README whose Rust is compiled, and depends on no
/// crate of ours that is not published, or that it names without a version.
pub(crate) fn publishable(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<_> = tree.ending(&["/Cargo.toml"]).filter(|file| file.path.starts_with("crates/")).collect();
    let published = |name: &str| manifests.iter().any(|file| package_name(&file.text) == name && is_published(file));
    let mut findings = Vec::new();
    for file in manifests.iter().filter(|file| is_published(file)) {
        let mut say = |line: usize, what: String| findings.push(Finding::new(&file.path, line, what));
        let missing = NEEDED.iter().filter(|needed| !file.text.lines().any(|line| line.starts_with(**needed)));
        missing.for_each(|needed| say(1, format!("no `{needed}`, and no `publish = false`")));
        let folder = file.path.trim_end_matches("Cargo.toml");
        let readme = tree.get(&format!("{folder}README.md")).map(|readme| readme.text.as_str());
        let root = tree.get(&format!("{folder}src/lib.rs")).map_or("", |root| root.text.as_str());
        match readme {
            None => say(1, "no README.md beside it".into()),
            Some(text) if has_code(text) && !root.contains("include_str!(\"../README.md\")") => {
                say(1, "the examples of its README are not compiled: `cfg(doctest)` in lib.rs".into());
            }
            Some(_) => {}
        }
        for (line, _, name) in our_dependencies(&file.text).iter().filter(|(_, section, _)| !section.contains("dev")) {
            let text = file.text.lines().nth(line - 1).unwrap_or("");
            let inherits = text.contains("workspace = true") && has_version(tree, name);
            if !published(name) {
                say(*line, format!("`{name}` is not published"));
            } else if !inherits && !text.contains("version =") {
                say(*line, format!("`{name}` has a path and no version"));
            }
        }
    }
    findings
}

fn is_published(manifest: &File) -> bool {
    !manifest.text.lines().any(|line| line == "publish = false")
}

/// Rust that is meant to compile.
fn has_code(readme: &str) -> bool {
    readme.lines().any(|line| line.starts_with("```rust") && !line.contains("ignore"))
}

/// Whether the workspace names this crate with a version.
fn has_version(tree: &Tree, name: &str) -> bool {
    let text = tree.get("Cargo.toml").map_or("", |file| file.text.as_str());
    let rows = text.lines().filter_map(|line| line.split_once(" = "));
    rows.filter(|(row, _)| *row == name).any(|(_, value)| value.contains("version ="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    const README: &str = "# a\n\n```rust\nfn main() {}\n```\n";
    const ROOT: &str = "#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n";

    #[test]
    fn a_crate_that_no_registry_takes_is_found() {
        let complete = format!("name = \"picaflor-a\"\n{}\n", NEEDED.join("\n"));
        let with = |manifest: &str, rest: &[(&str, &str)]| {
            let files = [&[("crates/a/Cargo.toml", manifest)], rest].concat();
            publishable(&tree(&files)).len()
        };
        let (readme, root) = (("crates/a/README.md", README), ("crates/a/src/lib.rs", ROOT));
        assert_eq!(with(&complete, &[readme, root]), 0);
        assert_eq!(with(&complete, &[root]), 1, "no README");
        assert_eq!(with(&complete, &[readme]), 1, "its example is not compiled");
        for needed in NEEDED {
            let manifest = complete.replace(&format!("{needed}\n"), "");
            assert_eq!(with(&manifest, &[readme, root]), 1, "without {needed}");
            assert_eq!(with(&format!("{manifest}publish = false\n"), &[]), 0);
        }
    }

    #[test]
    fn a_dependency_that_a_registry_cannot_find_is_found() {
        let complete = |name: &str, more: &str| format!("name = \"{name}\"\n{}\n{more}", NEEDED.join("\n"));
        let a = complete(
            "picaflor-a",
            "[dependencies]\npicaflor-b.workspace = true\npicaflor-c.workspace = true\npicaflor-d.workspace = true\n\
             picaflor-b = { path = \"../b\" }\n[dev-dependencies]\npicaflor-d.workspace = true\n",
        );
        let files = tree(&[
            ("Cargo.toml", "picaflor-b = { path = \"b\", version = \"1\" }\npicaflor-c = { path = \"c\" }\n"),
            ("crates/a/Cargo.toml", &a),
            ("crates/a/README.md", ""),
            ("crates/b/Cargo.toml", &complete("picaflor-b", "")),
            ("crates/b/README.md", ""),
            ("crates/c/Cargo.toml", &complete("picaflor-c", "")),
            ("crates/c/README.md", ""),
            ("crates/d/Cargo.toml", "name = \"picaflor-d\"\npublish = false\n"),
        ]);
        assert_eq!(
            places(&publishable(&files)),
            [("crates/a/Cargo.toml", 13), ("crates/a/Cargo.toml", 14), ("crates/a/Cargo.toml", 15)]
        );
    }
}
