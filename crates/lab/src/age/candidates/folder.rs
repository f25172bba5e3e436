//! A file for each object, in one folder. A safe write makes a temporary file, forces it, renames it over the old one
//! and forces the folder.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

use super::candidate::{Candidate, Located, Manner, Told, Write, Wrote, forget};
use crate::{
    Error, Result,
    age::{extents, load::Load, spec::Force},
    run::Kept,
};

pub(super) struct Files {
    folder: PathBuf,
    handle: File,
    /// Of a folder that was made for the run.
    _kept: Option<Kept>,
}

impl Files {
    /// In a folder of its own, on the file system that is there.
    pub(super) fn in_folder(within: &Path) -> Result<Self> {
        let kept = Kept::made_in(within)?;
        let mut files = Self::new(kept.path())?;
        files._kept = Some(kept);
        Ok(files)
    }

    /// In this folder, which is empty.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let handle = File::open(folder).map_err(Error::file("opening", folder))?;
        Ok(Self { folder: folder.into(), handle, _kept: None })
    }

    fn path(&self, object: u32) -> PathBuf {
        self.folder.join(format!("{object:08x}"))
    }

    fn temporary(&self, object: u32) -> PathBuf {
        self.folder.join(format!("{object:08x}.new"))
    }

    fn try_write(&self, writes: &[Write<'_>], manner: &Manner) -> io::Result<()> {
        let mut open = Vec::with_capacity(writes.len());
        for write in writes {
            let file = OpenOptions::new().write(true).create_new(true).open(self.temporary(write.version.object))?;
            if manner.announce {
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, write.len())?;
            }
            open.push((file, write.requests(manner)));
        }
        // One request of each in turn, as of writers that run at one time.
        let mut wrote = true;
        while std::mem::take(&mut wrote) {
            for (file, requests) in &mut open {
                let Some(request) = requests.next() else { continue };
                file.write_all(request)?;
                if manner.force == Force::Each {
                    file.sync_data()?;
                }
                wrote = true;
            }
        }
        for ((file, _), write) in open.iter().zip(writes) {
            file.sync_all()?;
            fs::rename(self.temporary(write.version.object), self.path(write.version.object))?;
            self.handle.sync_all()?;
        }
        Ok(())
    }

    fn failed(&self, what: &'static str, error: io::Error) -> Error {
        Error::file(what, &self.folder)(error)
    }

    /// What the file system says of each file.
    fn told(&self, load: &Load) -> io::Result<Option<Told>> {
        let mut all = Vec::new();
        for version in load.live() {
            let Some(found) = extents::of_file(&File::open(self.path(version.object))?)? else { return Ok(None) };
            all.push((version.object, found));
        }
        Ok(Some(all))
    }
}

impl Candidate for Files {
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote> {
        let Err(error) = self.try_write(writes, manner) else { return Ok(Wrote::Done) };
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(Wrote::Full(error.to_string())),
            ErrorKind::Unsupported if manner.announce => {
                let why = "this file system cannot be told a length (fallocate): leave out --announce";
                Err(Error::experiment(self.folder.display().to_string(), why))
            }
            _ => Err(self.failed("writing an object into", error)),
        }
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        fs::remove_file(self.path(object)).map_err(Error::file("removing", self.path(object)))
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        let path = self.path(object);
        let mut file = File::open(&path).map_err(Error::file("opening", &path))?;
        file.read_to_end(into).map_err(Error::file("reading", &path))?;
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        rustix::fs::syncfs(&self.handle).map_err(|error| self.failed("forcing", error.into()))?;
        let entries = fs::read_dir(&self.folder).map_err(Error::file("listing", &self.folder))?;
        for entry in entries {
            let path = entry.map_err(Error::file("listing", &self.folder))?.path();
            if let Ok(file) = File::open(&path) {
                forget(&file);
            }
        }
        Ok(())
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        let told = self.told(load).map_err(|error| self.failed("asking where files lie in", error))?;
        Ok(Located { marks: None, told })
    }
}
