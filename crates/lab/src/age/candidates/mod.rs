//! What is aged: stores of today, each with its own idiom for a safe write, behind one seam.

mod folder;
mod mounted;
mod picaflor;
mod sqlite;

use std::path::Path;

pub use mounted::{can_mount, unmount_all};

use super::{
    extents::Extent,
    kind::Kind,
    load::{Load, Version},
    marks::Seen,
    spec::{Case, Force, Request},
};
use crate::Result;

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
