//! House style as a test: what a careful reviewer would say, said by `cargo test -p picaflor-tidy`.
//!
//! A rule is a function from a [`Tree`] to [`Finding`]s. What may change with the house (which crate may use
//! which, where `unsafe` may stand, which words are taken) is data in [`table`]; the rules themselves are code.
//! Every rule has a test that shows it failing on a bad sample: a rule that cannot fail proves nothing.
#![forbid(unsafe_code)]

mod arrows;
mod check;
mod circles;
mod docs;
mod finding;
mod manifests;
mod methods;
mod reach;
mod rust;
mod source;
pub mod table;
mod text;
mod tree;

pub use check::check;
pub use circles::{Circle, circles};
pub use finding::Finding;
pub use tree::{File, Tree};

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
