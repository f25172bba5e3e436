//! What is aged: stores of today, each with its own idiom for a safe write, behind one seam.

mod folder;
mod mounted;
mod picaflor;
mod sqlite;

use std::{fmt, path::Path, str::FromStr};

pub use mounted::{can_mount, unmount_all};
use serde::{Deserialize, Serialize};

use super::{
    extents::Extent,
    load::{Load, Version},
    marks::Seen,
    spec::{Case, Force, Request},
};
use crate::Result;

macro_rules! kinds {
    ($($variant:ident = $name:literal, $what:literal);+ $(;)?) => {
        /// A store that can be aged.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = $what] #[serde(rename = $name)] $variant),+
        }

        impl Kind {
            /// All, with what each is.
            pub const ALL: &[(Self, &'static str, &'static str)] = &[$((Self::$variant, $name, $what)),+];
        }
    };
}

kinds! {
    Folder = "folder", "a file for each object, in a folder of this machine's file system";
    Ext4 = "ext4", "the same on a new ext4, on a loop device; needs root";
    Xfs = "xfs", "the same on a new XFS; needs root and xfsprogs";
    Btrfs = "btrfs", "the same on a new Btrfs; needs root and btrfs-progs";
    Sqlite = "sqlite", "a row for each object in a SQLite database, replaced by a transaction";
    PicaflorCache = "picaflor-cache", "this engine as a cache: the oldest goes when there is no room";
    PicaflorStore = "picaflor-store", "this engine as a store: nothing is evicted, clusters are compacted";
    Pmflf = "pmflf-pfl", "hash table on blocks from free lists (Iyengar, Jin & Challenger 2003)";
    Oba = "oba", "the same, where a batch is placed together";
    Stream = "stream", "next fit on slots (Markatos et al. 1999)";
    Buddy = "buddy", "slots of powers of two (Markatos et al. 1999)";
}

impl Kind {
    /// Those that anybody can run.
    #[must_use]
    pub const fn without_root() -> &'static [Self] {
        &[Self::Folder, Self::Sqlite, Self::PicaflorCache, Self::PicaflorStore, Self::Pmflf]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Whether it is a file system that is made for the run.
    #[must_use]
    pub const fn needs_root(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs)
    }

    /// Bytes of the smallest volume that it can be made on, and on which anything is to be seen.
    #[must_use]
    pub const fn least_volume(self) -> u64 {
        match self {
            Self::Xfs => 300 << 20,
            Self::Btrfs => 128 << 20,
            _ => 16 << 20,
        }
    }

    /// Whether it is given an object request by request. A database takes a value whole.
    #[must_use]
    pub const fn knows_requests(self) -> bool {
        !matches!(self, Self::Sqlite)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names: Vec<_> = Self::ALL.iter().map(|row| row.1).collect();
        let found = Self::ALL.iter().find(|row| row.1 == text);
        found.map(|row| row.0).ok_or_else(|| format!("`{text}` is none of {}", names.join(", ")))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An object that is to be written, whole.
pub(super) struct Write<'a> {
    pub(super) version: Version,
    pub(super) body: &'a [u8],
}

impl Write<'_> {
    fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// The parts in which it is handed over.
    fn requests(&self, manner: &Manner) -> impl Iterator<Item = &[u8]> {
        let bytes = match manner.request {
            Request::All => self.body.len(),
            Request::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        self.body.chunks(bytes.max(1))
    }
}

/// How objects are handed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    request: Request,
    force: Force,
    announce: bool,
}

impl Manner {
    pub(super) fn of(case: &Case) -> Self {
        Self { request: case.request, force: case.force, announce: case.announce }
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It is durable.
    Done,
    /// There was no room, in the store's words.
    Full(String),
}

/// Where each object lies, by the file system's word.
pub(super) type Told = Vec<(u32, Vec<Extent>)>;

/// Where objects lie.
#[derive(Debug, Default)]
pub(super) struct Located {
    /// By marks on the volume, if it can be read.
    pub(super) marks: Option<Seen>,
    /// By the file system's own word, if it has one.
    pub(super) told: Option<Told>,
}

/// A store on a volume of its own, which goes when this is dropped.
pub(super) trait Candidate {
    /// Writes these objects at one time, request by request in turn, each as a safe write: durable when it returns, and
    /// until then the old version is what a reader or a crash finds.
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote>;

    fn delete(&mut self, object: u32) -> Result<()>;

    /// Whether it still has the object: a cache lets some go.
    fn has(&mut self, _object: u32) -> Result<bool> {
        Ok(true)
    }

    /// The object's bytes; none if the store has let it go.
    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool>;

    /// Has everything on the volume, and out of memory as far as the store lets us.
    fn settle(&mut self) -> Result<()>;

    fn locate(&mut self, load: &Load) -> Result<Located>;

    /// Bytes written to the volume so far, if that is counted.
    fn written(&self) -> Option<u64> {
        None
    }
}

/// Makes the store of a case in a folder. What it makes there is gone when the store is dropped.
pub(super) fn open(case: &Case, folder: &Path) -> Result<Box<dyn Candidate>> {
    Ok(match case.candidate {
        Kind::Folder => Box::new(folder::Files::in_folder(folder)?),
        Kind::Ext4 | Kind::Xfs | Kind::Btrfs => Box::new(mounted::Mounted::new(case, folder)?),
        Kind::Sqlite => Box::new(sqlite::Database::new(case, folder)?),
        _ => Box::new(picaflor::Engine::new(case, folder)?),
    })
}
