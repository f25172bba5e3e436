//! The lower seam: where each object has a place of its own, rather than one in a cluster, this is what a volume asks
//! of those places, and what it lends them. `picaflor-literature` has them: slots of a device, and files.
//!
//! Such a volume keeps its objects as any other does: the index, the log with its commits, and checkpoints are the
//! volume's, so a get, a delete and an opening go the same way. What differs is what chooses a place, writes there, and
//! lets objects leave. Without places, which is how the ring has it, no call of this seam is made.

use std::{fmt, io, sync::Arc};

use bytes::Bytes;
use parking_lot::MutexGuard;
use picaflor_common::KeyHash;
use picaflor_device::Folder;
use picaflor_format::{
    cluster::Row,
    frame::Header,
    journal::{Page, Record},
};

use crate::{
    CheckReport, Error, Result, VolumeReceipt,
    base::{
        blocked::Blocked,
        frame::{Draft, Frame},
        layout::Env,
        medium::Medium,
    },
    index::IndexEntry,
};

/// Places of objects. Addresses are grains of the device, or what stands for them where objects are files.
///
/// The life of an object here: it is put, and may wait in a buffer of the volume's → it lies somewhere, and the index
/// says where → [`Places::release`], when the index leads there no more → its place is free after a commit.
pub trait Places: Send + Sync {
    /// Bytes of key, metadata and body of the longest object in one piece.
    fn payload_max(&self) -> usize;
    /// Buffers in which objects may wait.
    fn lanes(&self) -> u64;
    /// Bytes that objects take, that they could take besides, and of all places.
    fn fill(&self) -> Fill;
    /// Whether more objects mean more memory for the table of places.
    fn is_loaded(&self) -> bool;
    /// Bytes of body of the pieces into which an object must be cut to find room, after so many tries to make some.
    fn cut_for(&self, payload: usize, tries: u32) -> Option<usize>;
    /// The same of a body of at least so many bytes, which is longer than one piece anyway.
    fn cut_of_long(&self, body: usize) -> Option<usize>;

    /// Parts in which the table of places is gone through, and which are the images of a checkpoint.
    fn parts(&self) -> u32;
    /// A part as a checkpoint keeps it.
    fn image(&self, part: u32) -> Vec<u64>;
    /// Bytes of all images.
    fn image_bytes(&self) -> u64;
    /// What a checkpoint keeps besides.
    fn cursor(&self) -> u32;
    /// Fills table and index from what a checkpoint has of them, its cursor, and the log since then. Returns whether
    /// the last run left something untold.
    ///
    /// # Errors
    /// Those of the device, and what makes a store refuse to open.
    fn restore(
        &self,
        volume: &dyn VolumeEnv,
        image: (Vec<u64>, u32),
        log: &[Page],
        receipt: &mut VolumeReceipt,
    ) -> Result<bool>;

    /// Puts an object in place of `old`, by the holder of its key's lock. `stays`: it may stay in memory. The inner
    /// result says whether there was room and `old` was still there.
    ///
    /// # Errors
    /// Those of the device.
    fn put(
        &self,
        volume: &dyn VolumeEnv,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>>;
    /// The index does not lead there any more.
    fn release(&self, grain: u64);
    /// Whether the object there has the key of this hash, all bits of it, and is no part of a large one, as far as that
    /// can be known without a look at it. Then a delete drops it unread.
    fn is_known_whole(&self, grain: u64, hash: KeyHash) -> bool;
    /// Whether the object there is known to have another key than that of this hash, of which the index keeps 64 bits.
    fn is_of_another(&self, grain: u64, hash: KeyHash) -> bool;
    /// The object there was read for a get.
    fn note_use(&self, grain: u64);
    /// One step of making room ahead of need. Returns whether there was anything to do.
    ///
    /// # Errors
    /// As [`RoomEnv::commit_now`].
    fn step(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool>;
    /// Makes room, by whatever it takes. False if nothing would.
    ///
    /// # Errors
    /// As [`RoomEnv::commit_now`].
    fn make_room(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool>;

    /// First byte and end of the device's blocks to read for an object of so many grains.
    fn range_of(&self, grain: u64, grains: u32) -> (u64, u64);
    /// Whether a frame that was read there was written there.
    fn is_of_place(&self, grain: u64, header: &Header) -> bool;
    /// What of this range is not on the device yet, to be laid over what is read. Asked before the device is.
    fn overlay(&self, start: u64, len: usize) -> Option<Overlay>;
    /// Whether all objects are files.
    fn are_files(&self) -> bool;
    /// Whether the object there is a file, which knows no requests.
    fn is_file(&self, grain: u64) -> bool;
    /// The file that this stands for, if it is one.
    fn read_file(&self, grain: u64) -> Option<io::Result<Vec<u8>>>;

    /// Held while an object is placed: index, log and what leaves change in one order.
    fn turn(&self) -> MutexGuard<'_, ()>;
    /// A commit begins, before any record is taken: what waits in buffers is placed. When the commit is complete it
    /// calls what is returned, and what had left is free.
    ///
    /// # Errors
    /// Those of the device.
    fn begin_commit(&self, volume: &dyn VolumeEnv) -> Result<Box<dyn FnOnce() + '_>>;
    /// Writes what is held back, when the records are taken, and makes files durable that they may tell of.
    ///
    /// # Errors
    /// Those of the device.
    fn write_held(&self) -> Result<()>;
    /// All of a commit where there are no checkpoints, and no log: objects speak for themselves.
    ///
    /// # Errors
    /// Those of the device.
    fn commit_untold(&self) -> Result<()>;
    /// Vouches for what is there, by the holder of the turn, which lets no other write from here on.
    ///
    /// # Errors
    /// Those of the device.
    fn close(&self) -> Result<()>;

    /// Verifies the objects of a part: what is damaged, or left over, leaves.
    fn verify(&self, volume: &dyn VolumeEnv, part: u32);
    /// The objects of a part that the index leads to, or why they cannot be read.
    fn list(&self, volume: &dyn VolumeEnv, part: u32, see: &mut dyn FnMut(Result<(Header, Bytes)>));
    /// Verifies every object that the index leads to. `part_done` hears of each part.
    fn check(&self, volume: &dyn VolumeEnv, report: &mut CheckReport, part_done: &mut dyn FnMut(&mut CheckReport));
}

/// Bytes of places.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fill {
    /// Objects take them.
    pub live: u64,
    /// Objects could take them now.
    pub free: u64,
    /// All of them.
    pub room: u64,
}

/// Lays bytes over what was read from the device.
pub type Overlay = Box<dyn FnOnce(&mut [u8]) + Send>;

/// The answer of a preset: places as another crate has them.
#[derive(Clone, Copy)]
pub struct PlacesOpener {
    /// Makes them for a volume that is being opened; [`Places::restore`] follows unless it is new.
    pub open: fn(PlacesGround) -> Arc<dyn Places>,
    /// Whether a store lies in a folder, not on a device.
    pub in_folder: bool,
    /// Whether long objects may be files of a folder beside the device.
    pub long_files: bool,
}

impl PartialEq for PlacesOpener {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.open, other.open)
    }
}

impl Eq for PlacesOpener {}

impl fmt::Debug for PlacesOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlacesOpener")
    }
}

/// What a volume has before it has an index.
pub struct PlacesGround {
    /// The device, and how it is divided.
    pub medium: Arc<Medium>,
    /// The store.
    pub env: Arc<dyn Env>,
    /// The volume's log.
    pub log: Arc<dyn LogEnv>,
    /// Where the store lies, if that is a folder, or what of it is files beside its device.
    pub folder: Option<Arc<dyn Folder>>,
    /// Blocks of the longest object that shares an area, where the layout has areas.
    pub threshold: u32,
}

/// What places are lent of the log of their volume.
pub trait LogEnv: Send + Sync {
    /// The number of this opening.
    fn epoch(&self) -> u64;
    /// Remembers a fact, durable with the next commit.
    fn record(&self, record: Record);
    /// What is pending is durable with the commit that begins now, and no page has to say so.
    fn take_untold(&self);
    /// Stops writing to the volume. Returns what the next writer is told.
    fn fail(&self, doing: &str, error: io::Error) -> Error;
    /// Why nothing is written any more, if that is so.
    fn failure(&self) -> Option<Error>;
}

/// What places are lent of their volume, with each verb.
pub trait VolumeEnv {
    /// The entry of this hash that leads there.
    fn find(&self, hash: u64, grain: u64) -> Option<IndexEntry>;
    /// The index leads there now, in place of `old`. False if that was not there any more.
    fn enter(&self, hash: u64, grain: u64, grains: u32, old: Option<IndexEntry>) -> bool;
    /// What a key that has been entered had before leaves: [`Places::release`] is called, and memory forgets it.
    fn replaced(&self, hash: u64, old: Option<IndexEntry>);
    /// Removes an entry, and what it leads to as [`VolumeEnv::replaced`] does. False if it was not there.
    fn drop_entry(&self, hash: u64, entry: IndexEntry) -> bool;
    /// Lets an object that lies there stay in memory, if the index still leads there.
    fn cache_placed(&self, frame: Frame, grain: u64);

    /// Reads and verifies the frame there.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if no whole frame lies there.
    fn read_frame(&self, grain: u64, grains: u32) -> Result<(Header, Bytes)>;
    /// What lies there, and more behind it, whatever it is.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails.
    fn read_unverified(&self, grain: u64, grains: u32) -> Result<Bytes>;
    /// Whether it is a chunk of a large object that is gone.
    fn is_left_over(&self, header: &Header, frame: &[u8]) -> bool;
    /// Whether there are handles that may keep chunks.
    fn has_leases(&self) -> bool;
    /// Whether it is a chunk that a handle keeps, and may.
    fn is_kept(&self, header: &Header, frame: &[u8]) -> bool;

    /// The lane in which objects such as this one wait for each other.
    fn lane(&self, header: &Header) -> usize;
    /// Opens a buffer of so many bytes for objects such as this one; none if there is no slot for it.
    fn open_buffer(&self, header: &Header, bytes: u64) -> Option<u32>;
    /// Whether a frame of so many bytes fits into a buffer.
    fn fits_in(&self, slot: u32, frame_len: usize) -> bool;
    /// Puts an object into a buffer, which has room and whose lane the caller has locked, in place of `old`. What is
    /// returned is called when the lane is free: it lets the object stay in memory, if it `stays`.
    ///
    /// # Errors
    /// Why that is not done.
    fn enter_in(
        &self,
        slot: u32,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Box<dyn FnOnce() + '_>, Blocked>;
    /// What came into a buffer, in that order.
    fn rows_in(&self, slot: u32) -> Vec<Row>;
    /// An object of a buffer, if it is still its key's.
    fn frame_in(&self, slot: u32, row: &Row) -> Option<(IndexEntry, Frame)>;
    /// Gives up a buffer of so many bytes, to which no entry leads.
    fn close_buffer(&self, slot: u32, bytes: u64);
}

/// What places are lent of what makes room.
pub trait RoomEnv {
    /// Whether the index, or what checkpoints need, has come near to what it may take.
    fn is_crowded(&self) -> bool;
    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// Those of the device, and [`Error::JournalFull`].
    fn commit_now(&self) -> Result<()>;
}
