//! Rules about what a reader is told: links lead somewhere, the functions that the guide names are there, short pages
//! stay short, and the commands of the README are the ones CI runs.

use crate::{Finding, Tree, reach::normal, table};

/// A relative link of a Markdown file leads to a file or folder of the repository, and to a heading that is there.
pub(crate) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(&[".md"]) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in unfenced(&file.text) {
            for target in targets(line).filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() { file.path.clone() } else { normal(&format!("{folder}/{path}")) };
                let page = tree.get(&path).filter(|page| page.path.ends_with(".md"));
                if !tree.exists(&path) || page.is_some_and(|page| !heading.is_empty() && !has(&page.text, heading)) {
                    findings.push(Finding::new(&file.path, number, format!("link to nothing: {target}")));
                }
            }
        }
    }
    findings
}

/// The lines of a Markdown file that are no code, with their numbers.
fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Whether a page has the heading that such an anchor leads to.
fn has(text: &str, anchor: &str) -> bool {
    unfenced(text).filter(|(_, line)| line.starts_with('#')).any(|(_, line)| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).eq(anchor.chars())
    })
}

/// Every function that [`table::GUIDE`] names in a table stands in the file that its row begins with; every function
/// and file that it names elsewhere is in the engine.
pub(crate) fn guide(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(table::GUIDE) else { return Vec::new() };
    let mut findings = Vec::new();
    for (number, line) in unfenced(&page.text) {
        let file = line.strip_prefix("| `").and_then(|row| row.split('`').next()).filter(|name| name.ends_with(".rs"));
        for name in line.split('`').skip(1).step_by(2) {
            let found = match name.strip_suffix("()") {
                Some(function) => defines(tree, file, function),
                None if name.ends_with(".rs") || name.ends_with('/') => candidates(name).any(|path| tree.exists(&path)),
                None => true,
            };
            if !found {
                findings.push(Finding::new(&page.path, number, format!("there is no `{name}`")));
            }
        }
    }
    findings
}

/// Where a file or folder that the guide names may be.
fn candidates(name: &str) -> impl Iterator<Item = String> {
    let name = name.trim_end_matches('/').to_owned();
    ["", table::GUIDED].into_iter().map(move |root| format!("{root}{name}"))
}

/// Whether a file of the engine, this one if it is named, defines such a function.
fn defines(tree: &Tree, file: Option<&str>, function: &str) -> bool {
    let here = |path: &str| path.strip_prefix(table::GUIDED).is_some_and(|path| file.is_none_or(|file| path == file));
    let starts = ["(", "<"].map(|open| format!("fn {function}{open}"));
    tree.rust().any(|(code, _)| here(&code.path) && starts.iter().any(|start| code.text.contains(start)))
}

/// Pages for readers in a hurry stay short ([`table::SHORT`]).
pub(crate) fn lengths(tree: &Tree) -> Vec<Finding> {
    let too_long = |(path, most, of): &(&str, usize, &str)| {
        let text = &tree.get(path)?.text;
        let count = if *of == "words" { text.split_whitespace().count() } else { text.lines().count() };
        (count > *most).then(|| Finding::new(path, 0, format!("{count} {of}, at most {most}")))
    };
    table::SHORT.iter().filter_map(too_long).collect()
}

/// What stands in `](...)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| line[at + open.len()..].split([')', ' ']).next())
}

/// The README gives the commands of [`table::COMMANDS`], what they need exists, and `.ci/run` runs the last.
pub(crate) fn commands(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.get(path).map_or("", |file| file.text.as_str());
    let (readme, ci) = (text("README.md"), text(".ci/run"));
    let mut findings = Vec::new();
    for (command, needs) in table::COMMANDS {
        if !readme.contains(command) {
            findings.push(Finding::new("README.md", 0, format!("does not give the command `{command}`")));
        }
        if !tree.exists(needs) {
            findings.push(Finding::new("README.md", 0, format!("`{command}` needs {needs}, which is not there")));
        }
    }
    let tests = table::COMMANDS[table::COMMANDS.len() - 1].0;
    if !ci.contains(tests) {
        findings.push(Finding::new(".ci/run", 0, format!("does not run `{tests}`, which the README promises")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn a_link_to_nothing_is_found() {
        let text = "[a](b.md) [c](../README.md#its-here) [d](https://x/y) [e](#f)\n[g](gone.md)\n```\n[h](i)\n```\n## F\n\
                    [j](#g)\n[k](b.md#f)\n";
        let files = tree(&[("docs/A.md", text), ("docs/b.md", ""), ("README.md", "# It's here\n")]);
        assert_eq!(places(&links(&files)), [("docs/A.md", 2), ("docs/A.md", 7), ("docs/A.md", 8)]);
    }

    #[test]
    fn a_name_that_the_guide_has_and_the_engine_has_not_is_found() {
        let text = "| `ops/a.rs` | `put()`, `get()` | of `b.rs` |\nIt is `get()` in `ops/`.\n`gone()`, `gone.rs`\n";
        let [a, b] = ["ops/a.rs", "b.rs"].map(|name| format!("{}{name}", table::GUIDED));
        let files = tree(&[(table::GUIDE, text), (&a, "fn put() {}\n"), (&b, "fn get<T>() {}\n")]);
        let lines: Vec<_> = guide(&files).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 3, 3]);
    }

    #[test]
    fn a_page_that_is_too_long_is_found() {
        for (path, most, _) in table::SHORT {
            let [fits, long] = [*most, most + 1].map(|count| "word\n".repeat(count));
            assert_eq!(lengths(&tree(&[(path, &fits)])), []);
            assert_eq!(places(&lengths(&tree(&[(path, &long)]))), [(*path, 0)]);
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_found() {
        let good = [
            ("README.md", "`cargo run --release -- serve`, then `scripts/test`\n"),
            (".ci/run", "exec scripts/test\n"),
            ("scripts/test", "#!/bin/bash\n"),
            ("crates/cli/Cargo.toml", ""),
        ];
        assert_eq!(commands(&tree(&good)), []);
        for without in 0..good.len() {
            let mut bad = good.to_vec();
            bad.remove(without);
            assert!(!commands(&tree(&bad)).is_empty(), "nothing found without {}", good[without].0);
        }
    }
}
