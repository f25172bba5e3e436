//! Rules about what a reader is told: links lead somewhere, and the commands of the README are the ones CI runs.

use crate::{Finding, Tree, reach::normal, table};

/// A relative link of a Markdown file leads to a file or folder of the repository.
pub(crate) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(&[".md"]) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut fenced = false;
        for (number, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            for target in targets(line).filter(|_| !fenced) {
                let path = target.split(['#', '?']).next().unwrap_or("");
                let outside = target.contains("://") || target.starts_with("mailto:");
                if !outside && !tree.exists(&normal(&format!("{folder}/{path}"))) && !path.is_empty() {
                    findings.push(Finding::new(&file.path, number + 1, format!("link to nothing: {target}")));
                }
            }
        }
    }
    findings
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
        let text = "[a](b.md) [c](../README.md#here) [d](https://x/y) [e](#f)\n[g](gone.md)\n```\n[h](i)\n```\n";
        let files = tree(&[("docs/A.md", text), ("docs/b.md", ""), ("README.md", "")]);
        assert_eq!(places(&links(&files)), [("docs/A.md", 2)]);
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
