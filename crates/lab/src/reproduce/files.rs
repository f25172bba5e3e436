//! Files created and deleted, as HBENCH-OS `latfs` does (Markatos et al., §3.3, Figure 3).

use std::io;

use picaflor_device::{Clock, Folder};
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

use crate::{
    Error, Result,
    fs::{FileSystem, FsProfile},
};

/// The one disk of the whole paper: a Barracuda 4 for the paper's ST15150WC, which is of that family.
const DISK: &str = "barracuda4";
/// The one file system: UFS with synchronous metadata, as Solaris 2.6 had it.
const FILE_SYSTEM: &str = "ufs";
/// Files in the directory, and how often all are made and removed.
const FILES: u32 = 64;
const ROUNDS: u32 = 4;

/// Milliseconds, by size of the file.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// Bytes, milliseconds to create, milliseconds to delete.
    measured: Vec<(u64, f64, f64)>,
}

impl Files {
    pub(super) fn measure() -> Result<Self> {
        let sizes = [0, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 6 << 10, 8 << 10, 10 << 10];
        let failed = |error: io::Error| Error::experiment("Figure 3", error.to_string());
        let profile = Profile::find(DISK).map_err(|error| Error::experiment(DISK, error.to_string()))?;
        let kind = FsProfile::find(FILE_SYSTEM)?;
        let one = |bytes: u64| latfs(&profile, &kind, bytes).map_err(failed);
        Ok(Self { measured: sizes.into_iter().map(one).collect::<Result<_>>()? })
    }

    pub(super) fn create(&self, bytes: u64) -> Option<f64> {
        self.measured.iter().find(|one| one.0 == bytes).map(|one| one.1)
    }

    pub(super) fn delete(&self, bytes: u64) -> Option<f64> {
        self.measured.iter().find(|one| one.0 == bytes).map(|one| one.2)
    }
}

/// Makes files of this size in a directory of their own, removes them in the order of their creation, some times over.
/// Bytes, and mean milliseconds of each.
fn latfs(profile: &Profile, kind: &FsProfile, bytes: u64) -> io::Result<(u64, f64, f64)> {
    let clock = Clock::virtual_at(0);
    let disk = SimulatedDisk::new(profile, clock.clone(), &SimulatedOptions::default())?;
    let system = FileSystem::new(kind, &disk)?;
    system.make_dir("bench")?;
    let body = vec![1; usize::try_from(bytes).unwrap_or(0)];
    let path = |file: u32| format!("bench/lat_{file:03}");
    let (mut create, mut remove) = (0, 0);
    for _ in 0..ROUNDS {
        let begin = clock.now_nanos();
        (0..FILES).try_for_each(|file| system.write(&path(file), &body))?;
        let middle = clock.now_nanos();
        (0..FILES).try_for_each(|file| system.remove(&path(file)))?;
        create += middle - begin;
        remove += clock.now_nanos() - middle;
    }
    let each = |nanos: u64| nanos as f64 / 1e6 / f64::from(FILES * ROUNDS);
    Ok((bytes, each(create), each(remove)))
}
