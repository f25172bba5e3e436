//! The seam: what a store asks of a layout that keeps an index of its own, in another crate. `picaflor-literature` is
//! one: hash tables on blocks. The ring is not behind it: no call on its path is virtual.
//!
//! The store does what does not depend on where objects lie: limits, expiry, admission, hashes, checksums, the lock of
//! a key, generations, memory, pieces of large objects, counters, tasks, handles. A layout gets drafts, which it makes
//! durable before it returns, and gives frames back, verified. It is asked once a verb.
//!
//! Not a part of the interface that is kept stable: a layout is built with the very version of this crate.
#![doc(hidden)]

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::MutexGuard;
use picaflor_common::KeyHash;
use picaflor_device::Device;
use picaflor_format::{
    frame::{ChunkKey, Header, Manifest},
    journal::Group,
    superblock::Superblock,
};

use crate::{
    CheckReport, Counts, Error, Options, Result, VolumeReceipt, VolumeStats,
    background::daemons::is_quiet,
    base::stats::add,
    cache::leases::{KEPT, Left},
    in_place,
    volume::{STRIPES, Shared},
};
pub use crate::{
    base::{
        frame::Frame,
        policy::{Eviction, Persistence, Placement, Reading, Retention},
        preset::Preset,
    },
    cache::buffers::Draft,
    recovery::write_superblock,
    space::LayoutKind,
};

/// A layout, open on its place. Where a verb is said to hold a key's lock, the store holds it.
pub trait Layout: Send + Sync {
    /// Bytes of key, metadata and body of the longest object that is put as one.
    fn payload_max(&self) -> usize;
    /// Longest body that a put may have, in bytes.
    fn object_max(&self) -> u64;
    /// Bytes of the device.
    fn capacity(&self) -> u64;
    /// Entries: objects, and chunks of large ones.
    fn objects(&self) -> u64;
    /// Whether [`Layout::objects`] is not known yet after a crash.
    fn is_counting(&self) -> bool;

    /// Puts an object, durably, with its key's lock held. `stays`: it may stay in memory. Returns what it replaced.
    ///
    /// # Errors
    /// [`Error::Full`], and then the key is as it was; [`Error::Io`], and then nobody knows which of the two it is.
    fn insert(&self, draft: &Draft<'_>, stays: bool) -> Result<Option<Former>>;
    /// Puts objects of different keys, whose locks are held, that may stay in memory where that is said; with one
    /// commit. `replaced` hears, once that is complete, of each that took the place of another, by its number.
    ///
    /// # Errors
    /// As [`Layout::insert`], of each key.
    fn insert_batch(&self, drafts: &[(Draft<'_>, bool)], replaced: &mut dyn FnMut(usize, Former)) -> Result<()>;
    /// Deletes an object, durably, with its key's lock held. Returns what was there.
    ///
    /// # Errors
    /// As [`Layout::insert`].
    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Former>>;
    /// Deletes objects, whose keys' locks are held, with one commit. `removed` hears, once that is complete, of each
    /// that was there.
    ///
    /// # Errors
    /// As [`Layout::insert`], of each key.
    fn remove_batch(&self, keys: &[(KeyHash, &[u8])], removed: &mut dyn FnMut(usize, Former)) -> Result<()>;
    /// Reads and verifies an object, or a chunk of one, and lets it stay in memory.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if what lies there is not whole.
    fn find(&self, hash: KeyHash, key: &[u8], is_chunk: bool) -> Result<Option<Arc<Frame>>>;
    /// The version that a key has.
    ///
    /// # Errors
    /// As [`Layout::find`].
    fn generation(&self, key: &[u8]) -> Result<Option<u64>>;

    /// Notes that chunks under this id are about to be put for this key.
    ///
    /// # Errors
    /// As [`Layout::insert`].
    fn begin_large(&self, id: u64, key: &[u8]) -> Result<()>;
    /// The manifest is there, or the chunks are about to be dropped.
    fn end_large(&self, id: u64);
    /// Whether nobody knows, after a verb failed like this, which version its key has.
    fn doubts(&self, error: &Error) -> bool;
    /// A verb failed so: chunks that nobody owns are to be looked for.
    fn look_for_orphans(&self);
    /// Whether the object with this key has the manifest of this id.
    ///
    /// # Errors
    /// As [`Layout::find`].
    fn owns(&self, key: &[u8], id: u64) -> Result<bool>;
    /// Drops the chunks of a large object that is gone, or leaves them to its handles ([`Env::drop_or_leave`]).
    fn drop_chunks(&self, parent: KeyHash, manifest: Manifest);

    /// All objects.
    fn list(self: Arc<Self>) -> Box<dyn Listing>;
    /// Verifies every entry, and tells places done and places in all.
    fn check(&self, report: &mut CheckReport, progress: &mut dyn FnMut(u64, u64));
    /// Keeps the settings of a group, durably.
    ///
    /// # Errors
    /// As [`Layout::insert`].
    fn record_group(&self, group: &Group) -> Result<()>;
    /// Makes durable what the verbs left volatile, if anything.
    ///
    /// # Errors
    /// The failure that stopped it.
    fn flush(&self) -> Result<()>;
    /// Leaves the place as the next opening likes it best.
    ///
    /// # Errors
    /// The failure that stopped it.
    fn close(&self) -> Result<()>;
    /// Gives its devices back to other processes, once it is closed ([`Device::release`]).
    fn release(&self);
    /// Why nothing is written any more, if that is so.
    fn failure(&self) -> Option<Error>;
    /// What it is and holds.
    fn stats(&self) -> VolumeStats;
    /// Adds what it asked of the device.
    fn count(&self, counts: &mut Counts);

    /// One step of its work in the background. Returns whether there was anything to do.
    ///
    /// # Errors
    /// The failure that stopped it.
    fn step(&self) -> Result<bool>;
    /// Whether a crash's traces are gone.
    fn is_settled(&self) -> bool;
    /// The work in the background, on a thread of its own, until [`Layout::stop`].
    fn run_keeper(&self);
    /// That thread ended before its time, for this reason.
    fn lost_keeper(&self, why: String);
    /// Ends [`Layout::run_keeper`].
    fn stop(&self);
}

/// Going through all objects.
pub trait Listing: Send + Sync {
    /// The next one's header, verified, and frame; or why it cannot be had.
    fn next(&mut self) -> Option<Result<(Header, Vec<u8>)>>;
    /// Places looked at, and places in all.
    fn progress(&self) -> (u64, u64);
}

/// A key's version that is not there any more.
pub struct Former {
    /// Of a large object.
    pub manifest: Option<Manifest>,
}

/// A place whose superblock was read, or is to be made.
pub struct LayoutPlace {
    /// For messages: path or description.
    pub name: String,
    /// All of it, superblocks included.
    pub device: Arc<dyn Device>,
    /// What was read, or is to be written.
    pub superblock: Superblock,
    /// It is to be made.
    pub is_new: bool,
    /// Another superblock that is not intact may be newer: then both are written anew.
    pub doubtful: bool,
    /// The number of this opening.
    pub epoch: u64,
}

/// A layout, and what its opening found.
pub type OpenedLayout = (Arc<dyn Layout>, VolumeReceipt);

/// Opens a place, or makes one.
#[derive(Clone, Copy)]
pub struct Opener(pub fn(LayoutPlace, Env) -> Result<OpenedLayout>);

impl PartialEq for Opener {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Opener {}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

/// What a layout is given of its store.
#[derive(Clone)]
pub struct Env(pub(crate) Arc<Shared>);

impl Env {
    /// Keys are told apart by so many locks.
    pub const STRIPES: usize = STRIPES;

    /// What the store was opened with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The row of the table of presets.
    pub fn preset(&self) -> &Preset {
        &self.0.preset
    }

    /// Bytes of key, metadata and body of the longest object that is put as one, to so many bytes of device.
    pub fn payload_max(&self, room: u64) -> usize {
        in_place::place::payload_max(&self.0.options, room)
    }

    /// The lock of a key.
    pub fn lock_key(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.0.lock_key(hash)
    }

    /// The lock of a key, if it is free.
    pub fn try_lock_key(&self, hash: u64) -> Option<MutexGuard<'_, ()>> {
        self.0.try_lock_key(hash)
    }

    /// Lets a frame stay in memory, in the place of an older one of its key; by the holder of the key's lock.
    pub fn cache_object(&self, hash: u64, header: Header, frame: Bytes) -> Arc<Frame> {
        let frame = Arc::new(Frame::new(hash, header, frame));
        self.0.cache_object(&frame, || true);
        frame
    }

    /// A frame that does not stay in memory.
    pub fn frame(&self, hash: u64, header: Header, frame: Bytes) -> Arc<Frame> {
        Arc::new(Frame::new(hash, header, frame))
    }

    /// What memory has of a key leaves it.
    pub fn forget_object(&self, hash: u64) {
        self.0.memory.remove(hash);
    }

    /// Takes memory for what is being put: objects in memory make room first.
    pub fn take_memory(&self, bytes: u64) {
        self.0.reserve_memory(bytes, || self.0.buffer_bytes.fetch_add(bytes, Relaxed));
    }

    /// Gives back what [`Env::take_memory`] took.
    pub fn give_memory(&self, bytes: u64) {
        self.0.buffer_bytes.fetch_sub(bytes, Relaxed);
    }

    /// So many bytes the index takes now.
    pub fn set_index_bytes(&self, bytes: u64) {
        let before = self.0.index_bytes.swap(bytes, Relaxed);
        if bytes > before {
            self.0.shrink_memory();
        }
    }

    /// A get is about to need the device: work in the background keeps out of its way.
    pub fn note_read(&self) {
        self.0.last_read.store(self.0.clock.now_nanos(), Relaxed);
    }

    /// Counts an object that was read.
    pub fn count_read(&self) {
        add(&self.0.counters.object_reads, 1);
    }

    /// Whether no get needed the device of late.
    pub fn is_quiet(&self) -> bool {
        is_quiet(&self.0)
    }

    /// A group has these settings.
    pub fn restore_group(&self, group: Group) {
        self.0.groups.restore(group);
    }

    /// Drops the chunks of a large object with `drop`, or leaves them to its last handle, on a device of so many bytes.
    pub fn drop_or_leave(&self, parent: KeyHash, manifest: Manifest, capacity: u64, drop: impl FnOnce()) {
        self.0.leases.drop_or_leave(Left { parent, manifest, home: 0 }, capacity / KEPT, drop);
    }

    /// Drops with `drop` what was left to handles that are gone. Returns whether there was anything.
    pub fn drop_released(&self, drop: impl Fn(KeyHash, Manifest)) -> bool {
        self.0.leases.drop_over(0, |left| drop(left.parent, left.manifest))
    }

    /// Whether there is a handle on the object of this chunk.
    pub fn is_leased(&self, key: &ChunkKey) -> bool {
        self.0.leases.is_leased(key)
    }

    /// A stamp for each lock of keys.
    pub fn stamps() -> Box<[AtomicU64]> {
        (0..STRIPES).map(|_| AtomicU64::new(0)).collect()
    }
}
