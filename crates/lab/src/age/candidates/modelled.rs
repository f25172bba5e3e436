//! A file for each object on a file system that is modelled, on a simulated disk of the volume's size (`fs`). What ages
//! is where the model lays blocks, and its rates are of the disk's own time: the machine's have no part in them.
//!
//! The model is given a file whole and lays block after block, so there are no requests. It has no second name for a
//! file: a safe write makes the new version under a name of its own, forces it, and removes the old one. Bytes of
//! objects are in this machine's memory.

use std::{collections::HashMap, io::ErrorKind};

use picaflor_device::{Clock, Folder};
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

use super::candidate::{Candidate, Located, Manner, Write, Wrote};
use crate::{
    Error, Result,
    age::{extents::Extent, kind::Kind, load::Load, spec::Case},
    fs::{FileSystem, FsProfile},
};

/// The paper's.
const DISK: &str = "barracuda7200_8";

pub(super) struct Modelled {
    name: &'static str,
    system: FileSystem,
    clock: Clock,
    /// Names of the newest versions.
    names: HashMap<u32, String>,
}

impl Modelled {
    pub(super) fn new(case: &Case) -> Result<Self> {
        let name = case.candidate.name();
        let wrong = |error: &dyn ToString| Error::experiment(name, error.to_string());
        let profile = FsProfile::find(if case.candidate == Kind::ModelNtfs { "ntfs" } else { "ufs" })?;
        let disk = Profile::find(DISK).map_err(|error| wrong(&error))?;
        let part = Some(0..case.volume / profile.layout.block * profile.layout.block);
        let options = SimulatedOptions { part, seed: case.seed, ..SimulatedOptions::default() };
        let clock = Clock::virtual_at(0);
        let disk = SimulatedDisk::new(&disk, clock.clone(), &options).map_err(|error| wrong(&error))?;
        let system = FileSystem::new(&profile, &disk).map_err(|error| wrong(&error))?;
        Ok(Self { name, system, clock, names: HashMap::new() })
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> Error + use<> {
        let name = self.name;
        move |error| Error::experiment(name, error.to_string())
    }
}

impl Candidate for Modelled {
    fn write(&mut self, writes: &[Write<'_>], _: &Manner) -> Result<Wrote> {
        for write in writes {
            let object = write.version.object;
            let name = format!("{object:08x}.{}", write.version.version);
            match self.system.write(&name, write.body).and_then(|()| self.system.sync_file(&name)) {
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(Wrote::Full(error.to_string())),
                done => done.map_err(self.failed())?,
            }
            if let Some(old) = self.names.insert(object, name) {
                self.system.remove(&old).map_err(self.failed())?;
            }
        }
        Ok(Wrote::Done)
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        let Some(name) = self.names.remove(&object) else { return Ok(()) };
        self.system.remove(&name).map_err(self.failed())
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        let Some(name) = self.names.get(&object) else { return Ok(false) };
        *into = self.system.read(name).map_err(self.failed())?;
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        self.system.empty_memory().map_err(self.failed())
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        let of = |object: u32| self.names.get(&object).and_then(|name| self.system.extents(name)).unwrap_or_default();
        let told = load.live().map(|version| {
            let parts = of(version.object).into_iter().map(|(offset, len)| Extent { offset, len });
            (version.object, parts.collect())
        });
        Ok(Located { marks: None, told: Some(told.collect()) })
    }

    fn written(&mut self) -> Option<u64> {
        Some(self.system.counts().written_bytes)
    }

    fn now(&self) -> Option<u64> {
        Some(self.clock.now_nanos())
    }
}
