//! A file for each object (Markatos et al. 1999, §3.4): SIMPLE, SQUID and MULTIPLE-DIRS, on any [`Folder`].
//!
//! BUDDY's long objects are files of the same kind beside its slots: under their numbers, which its log has.
//!
//! A file's name is the hash of its key and its generation, so a listing of the folder tells who is there, and which of
//! two versions is the newer one. Beside them lie the volume's superblocks, and the word that the last run closed the
//! store.
//!
//! Invariants: a number stands for one file as long as it has a name here; a file whose replacement is not durable is
//! not removed, unless no durability was asked for; what a run wrote is durable before the word that it was closed
//! vouches for it.

use std::{
    collections::HashSet,
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
};

use parking_lot::{Mutex, MutexGuard};
use picaflor::layout::CLEAN;
use picaflor_common::HashKeyed;
use picaflor_device::Folder;

/// Which directory an object's file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// The only one.
    One,
    /// 16 of 256, in turn.
    Rounds,
    /// That of its origin server.
    Servers,
    /// One of 256, by the number, which is the file's name too: a log says whose it is.
    Numbers,
}

pub(crate) struct Files {
    folder: Arc<dyn Folder>,
    tree: Tree,
    /// By [`spread`] of their numbers.
    names: Mutex<HashKeyed<Name>>,
    /// Directories that are there.
    made: Mutex<HashSet<String>>,
    /// Counts files, for directories in turn.
    turn: AtomicU32,
    /// Something was written or removed since the folder was synced.
    unsynced: AtomicBool,
    /// Held from taking what is to be removed until it is.
    removing: Mutex<()>,
}

/// What a file is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) hash: u128,
    pub(crate) generation: u64,
    /// Which directory, as the tree counts them.
    dir: u32,
}

/// Files by number, with their lengths in bytes.
pub(crate) type ClusterContents = Vec<(u32, Name, u64)>;

/// A number as a hash, each its own: how much room a map takes after removals depends on the hashes of its keys, and
/// what a store says of its memory is to be the same in each run.
fn spread(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Characters of a file's name: a hash and a generation.
const NAME: usize = 48;

/// Directories of SQUID's tree: 16 of 256.
const ROUND: u32 = 16 * 256;
/// Directories of files that are called by their numbers.
const NUMBERED: u32 = 256;

impl Files {
    pub(crate) fn new(folder: Arc<dyn Folder>, tree: Tree) -> Self {
        Self {
            folder,
            tree,
            names: Mutex::default(),
            made: Mutex::default(),
            turn: AtomicU32::new(0),
            unsynced: AtomicBool::new(false),
            removing: Mutex::new(()),
        }
    }

    /// Memory of the names: a place in a map each, and the directories'.
    pub(crate) fn bytes(&self) -> u64 {
        let names = self.names.lock().capacity() * 8 / 7 * (size_of::<(u64, Name)>() + 1);
        (names + self.made.lock().capacity() * 64) as u64
    }

    fn dir(&self, dir: u32) -> Option<String> {
        match self.tree {
            Tree::One => None,
            Tree::Rounds => Some(format!("{:x}/{:02x}", dir / 256 % 16, dir % 256)),
            Tree::Servers => Some(format!("{dir:08x}")),
            Tree::Numbers => Some(format!("{dir:02x}")),
        }
    }

    fn path(&self, name: &Name) -> String {
        let mut path = self.dir(name.dir).unwrap_or_default();
        path.reserve(1 + NAME);
        if !path.is_empty() {
            path.push('/');
        }
        // A string takes whatever it is given.
        let _ = write!(path, "{:032x}{:016x}", name.hash, name.generation);
        path
    }

    fn path_of(&self, number: u32) -> io::Result<String> {
        if self.tree == Tree::Numbers {
            return Ok(format!("{:02x}/{number:08x}", number % NUMBERED));
        }
        let name = self.names.lock().get(&spread(number)).copied();
        let name =
            name.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file has number {number}")))?;
        Ok(self.path(&name))
    }

    fn make_dirs(&self, dir: u32) -> io::Result<()> {
        let Some(dir) = self.dir(dir) else { return Ok(()) };
        if self.made.lock().contains(&dir) {
            return Ok(());
        }
        if let Some((parent, _)) = dir.split_once('/') {
            self.folder.make_dir(parent)?;
        }
        self.folder.make_dir(&dir)?;
        self.made.lock().insert(dir);
        Ok(())
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn write(&self, number: u32, hash: u128, generation: u64, server: u32, bytes: &[u8]) -> io::Result<()> {
        let dir = match self.tree {
            Tree::One => 0,
            Tree::Rounds => self.turn.fetch_add(1, Relaxed) % ROUND,
            Tree::Servers => server,
            Tree::Numbers => number % NUMBERED,
        };
        self.make_dirs(dir)?;
        if self.tree == Tree::Numbers {
            self.folder.write(&self.path_of(number)?, bytes)?;
            // After it, and before a record tells of it.
            self.unsynced.store(true, Release);
            return Ok(());
        }
        let name = Name { hash, generation, dir };
        self.folder.write(&self.path(&name), bytes)?;
        self.names.lock().insert(spread(number), name);
        Ok(())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Those of the folder; `NotFound` also for a number that no object has.
    pub(crate) fn read(&self, number: u32) -> io::Result<Vec<u8>> {
        self.folder.read(&self.path_of(number)?)
    }

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn remove(&self, number: u32) -> io::Result<()> {
        let Ok(path) = self.path_of(number) else { return Ok(()) };
        self.names.lock().remove(&spread(number));
        let removed = match self.folder.remove(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        if self.tree == Tree::Numbers {
            // Before a record tells of what has its room.
            self.unsynced.store(true, Release);
        }
        removed
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.folder.sync()
    }

    /// Makes durable what was written or removed since the last time. Returns whether anything was.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn sync_written(&self) -> io::Result<bool> {
        let unsynced = self.unsynced.swap(false, AcqRel);
        if unsynced {
            self.folder.sync().inspect_err(|_| self.unsynced.store(true, Release))?;
        }
        Ok(unsynced)
    }

    /// The numbers of all files that are called by them.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        self.folder.list(&mut |path, _| {
            let number = path.split_once('/').and_then(|(_, name)| u32::from_str_radix(name, 16).ok());
            found.extend(number.filter(|number| self.path_of(*number).is_ok_and(|own| own == path)));
        })?;
        Ok(found)
    }

    /// Held while what is to be removed is taken, until it is removed.
    pub(crate) fn removing(&self) -> MutexGuard<'_, ()> {
        self.removing.lock()
    }

    /// Says that everything is in order, durably, once it is; by who has the turn to place.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.folder.sync()?;
        self.folder.write(CLEAN, &[])?;
        self.folder.sync()
    }

    /// All files by numbers from 0 on, with their lengths, and whether the last run closed the store.
    ///
    /// # Errors
    /// Those of the folder.
    pub(crate) fn list(&self) -> io::Result<(ClusterContents, bool)> {
        let (mut found, mut clean) = (Vec::new(), false);
        self.folder.list(&mut |path, len| {
            clean |= path == CLEAN;
            found.extend(self.parse(path).map(|name| (name, len)));
        })?;
        found.sort_unstable_by_key(|(name, _)| name.generation);
        let mut names = self.names.lock();
        let numbered = found.into_iter().zip(0..).map(|((name, len), number)| {
            names.insert(spread(number), name);
            (number, name, len)
        });
        let all: Vec<_> = numbered.collect();
        self.turn.store(all.len() as u32, Relaxed);
        Ok((all, clean))
    }

    fn parse(&self, path: &str) -> Option<Name> {
        let (dir, file) = path.rsplit_once('/').map_or((None, path), |(dir, file)| (Some(dir), file));
        let dir = match (self.tree, dir) {
            (Tree::One, None) => 0,
            (Tree::Rounds | Tree::Servers, Some(dir)) => u32::from_str_radix(&dir.replace('/', ""), 16).ok()?,
            _ => return None,
        };
        let (hash, generation) = file.split_at_checked(32).filter(|_| file.len() == NAME)?;
        let name = Name {
            hash: u128::from_str_radix(hash, 16).ok()?,
            generation: u64::from_str_radix(generation, 16).ok()?,
            dir,
        };
        (self.path(&name) == path).then_some(name)
    }
}
