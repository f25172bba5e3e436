//! All rules at once.

use crate::{Finding, Tree, arrows, circles, docs, manifests, methods, reach, rust, text};

/// Everything the rules say about a tree, in the order of its paths.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rules: [fn(&Tree) -> Vec<Finding>; 19] = [
        text::width,
        text::whitespace,
        text::machine_paths,
        text::words,
        rust::header,
        rust::size,
        methods::count,
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
