//! The house as it stands passes every rule.

use std::path::Path;

use picaflor_tidy::{Tree, check};

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the repository can be listed");
    let findings = check(&tree);
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} things to tidy:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_rules_see_the_house() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = Tree::read(&root).expect("the repository can be listed");
    // A walk that finds nothing would make the test above pass for the wrong reason.
    assert!(tree.files().any(|file| file.path == "crates/tidy/tests/house.rs"));
    assert!(tree.files().any(|file| file.path == "Cargo.toml"));
}
