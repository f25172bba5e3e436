//! The open file and what is known of it, as everything that carries out its requests shares it.
//!
//! Invariants: no byte outside `0..capacity` is touched, none is written when read-only or after a failed sync; every
//! error names the file.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use crate::gate::{Gate, Passage};
use crate::inline::Perform;
use crate::{AlignedBuf, Op, check_request};

/// What was at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    EmptyFile,
    /// A device, or a file with something in it, which is never touched.
    Something,
}

impl Before {
    /// Leaves it so again. The caller holds the lock by `file`.
    pub(crate) fn restore(self, path: &Path, file: &File) {
        // Nothing is lost where it fails: a blank file is made a store of by the next attempt.
        let _ = match self {
            Self::Nothing => fs::remove_file(path),
            Self::EmptyFile => file.set_len(0),
            Self::Something => Ok(()),
        };
    }
}

/// Whether the page cache stands between us and the medium.
pub(crate) enum Access {
    Direct,
    /// Through the page cache, and why.
    Buffered(&'static str),
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("O_DIRECT"),
            Self::Buffered(why) => write!(f, "buffered ({why})"),
        }
    }
}

/// The open file and what is known of it; shared with whatever carries out the requests.
pub(crate) struct FileCore {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) capacity: AtomicU64,
    pub(crate) block_size: usize,
    /// What the medium demands of direct I/O, or less than a block if it demands nothing.
    pub(crate) read_unit: usize,
    /// What direct I/O asks of addresses in memory; 1 when buffered.
    pub(crate) memory_align: usize,
    pub(crate) access: Access,
    pub(crate) read_only: bool,
    pub(crate) is_block_device: bool,
    pub(crate) before: Before,
    pub(crate) gate: Arc<Gate>,
    /// What the first failed sync said.
    pub(crate) sync_failure: OnceLock<String>,
}

impl FileCore {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// Refuses what must not reach the file, before any byte moves.
    pub(crate) fn check_read(&self, offset: u64, len: usize) -> io::Result<()> {
        check_request(self.capacity(), self.read_unit, offset, len as u64)
            .map_err(|error| self.error("read", error))?;
        if self.gate.is_shut() { Err(self.released("read")) } else { Ok(()) }
    }

    /// As [`FileCore::check_read`], for a write that begins now, and is under way as long as what this returns.
    pub(crate) fn begin_write(&self, offset: u64, len: usize) -> io::Result<Passage> {
        check_request(self.capacity(), self.block_size, offset, len as u64)
            .map_err(|error| self.error("write", error))?;
        if self.read_only {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "opened read-only");
            return Err(self.error("write", error));
        }
        self.check_sound()?;
        self.gate.pass().ok_or_else(|| self.released("write"))
    }

    fn released(&self, action: &'static str) -> io::Error {
        self.error(action, io::Error::new(io::ErrorKind::NotConnected, "closed, and given back to other processes"))
    }

    /// Refuses once a sync has failed.
    pub(crate) fn check_sound(&self) -> io::Result<()> {
        match self.sync_failure.get() {
            None if self.gate.is_shut() => Err(self.released("sync")),
            None => Ok(()),
            Some(what) => Err(self
                .error("write or sync", io::Error::other(format!("refused because an earlier sync failed: {what}")))),
        }
    }

    /// Remembers the failure of a sync; passes the outcome on with the file's name.
    pub(crate) fn sync_outcome(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.map_err(|error| {
            // Only the first failure is kept: the later ones follow from it.
            let _ = self.sync_failure.set(error.to_string());
            self.error("sync", error)
        })
    }

    /// Whether direct I/O may use this memory.
    pub(crate) fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check_read(offset, buf.len())?;
        if self.is_aligned(buf) {
            return self.read_aligned(offset, buf);
        }
        let mut bounce = AlignedBuf::zeroed(buf.len());
        self.read_aligned(offset, &mut bounce)?;
        buf.copy_from_slice(&bounce);
        Ok(())
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut buf[done..], at) {
                Ok(count) => match self.progress(count, buf.len() - done) {
                    0 => return Err(self.ended("read", at)),
                    count => done += count,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error_at("read", at, error)),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let _under_way = self.begin_write(offset, buf.len())?;
        if self.is_aligned(buf) {
            return self.write_aligned(offset, buf);
        }
        self.write_aligned(offset, &AlignedBuf::copy_from(buf))
    }

    /// Also used while a new file is being written full, before it has its final checks.
    pub(crate) fn write_aligned(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.write_at(&buf[done..], at) {
                Ok(count) => match self.progress(count, buf.len() - done) {
                    0 => return Err(self.ended("write", at)),
                    count => done += count,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error_at("write", at, error)),
            }
        }
        Ok(())
    }

    /// How far a transfer of `count` out of `wanted` bytes has got: whole units, because direct I/O
    /// cannot go on from the middle of one.
    pub(crate) fn progress(&self, count: usize, wanted: usize) -> usize {
        if count >= wanted { wanted } else { count - count % self.read_unit }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.check_sound()?;
        if self.read_only {
            return Ok(());
        }
        self.sync_outcome(self.file.sync_data())
    }

    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.capacity(), self.block_size, offset, len).map_err(|error| self.error("discard", error))?;
        let _under_way = self.begin_write(offset, len as usize)?;
        if !self.is_block_device || len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            // A hint that the device does not take is no error.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.error_at("discard", offset, error.into())),
        }
    }

    /// The same error, saying in which file and while doing what.
    pub(crate) fn error(&self, action: &'static str, source: io::Error) -> io::Error {
        named(&self.path, action, None, source)
    }

    /// As [`FileCore::error`], with the offset.
    pub(crate) fn error_at(&self, action: &'static str, at: u64, source: io::Error) -> io::Error {
        named(&self.path, action, Some(at), source)
    }

    /// The file ended, or took no more bytes, inside its capacity: someone else shortened it.
    pub(crate) fn ended(&self, action: &'static str, at: u64) -> io::Error {
        let kind = io::ErrorKind::UnexpectedEof;
        self.error_at(action, at, io::Error::new(kind, "the file ends before its capacity"))
    }

    /// Bytes at an address that direct I/O accepts; copies only if they are not there already.
    pub(crate) fn aligned(&self, bytes: Bytes) -> Bytes {
        if self.is_aligned(&bytes) { bytes } else { AlignedBuf::copy_from(&bytes).into_bytes() }
    }
}

impl Drop for FileCore {
    fn drop(&mut self) {
        // Closing would do it too, but a ring that is being torn down may keep the file open for a moment
        // longer, and the caller that drops a device may open it again at once.
        let _ = self.file.unlock();
    }
}

impl Perform for FileCore {
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync())
    }
}

/// An error of the system with the file's name; the kind is that of the source.
pub(crate) fn named(path: &Path, action: &'static str, at: Option<u64>, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), FileError { path: path.to_owned(), action, at, source })
}

#[derive(Debug)]
struct FileError {
    path: PathBuf,
    action: &'static str,
    at: Option<u64>,
    source: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.action)?;
        if let Some(at) = self.at {
            write!(f, " at {at}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
