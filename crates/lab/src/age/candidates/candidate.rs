//! The seam: what is asked of a store that is aged.

use std::{fs::File, path::Path};

use rustix::fs::Advice;

use crate::{
    Error, Result,
    age::{
        extents::Extent,
        load::{Load, Version},
        marks::Seen,
        spec::{Case, Force, Request},
    },
};

/// An object that is to be written, whole.
pub(in crate::age) struct Write<'a> {
    pub(in crate::age) version: Version,
    pub(in crate::age) body: &'a [u8],
}

impl Write<'_> {
    pub(super) fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// The parts in which it is handed over.
    pub(super) fn requests(&self, manner: &Manner) -> impl Iterator<Item = &[u8]> {
        let bytes = match manner.request {
            Request::All => self.body.len(),
            Request::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        self.body.chunks(bytes.max(1))
    }
}

/// How objects are handed over.
#[derive(Debug, Clone, Copy)]
pub(in crate::age) struct Manner {
    pub(super) request: Request,
    pub(super) force: Force,
    pub(super) announce: bool,
}

impl Manner {
    pub(in crate::age) fn of(case: &Case) -> Self {
        Self { request: case.request, force: case.force, announce: case.announce }
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::age) enum Wrote {
    /// It is durable.
    Done,
    /// There was no room, in the store's words.
    Full(String),
}

/// Where each object lies, by the word of its file system or store.
pub(in crate::age) type Told = Vec<(u32, Vec<Extent>)>;

/// Where objects lie.
#[derive(Debug, Default)]
pub(in crate::age) struct Located {
    /// By marks on the volume, if it can be read.
    pub(in crate::age) marks: Option<Seen>,
    /// By its own word, if it has one.
    pub(in crate::age) told: Option<Told>,
}

/// A store on a volume of its own, which goes when this is dropped.
pub(in crate::age) trait Candidate {
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

    /// Nanoseconds on its own clock, if that is not the machine's.
    fn now(&self) -> Option<u64> {
        None
    }

    /// Bytes written to the volume so far, if that is counted.
    fn written(&mut self) -> Option<u64> {
        None
    }
}

/// Forces a file to the device and has the kernel forget its pages, so that reads come from there. What a store has in
/// memory of its own stays, and so do pages that it has mapped.
pub(super) fn force_and_forget(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(Error::file("opening", path))?;
    file.sync_all().map_err(Error::file("forcing", path))?;
    forget(&file);
    Ok(())
}

/// Has the kernel forget the pages of a file. Where it does not, reads come from memory, and are as fast as that.
pub(super) fn forget(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}
