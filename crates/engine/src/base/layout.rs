//! The upper seam: what a store asks of a layout that keeps an index of its own, in another crate.
//! `picaflor-literature` has one: hash tables on blocks. The ring is not behind it: no call on its path is virtual. Nor
//! are layouts that stand on our index and log (`places.rs`).
//!
//! The store does what does not depend on where objects lie: limits, expiry, admission, hashes, checksums, the lock of
//! a key, generations, memory, pieces of large objects, counters, tasks, handles. A layout gets drafts, which it makes
//! durable before it returns, and gives frames back, verified. It is asked once a verb.

use std::{fmt, sync::Arc};

use parking_lot::MutexGuard;
use picaflor_common::KeyHash;
use picaflor_device::Device;
use picaflor_format::{
    frame::{ChunkKey, Header, Manifest},
    journal::Group,
    superblock::Superblock,
};

use crate::{
    CheckReport, Counts, Departure, Error, Mode, Result, VolumeReceipt, VolumeStats,
    base::{
        frame::{Draft, Frame},
        policy::Placement,
    },
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
    /// [`Error::Full`], and then the key is as it was; [`Error::Io`], and then it may be either.
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
    /// Whether it is unknown, after a verb failed like this, which version its key has.
    fn doubts(&self, error: &Error) -> bool;
    /// A verb failed so: chunks without an owner are to be looked for.
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
    /// Bytes that it took; of a large object, without its chunks.
    pub bytes: u64,
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
pub struct Opener(pub fn(LayoutPlace, Arc<dyn Env>) -> Result<OpenedLayout>);

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
pub trait Env: Send + Sync {
    /// Bytes of memory that the store was given.
    fn memory(&self) -> u64;
    /// Whether nothing may be written.
    fn read_only(&self) -> bool;
    /// Question 1 of the row of the table of presets.
    fn placement(&self) -> Placement;
    /// What superblocks call that row.
    fn preset_number(&self) -> u32;
    /// In which mode the store is.
    fn mode(&self) -> Mode;
    /// At how many places it lies.
    fn places(&self) -> usize;
    /// Whether free blocks are to be split before more of the device is taken.
    fn splits_first(&self) -> bool;
    /// Open buffers of each place that were asked for.
    fn open_buffers(&self) -> usize;
    /// Whether nothing is made durable unasked.
    fn is_careless(&self) -> bool;
    /// Whether journal and checkpoints are what survives.
    fn has_checkpoints(&self) -> bool;
    /// Milliseconds since the Unix epoch.
    fn now_millis(&self) -> u64;
    /// A larger one than any before.
    fn next_generation(&self) -> u64;
    /// Those that are given out from now on are larger.
    fn see_generation(&self, generation: u64);

    /// How many locks keys have: that of a key is its short hash modulo this.
    fn stripes(&self) -> usize;
    /// The lock of a key.
    fn lock_key(&self, hash: u64) -> MutexGuard<'_, ()>;
    /// The lock of a key, if it is free.
    fn try_lock_key(&self, hash: u64) -> Option<MutexGuard<'_, ()>>;

    /// Lets a frame stay in memory, in the place of an older one of its key; by the holder of the key's lock.
    fn cache_object(&self, frame: &Arc<Frame>);
    /// What memory has of a key leaves it.
    fn forget_object(&self, hash: u64);
    /// Takes memory for what is being put: objects in memory make room first.
    fn take_memory(&self, bytes: u64);
    /// Gives back what [`Env::take_memory`] took.
    fn give_memory(&self, bytes: u64);
    /// So many bytes the index takes now.
    fn set_index_bytes(&self, bytes: u64);
    /// The tables of one volume took `before`, and take `now`.
    fn change_index_bytes(&self, before: u64, now: u64);
    /// Makes room in memory for so many bytes, which `take` adds to their account.
    fn claim_memory(&self, bytes: u64, take: &mut dyn FnMut());
    /// Objects leave memory until that is within its bounds.
    fn shrink_memory(&self);
    /// Whether memory has an object that was asked for since this was asked last.
    fn was_used(&self, hash: u64) -> bool;

    /// A get is about to need the device: work in the background keeps out of its way.
    fn note_read(&self);
    /// Counts an object that was read.
    fn count_read(&self);
    /// Whether no get needed the device of late.
    fn is_quiet(&self) -> bool;
    /// Whether there is a listener for objects that leave.
    fn hears_departures(&self) -> bool;
    /// Counts an object that left, and tells its key to the listener; no key is that of a piece of one.
    fn object_left(&self, key: &[u8], why: Departure);

    /// A group has these settings.
    fn restore_group(&self, group: Group);
    /// Drops the chunks of a large object with `drop`, or leaves them to its last handle, on a device of so many bytes.
    fn drop_or_leave(&self, parent: KeyHash, manifest: Manifest, capacity: u64, drop: &mut dyn FnMut());
    /// Drops with `drop` what was left to handles that are gone. Returns whether there was anything.
    fn drop_released(&self, drop: &dyn Fn(KeyHash, Manifest)) -> bool;
    /// Whether there is a handle on the object of this chunk.
    fn is_leased(&self, key: &ChunkKey) -> bool;
}
