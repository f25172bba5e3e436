//! Runs targets on what fuzzing kept for them, as ordinary tests; each crate with targets includes this file.

use std::{fs, path::Path};

use super::Target;

/// Runs each target on every file of its corpus, and says on which it fails.
pub(crate) fn all(targets: &[Target]) {
    let mut failed = Vec::new();
    for (name, target) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut files: Vec<_> = fs::read_dir(&folder).expect(name).map(|entry| entry.expect(name).path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} is empty: scripts/fuzz --keep {name}", folder.display());
        for file in files {
            let bytes = fs::read(&file).expect(name);
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                failed.push(format!("scripts/fuzz --run {name} {}", file.display()));
            }
        }
    }
    assert!(failed.is_empty(), "these fail:\n{}", failed.join("\n"));
}
