//! What is done is kept: each case has a file in the folder of results, written when it ends. The command that was
//! interrupted is given again, and does what is left.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{run::Aged, spec::Case};
use crate::{Error, Result};

/// Changes when what a file says no longer means the same.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    disks: Vec<String>,
    aged: Aged,
}

/// The cases that are done.
pub struct Done {
    folder: PathBuf,
    disks: Vec<String>,
}

impl Done {
    /// Those in a folder of results, with the same simulated disks.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_folder(results: &Path, disks: &[String]) -> Result<Self> {
        let folder = results.join("cases");
        fs::create_dir_all(&folder).map_err(Error::file("making", &folder))?;
        Ok(Self { folder, disks: disks.to_vec() })
    }

    fn path(&self, case: &Case) -> PathBuf {
        // The name only finds it; what is in it says whether it is the case.
        let text = serde_json::to_string(&(case, &self.disks)).unwrap_or_default();
        self.folder.join(format!("{}-{:016x}.json", case.candidate, xxh3_64(text.as_bytes())))
    }

    /// What became of a case, if it was run before.
    #[must_use]
    pub fn find(&self, case: &Case) -> Option<Aged> {
        let kept: Kept = serde_json::from_slice(&fs::read(self.path(case)).ok()?).ok()?;
        let same = kept.format == FORMAT && kept.aged.case == *case && kept.disks == self.disks;
        same.then_some(kept.aged)
    }

    /// Keeps one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, aged: &Aged) -> Result<()> {
        let path = self.path(&aged.case);
        let kept = Kept { format: FORMAT, disks: self.disks.clone(), aged: aged.clone() };
        let text = serde_json::to_vec(&kept).map_err(|e| Error::experiment(aged.case.label(), e.to_string()))?;
        let half = path.with_extension("new");
        fs::write(&half, text).map_err(Error::file("writing", &half))?;
        fs::rename(&half, &path).map_err(Error::file("writing", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::spec::Spec;

    #[test]
    fn what_is_kept_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let disks = vec!["nvme".to_owned()];
        let done = Done::in_folder(folder.path(), &disks).unwrap();
        let case = Spec::default().cases().unwrap().remove(0);
        assert!(done.find(&case).is_none());
        done.keep(&Aged { case: case.clone(), samples: Vec::new(), ended: Some("full".into()) }).unwrap();
        assert_eq!(done.find(&case).unwrap().ended.as_deref(), Some("full"));
        assert!(done.find(&Case { seed: 2, ..case.clone() }).is_none());
        assert!(Done::in_folder(folder.path(), &[]).unwrap().find(&case).is_none(), "its disks are others");
        fs::write(done.path(&case), "{half").unwrap();
        assert!(done.find(&case).is_none(), "a broken file is run again");
    }
}
