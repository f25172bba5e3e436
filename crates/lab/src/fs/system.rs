//! A modelled file system as a [`Folder`]: its calls, one at a time or beside one another.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use picaflor_device::{Device, Folder, check_path};
use picaflor_sim::SimulatedDisk;

use super::{core::Core, pages::IoCounts, profile::FsProfile};
use crate::{
    Error, Result,
    exec::{Processor, Time},
};

/// Steps by which a part of a disk grows until the file system on it has the room that is wanted.
const STEP: u64 = 16 << 20;

/// A modelled file system, empty at first. Clones share everything.
#[derive(Clone)]
pub struct FileSystem {
    pub(super) core: Arc<Mutex<Core>>,
    pub(super) name: Arc<str>,
    disk: SimulatedDisk,
    /// Of calls beside one another.
    processor: Processor,
}

impl FileSystem {
    /// Makes the file system on all of `disk`.
    ///
    /// # Errors
    /// `InvalidInput` if the disk has no room for a group of blocks.
    pub fn new(profile: &FsProfile, disk: &SimulatedDisk) -> io::Result<Self> {
        let core = Arc::new(Mutex::new(Core::new(profile, disk)?));
        let processor = Processor::default();
        Ok(Self { core, name: profile.name.as_str().into(), disk: disk.clone(), processor })
    }

    /// A file system with this room for files, on as much of a disk, from its outer edge, as it takes. `disk` makes a
    /// disk of so many bytes; without a number, all of it.
    ///
    /// # Errors
    /// Those of `disk`; or if there is not so much room on all of it.
    pub fn with_room(
        profile: &FsProfile,
        room: u64,
        disk: impl Fn(Option<u64>) -> Result<SimulatedDisk>,
    ) -> Result<(SimulatedDisk, Self)> {
        let whole = disk(None)?.capacity();
        let mut bytes = room.next_multiple_of(STEP);
        loop {
            let disk = disk(Some(bytes.min(whole)))?;
            // One without room for a group of blocks is too small, like others.
            match Self::new(profile, &disk).ok().filter(|system| system.available() >= room) {
                Some(system) => return Ok((disk, system)),
                None if bytes < whole => {}
                None => {
                    let why = format!("{}: too small for {} MiB of files", disk.backend(), room >> 20);
                    return Err(Error::experiment(profile.name.as_str(), why));
                }
            }
            bytes += STEP;
        }
    }

    /// Disk operations so far.
    #[must_use]
    pub fn counts(&self) -> IoCounts {
        self.core.lock().pages.counts
    }

    /// A call of a client of an executor, whose waits are the client's own: others' calls go on meanwhile. What the
    /// call returns is decided at once, and told when it is over.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn beside<T>(&self, time: &Time, call: impl FnOnce(&Self) -> io::Result<T>) -> io::Result<T> {
        self.core.lock().pages.noted.begin();
        let outcome = call(self);
        let (steps, reserved) = self.core.lock().noted();
        for step in steps {
            step.take(&self.disk, &self.processor, time).await?;
        }
        self.core.lock().close(&reserved);
        outcome
    }

    /// Lets time pass until the clock says `nanos`; the daemon and the journal do meanwhile what is due.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn wait_until(&self, nanos: u64) -> io::Result<()> {
        self.core.lock().wait_until(nanos)
    }

    /// Writes what is dirty and forgets all that is in memory, as mounting it anew would.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn empty_memory(&self) -> io::Result<()> {
        self.core.lock().empty_memory()
    }

    /// Replaces the bytes of a file that is there, as truncating and writing it does: name and inode stay. If there is
    /// no room, it is left empty.
    ///
    /// # Errors
    /// `NotFound`, `StorageFull`, or those of the disk.
    pub fn rewrite(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.core.lock().rewrite(checked(path)?, bytes)
    }

    /// Makes a file durable, with its name: `fsync` of it and of its directory.
    ///
    /// # Errors
    /// `NotFound`, or those of the disk.
    pub fn sync_file(&self, path: &str) -> io::Result<()> {
        self.core.lock().sync_file(checked(path)?)
    }

    /// Bytes of the table of inodes, where that grows with the files: room that they take beside their own.
    #[must_use]
    pub fn table(&self) -> u64 {
        self.core.lock().table()
    }

    /// Where the bytes of a file lie: offsets and lengths, in their order. `None` where there is no such file.
    #[must_use]
    pub fn extents(&self, path: &str) -> Option<Vec<(u64, u64)>> {
        self.core.lock().extents(path)
    }

    /// Bytes that may still be written.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.core.lock().available()
    }
}

fn checked(path: &str) -> io::Result<&str> {
    check_path(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: {why}")))?;
    Ok(path)
}

impl Folder for FileSystem {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.core.lock().make_dir(checked(path)?)
    }

    /// A file that is there is removed first, as a layout on this system would have to.
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.core.lock().write(checked(path)?, bytes)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.core.lock().read(checked(path)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.core.lock().remove(checked(path)?)
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        let found = self.core.lock().list()?;
        found.iter().for_each(|(path, len)| each(path, *len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.core.lock().sync()
    }

    fn backend(&self) -> String {
        format!("modelled {}", self.name)
    }
}
