//! Circles of files: files of a crate that use each other in turn, so that none can be read, tested or changed alone.
//!
//! Steps: `modules.rs` follows `mod` from the root of a crate, `mentions.rs` lists what each module names and calls,
//! `names.rs` finds the file behind a name, `components.rs` finds the circles. What is there now is in
//! [`table::CIRCLES`], which may only go down.
//!
//! What is seen: names in `use`, types, expressions, patterns and macros, re-exports followed to where a thing is
//! declared; and calls of methods whose name one `impl` or trait of the crate has, and the standard library has not.
//! A re-export is no use of what it exports, and a `mod` statement is none of the module. Tests are left out.

mod components;
mod mentions;
mod modules;
mod names;

use std::collections::BTreeSet;

pub use self::components::Circle;
use self::modules::Modules;
use crate::{Finding, Tree, table};

/// The circles of each crate of the table are as large as it says.
pub(crate) fn rule(tree: &Tree) -> Vec<Finding> {
    compare(tree, table::CIRCLES)
}

fn compare(tree: &Tree, table: &[(&str, &[usize])]) -> Vec<Finding> {
    let folders: Vec<_> = table.iter().map(|(folder, _)| *folder).collect();
    let found = circles(tree, &folders).into_iter().zip(table);
    found.filter_map(|(found, (folder, allowed))| judge(found, folder, allowed)).collect()
}

/// Compares the circles of one crate with the sizes that are allowed, largest first.
fn judge(found: Result<Vec<Circle>, String>, folder: &str, allowed: &[usize]) -> Option<Finding> {
    let found = match found {
        Ok(found) => found,
        Err(why) => return Some(Finding::new(folder, 0, why)),
    };
    let sizes: Vec<_> = found.iter().map(Circle::len).collect();
    if sizes == allowed {
        return None;
    }
    let grown = (0..sizes.len()).find(|at| sizes[*at] > allowed.get(*at).copied().unwrap_or(0));
    let message = match grown {
        Some(at) => format!("circles of {sizes:?} files, where {allowed:?} are allowed:\n{}", found[at]),
        None => format!("circles of {sizes:?} files, fewer than {allowed:?}: write the smaller numbers into CIRCLES"),
    };
    Some(Finding::new(folder, 0, message))
}

/// The circles of the crates in these folders, the largest of each first; or which file cannot be read, and why. A
/// crate may call public methods of the crates before it, so a call of one of those names is no arrow within the crate.
pub fn circles(tree: &Tree, folders: &[&str]) -> Vec<Result<Vec<Circle>, String>> {
    let mut foreign: BTreeSet<_> = table::FOREIGN_METHODS.split_whitespace().map(str::to_owned).collect();
    let circles_of = |folder: &&str| {
        let modules = Modules::read(tree, folder)?;
        let found = components::circles(&names::arrows(&modules, &foreign));
        let public = modules.methods().filter(|(_, method)| method.is_public);
        foreign.extend(public.map(|(_, method)| method.name.clone()));
        Ok(found)
    };
    folders.iter().map(circles_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tree;

    /// `a` names `b`, which calls a method of `c`, which gets at `a` by a name that the root exports again.
    const PLANTED: [(&str, &str); 5] = [
        ("crates/e/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod free;\npub use a::Thing as Exported;\n"),
        ("crates/e/src/a.rs", "pub struct Thing;\nfn f() { matches!(1, crate::b::ONE); }\n"),
        ("crates/e/src/b.rs", "pub const ONE: u8 = 1;\nfn f(x: u8) { x.unlike_any_other(1, 2) }\n"),
        ("crates/e/src/c.rs", "use crate::Exported;\nimpl C { fn unlike_any_other(&self, a: u8, b: u8) {} }\n"),
        ("crates/e/src/free.rs", "use crate::{a::Thing, b, c};\nfn f() { b::ONE }\n#[cfg(test)]\nmod tests {}\n"),
    ];

    /// What is found in these files, where circles of these sizes are allowed.
    fn said(files: &[(&str, &str)], allowed: &[usize]) -> String {
        let found = compare(&tree(files), &[("crates/e", allowed)]);
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_planted_circle_is_found_with_the_arrow_that_closes_it() {
        let found = said(&PLANTED, &[]);
        assert!(found.contains("3 files: a.rs b.rs c.rs\n"), "{found}");
        assert_eq!(found.matches(" -> ").count(), 1, "one arrow less and there is none: {found}");
        let larger = said(&PLANTED, &[2]);
        assert!(larger.contains("[3] files, where [2] are allowed"), "{larger}");
    }

    #[test]
    fn a_circle_as_large_as_allowed_passes_and_a_smaller_one_lowers_the_table() {
        assert_eq!(said(&PLANTED, &[3]), "");
        for allowed in [&[4][..], &[3, 2]] {
            let smaller = said(&PLANTED, allowed);
            assert!(smaller.contains("[3] files, fewer than"), "{smaller}");
        }
    }

    #[test]
    fn each_of_its_arrows_is_needed() {
        for (file, without) in [(1, "pub struct Thing;"), (2, "pub const ONE: u8 = 1;"), (3, "impl C {}")] {
            let mut files = PLANTED;
            files[file].1 = without;
            assert_eq!(said(&files, &[]), "", "{without}");
        }
    }

    #[test]
    fn a_method_that_others_have_or_that_takes_other_arguments_tells_nothing() {
        let mut files = PLANTED.to_vec();
        files[3].1 = "use crate::Exported;\nimpl C { fn unlike_any_other(&self, a: u8) {} }\n";
        assert_eq!(said(&files, &[]), "");
        let mut files = PLANTED.to_vec();
        files[4].1 = "impl D { fn unlike_any_other(&self, a: u8, b: u8) {} }\n";
        assert_eq!(said(&files, &[]), "");
        for (below, findings) in [("pub fn", 0), ("fn", 1)] {
            let below = format!("impl D {{ {below} unlike_any_other(&self, a: u8, b: u8) {{}} }}\n");
            let mut files = PLANTED.to_vec();
            files.push(("crates/below/src/lib.rs", &below));
            let found = compare(&tree(&files), &[("crates/below", &[]), ("crates/e", &[])]);
            assert_eq!(found.len(), findings, "{below}");
        }
    }

    #[test]
    fn a_crate_that_is_not_there_or_cannot_be_read_is_a_finding() {
        assert!(said(&[("crates/e/src/lib.rs", "mod a;\n"), ("crates/e/src/a.rs", "fn {\n")], &[]).contains("a.rs"));
        assert!(said(&[("crates/e/src/lib.rs", "mod a;\n")], &[]).contains("`a`"));
        assert!(said(&[], &[]).contains("no crate"));
    }
}
