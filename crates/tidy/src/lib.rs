//! House style as a test: what a careful reviewer would say, said by `cargo test -p picaflor-tidy`.
//!
//! A rule is a function from a [`Tree`] to [`Finding`]s. What may change with the house (which crate may use
//! which, where `unsafe` may stand, which words are taken) is data in [`table`]; the rules themselves are code.
//! Every rule has a test that shows it failing on a bad sample: a rule that cannot fail proves nothing.
#![forbid(unsafe_code)]

mod arrows;
mod circles;
mod docs;
mod manifests;
mod reach;
mod rust;
mod source;
pub mod table;
mod text;
mod tree;

use std::fmt;

pub use circles::{Circle, circles};
pub use tree::{File, Tree};

/// One thing that does not belong, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1; 0 speaks of the whole file.
    pub line: usize,
    /// What is wrong, and where it helps, the mend.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.message)
    }
}

/// Everything the rules say about a tree, in the order of its paths.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 18] = [
        text::width,
        text::whitespace,
        text::machine_paths,
        text::words,
        rust::header,
        rust::size,
        rust::unfinished,
        rust::unsafe_code,
        rust::crate_roots,
        reach::dead_files,
        arrows::crates,
        arrows::modules,
        circles::rule,
        manifests::publishable,
        docs::links,
        docs::guide,
        docs::lengths,
        docs::commands,
    ];
    let mut findings: Vec<_> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

#[cfg(test)]
pub(crate) mod sample {
    //! Small trees for the rules' own tests.

    use crate::{Finding, Tree};

    /// A tree of these paths and texts.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// Path and line of each finding, which is what most tests compare.
    pub(crate) fn places(findings: &[Finding]) -> Vec<(&str, usize)> {
        findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect()
    }
}
