//! What is under the store: memory, a simulated device, a file or a folder of a modelled file system on one, or a place
//! on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use picaflor::{Options, Place};
use picaflor_device::{Clock, Device, Folder, MemoryDevice};
use picaflor_sim::{Elevator, Profile, SimulatedDisk, SimulatedOptions};
use tempfile::TempDir;

use super::{Outcome, Replay, Setup};
use crate::{
    Error, Result,
    fs::{FileSystem, FsProfile},
};

pub(super) struct Medium {
    pub(super) clock: Clock,
    disk: Option<SimulatedDisk>,
    system: Option<FileSystem>,
    place: Place,
    /// Where the store's long objects are files, if they are.
    long_files: Option<Place>,
    /// Of a place on this machine; what is in it goes when the run ends.
    _folder: Option<Kept>,
}

/// Folders of this machine that runs have made and not yet removed.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder that is known to [`remove_folders`] as long as it is there.
pub(crate) struct Kept(TempDir);

impl Kept {
    pub(super) fn new(folder: TempDir) -> Self {
        FOLDERS.lock().push(folder.path().into());
        Self(folder)
    }

    /// A new one in this folder.
    pub(crate) fn made_in(within: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("picaflor-lab-").tempdir_in(within);
        folder.map(Self::new).map_err(Error::file("making a folder in", within))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        FOLDERS.lock().retain(|path| path != self.0.path());
    }
}

/// Removes what runs have made in folders of this machine, for a process that is about to end in the middle of them.
/// The stores in them fail from then on.
pub fn remove_folders() {
    for folder in FOLDERS.lock().drain(..) {
        // A layout with a file for each object may make one while others are removed.
        (0..100).find(|_| fs::remove_dir_all(&folder).is_ok() || !folder.exists());
    }
}

/// What can be named as a device, but for folders of this machine.
pub fn device_names() -> impl Iterator<Item = &'static str> {
    Profile::names().chain([MEMORY])
}

/// The device that takes no time.
const MEMORY: &str = "memory";

/// Errors of a setup, which name its device.
fn wrong(setup: &Setup, why: impl ToString) -> Error {
    Error::experiment(&setup.device, why.to_string())
}

/// Whether the device of a setup is a folder of this machine: such names have a slash.
fn is_real(setup: &Setup) -> bool {
    setup.device.contains('/') && Path::new(&setup.device).is_dir()
}

impl Medium {
    pub(super) fn new(setup: &Setup, options: &Options) -> Result<Self> {
        if is_real(setup) {
            return Self::real(setup, options);
        }
        let clock = Clock::virtual_at(1_700_000_000_000);
        let place = |device| Place::Device(Elevator::of_preset(&setup.preset).before(device));
        let made = |disk, system: Option<FileSystem>, place| {
            let folder = system.clone().filter(|_| setup.files_above);
            let long_files = folder.map(|system| Place::Folder(Arc::new(system)));
            Self { clock: clock.clone(), disk, system, place, long_files, _folder: None }
        };
        if setup.files_above && setup.file_system.is_none() {
            return Err(wrong(setup, "files_above needs a file_system"));
        }
        if setup.device == MEMORY {
            let device = Arc::new(MemoryDevice::new(setup.capacity.next_multiple_of(1 << 20)));
            return Ok(made(None, None, place(device)));
        }
        let profile = Profile::find(&setup.device).map_err(|error| wrong(setup, error))?;
        match &setup.file_system {
            None if options.wants_folder() => {
                let preset = &setup.preset;
                Err(wrong(setup, format!("preset {preset} keeps files: name a file_system for this device")))
            }
            None => {
                // A store takes all of its device. One that is larger than the disk would be another experiment.
                let whole = disk(setup, &profile, &clock, None)?.capacity();
                if setup.capacity > whole {
                    let (asked, has) = (setup.capacity >> 20, whole >> 20);
                    return Err(wrong(setup, format!("a store of {asked} MiB: the device has {has}; lower disk_mib")));
                }
                let disk = disk(setup, &profile, &clock, Some(setup.capacity))?;
                Ok(made(Some(disk.clone()), None, place(Arc::new(disk))))
            }
            Some(name) => {
                let kind = FsProfile::find(name)?;
                let kind = setup.page_cache.map_or(kind.clone(), |bytes| kind.with_memory(bytes));
                let (disk, system, place) = if options.wants_folder() {
                    let (disk, system) = partition(setup, &profile, &kind, &clock)?;
                    let folder: Arc<dyn Folder> = Arc::new(system.clone());
                    (disk, system, Place::Folder(folder))
                } else {
                    let disk = disk(setup, &profile, &clock, None)?;
                    let system = FileSystem::new(&kind, &disk).map_err(|error| wrong(setup, error))?;
                    let why =
                        |error| wrong(setup, format!("a file of {} MiB on {name}: {error}", setup.capacity >> 20));
                    // What files take, the store's own does not.
                    let file = match setup.files_above {
                        true => system.growing_file(setup.capacity),
                        false => system.big_file(setup.capacity),
                    };
                    let file = file.map_err(why)?;
                    (disk, system, place(Arc::new(file)))
                };
                Ok(made(Some(disk), Some(system), place))
            }
        }
    }

    /// A folder or file of its own in a folder of this machine, on its time.
    fn real(setup: &Setup, options: &Options) -> Result<Self> {
        if setup.file_system.is_some() {
            return Err(wrong(setup, "a folder of this machine has its own file system: leave out file_system"));
        }
        let folder = tempfile::Builder::new().prefix("picaflor-lab-").tempdir_in(&setup.device);
        let folder = folder.map_err(Error::file("making a folder in", &setup.device))?;
        let name = if options.wants_folder() { "files" } else { "volume" };
        let place = Place::Path(folder.path().join(name));
        let long_files = setup.files_above.then(|| Place::Path(folder.path().join("long")));
        let kept = Some(Kept::new(folder));
        Ok(Self { clock: Clock::real(), disk: None, system: None, place, long_files, _folder: kept })
    }

    pub(super) fn long_files(&self) -> Option<Place> {
        self.long_files.clone()
    }

    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Lets happen what happens next, and if nothing does, a hundredth of a second go by.
    pub(super) fn pass_time(&self) {
        let happened = match &self.place {
            Place::Device(device) => device.advance(),
            _ => false,
        };
        if !happened {
            self.clock.sleep(Duration::from_millis(10));
        }
    }

    /// Where the device's time went, and what a file system made of the store's requests.
    pub(super) fn account(&self, outcome: &mut Outcome) {
        let Some(disk) = &self.disk else { return };
        let times = disk.times();
        let share = |nanos: u64| if outcome.seconds > 0.0 { nanos as f64 / 1e9 / outcome.seconds } else { 0.0 };
        (outcome.seek_share, outcome.rotation_share) = (share(times.seek), share(times.rotation));
        outcome.transfer_share = share(times.transfer);
        (outcome.disk_reads, outcome.disk_writes) = (times.reads, times.writes);
    }

    /// Reads of the disk, bytes read and bytes written, if a file system is between it and the store.
    pub(super) fn below(&self) -> Option<(u64, u64, u64)> {
        let counts = self.system.as_ref()?.counts();
        Some((counts.data_reads + counts.metadata_reads, counts.read_bytes, counts.written_bytes))
    }
}

/// Of a file system for a cache: objects of the traces have 7 KB.
const BYTES_PER_INODE: u64 = 4096;

fn disk(setup: &Setup, profile: &Profile, clock: &Clock, bytes: Option<u64>) -> Result<SimulatedDisk> {
    let part = bytes.map(|bytes| 0..bytes);
    let options = SimulatedOptions { seed: setup.seed, part, ..SimulatedOptions::default() };
    SimulatedDisk::new(profile, clock.clone(), &options).map_err(|error| wrong(setup, error))
}

/// A file system for a file per object. By the method of Markatos et al. it is on all of the disk, as it is for one
/// large file. Else it is on as much of it, from its outer edge, as it needs to have the room of the store: a cache
/// fills what it is given, and a file takes more than its slots, whole fragments and a directory. So it gets half as
/// much again, and inodes for small files, as who keeps a cache on it would ask for.
fn partition(setup: &Setup, profile: &Profile, kind: &FsProfile, clock: &Clock) -> Result<(SimulatedDisk, FileSystem)> {
    let room = match setup.replay {
        Replay::Method(_) => setup.capacity,
        Replay::Cache => setup.capacity / 2 * 3,
        Replay::Pages(_) => setup.capacity / 4 * 5,
    };
    let mut kind = kind.clone();
    if setup.replay == Replay::Cache {
        kind.layout.bytes_per_inode = kind.layout.bytes_per_inode.min(BYTES_PER_INODE);
    }
    let whole = matches!(setup.replay, Replay::Method(_));
    FileSystem::with_room(&kind, room, |bytes| disk(setup, profile, clock, bytes.filter(|_| !whole)))
}
