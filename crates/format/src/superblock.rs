//! The superblock: identity, shape, and the commit point of a checkpoint.
//!
//! Two copies, written alternately, so one is intact whatever the moment of a crash. The intact copy
//! with the larger `seq` counts. Layout: `docs/FORMAT.md`, "Superblock".

use crate::{
    BLOCK, Corrupt, VERSION,
    codec::{SEAL, check, put, u32_at, u64_at, u128_at},
    doubt::Doubt,
    zone::Map,
};

const MAGIC: u32 = u32::from_le_bytes(*b"PFsb");

/// Most blocks that a class of slots may have: a list is kept for each.
pub const THRESHOLD_MAX: u32 = 4096;

/// Where a checkpoint begins, and from where on the journal adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Cluster of its directory.
    pub directory: u32,
    /// Sequence number of that cluster's use, so that a later use is not taken for it.
    pub seq: u64,
    /// First journal page that recovery reads.
    pub journal_start: u64,
}

/// Identity and shape of one volume, and its newest two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Grows with every superblock written.
    pub seq: u64,
    /// Identity of the store, the same on all its volumes.
    pub store: u128,
    /// Seed of the key hash: random per store, so that colliding keys cannot be chosen.
    pub seed: u64,
    /// Bytes of the device in use.
    pub capacity: u64,
    /// Bytes that were in use when it was made, if they have become more since; else 0.
    pub made_with: u64,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// log2 of the number of index segments.
    pub segment_bits: u32,
    /// Which volume this is, and of how many.
    pub volume: (u32, u32),
    /// What of a key says which of several volumes it lies on.
    pub spread: Spread,
    /// Number of opens; the high bits of every generation and cluster sequence number.
    pub epoch: u64,
    /// 0 cache, 1 store.
    pub mode: u32,
    /// The newest checkpoint.
    pub current: Option<CheckpointRef>,
    /// The one before, kept whole until the next commit.
    pub previous: Option<CheckpointRef>,
    /// Volumes that failed while this one went on, a bit each: they do not know what was deleted or replaced since.
    pub lost: u64,
    /// Every seal up to this one was durable when this was written. In layouts of blocks: 1 once the tables are there.
    pub durable: u64,
    /// Every cluster of the same opening with a smaller sequence number was sealed, and durable, when the newest
    /// checkpoint was taken: if it has no table now, that is damage. 0 says nothing.
    pub sealed_below: u64,
    /// How its objects lie.
    pub layout: Layout,
    /// Blocks of the longest object that shares an area, in the layouts that have areas; 0 is 256.
    pub threshold: u32,
    /// Longer ones are files of a folder beside the device.
    pub long_files: bool,
    /// Number of the preset that it was opened with last, from 1 on; 0 does not say.
    pub preset: u32,
    /// Uses of clusters of which crashes may have taken the note, until the scrubber has gone over everything since.
    pub doubt: Doubt,
    /// An opening for writing began, and was not closed: a crash may have taken the note of everything it wrote since
    /// the newest checkpoint. Not set in the stores of builds that did not keep it.
    pub running: bool,
}

/// What of a key says which of several volumes it lies on. Numbers are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Spread {
    /// Nothing: there is one volume, or the store is of before 0.2, when an object might lie on any of several.
    #[default]
    None = 0,
    /// All of the key.
    Key = 1,
    /// The key up to its third `/`.
    Origin = 2,
}

impl Spread {
    fn from_u32(value: u32) -> Result<Self, Corrupt> {
        Ok(match value {
            0 => Self::None,
            1 => Self::Key,
            2 => Self::Origin,
            _ => return Err(Corrupt::Field("spread")),
        })
    }
}

/// How objects are laid on the device. Numbers are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Layout {
    /// Whole clusters, granted in address order, round and round.
    #[default]
    Ring = 0,
    /// Single objects in place, in slots of one length to a class (BUDDY: Markatos et al. 1999, §3.4).
    Slots = 1,
    /// Single objects in place, each at the next free run behind the one before (STREAM: the same, §3.5).
    NextFit = 2,
    /// A file for each object, all in one directory (SIMPLE: the same, §3.4).
    Files = 3,
    /// The same, in 16 times 256 directories in turn (SQUID).
    FilesInTurn = 4,
    /// The same, in a directory for each origin server (MULTIPLE-DIRS).
    FilesOfServers = 5,
    /// As [`Layout::Slots`]; what lies there says so by itself, and what is freed is wiped.
    SlotsScanned = 6,
    /// In hash tables on blocks, which are found by their headers (PMFLF over TS: Iyengar et al. 2003, §2.1).
    BlocksTs = 7,
    /// The same, by persistent lists (PL, §2.2).
    BlocksPl = 8,
    /// The same, by persistent lists of free blocks (PFL, §2.3).
    BlocksPfl = 9,
}

impl Layout {
    fn from_u32(value: u32) -> Result<Self, Corrupt> {
        Ok(match value {
            0 => Self::Ring,
            1 => Self::Slots,
            2 => Self::NextFit,
            3 => Self::Files,
            4 => Self::FilesInTurn,
            5 => Self::FilesOfServers,
            6 => Self::SlotsScanned,
            7 => Self::BlocksTs,
            8 => Self::BlocksPl,
            9 => Self::BlocksPfl,
            _ => return Err(Corrupt::Field("layout")),
        })
    }
}

/// Every preset that a superblock may name, with the layout that it leaves: number 1 first. Rows keep their places for
/// ever.
pub const PRESETS: [(&str, Layout); 16] = [
    ("picaflor", Layout::Ring),
    ("hummingbird", Layout::Ring),
    ("simple", Layout::Files),
    ("squid", Layout::FilesInTurn),
    ("multiple-dirs", Layout::FilesOfServers),
    ("buddy", Layout::Slots),
    ("buddy-scan", Layout::SlotsScanned),
    ("stream", Layout::NextFit),
    ("stream-pack", Layout::NextFit),
    ("lazy-reads", Layout::NextFit),
    ("lazy-reads-loc", Layout::NextFit),
    ("damelo", Layout::Ring),
    ("pmflf-ts", Layout::BlocksTs),
    ("pmflf-pl", Layout::BlocksPl),
    ("pmflf-pfl", Layout::BlocksPfl),
    ("oba", Layout::BlocksPfl),
];

/// The number that a superblock has for a preset; 0 for one that it has none for.
pub fn preset_number(name: &str) -> u32 {
    PRESETS.iter().zip(1..).find(|((known, _), _)| *known == name).map_or(0, |(_, number)| number)
}

impl Superblock {
    /// Bytes that the volume was made with.
    pub fn first_capacity(&self) -> u64 {
        if self.made_with == 0 { self.capacity } else { self.made_with }
    }

    /// The same with so many bytes of the device in use.
    #[must_use]
    pub fn resized(self, capacity: u64) -> Self {
        Self { made_with: self.first_capacity(), capacity, ..self }
    }

    /// Where everything is; `None` where [`Map::grown`] knows none.
    pub fn map(&self) -> Option<Map> {
        Map::grown(self.first_capacity(), self.capacity, self.cluster)
    }

    /// The preset that the store was opened with last, if that leaves such bytes; else the first that does.
    pub fn made_by(&self) -> &'static str {
        let leaves_these = |(_, layout): &&(&str, Layout)| *layout == self.layout;
        let named = PRESETS.get((self.preset as usize).wrapping_sub(1)).filter(leaves_these);
        named.or_else(|| PRESETS.iter().find(leaves_these)).map_or("", |(name, _)| name)
    }
}

const ABSENT: u32 = u32::MAX;
/// Of the threshold: longer objects are files. Builds that do not know it take it for a threshold beyond the largest.
const LONG_FILES: u32 = 1 << 31;

fn put_ref(out: &mut [u8], at: usize, value: Option<CheckpointRef>) {
    let value = value.unwrap_or(CheckpointRef { directory: ABSENT, seq: 0, journal_start: 0 });
    put(out, at, value.directory.to_le_bytes());
    put(out, at + 8, value.seq.to_le_bytes());
    put(out, at + 16, value.journal_start.to_le_bytes());
}

fn ref_at(bytes: &[u8], at: usize) -> Option<CheckpointRef> {
    let directory = u32_at(bytes, at);
    (directory != ABSENT).then(|| CheckpointRef {
        directory,
        seq: u64_at(bytes, at + 8),
        journal_start: u64_at(bytes, at + 16),
    })
}

impl Superblock {
    /// Writes one block.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..BLOCK];
        out.fill(0);
        put(out, 8, VERSION.to_le_bytes());
        put(out, 12, self.mode.to_le_bytes());
        put(out, 16, self.seq.to_le_bytes());
        put(out, 24, self.store.to_le_bytes());
        put(out, 40, self.seed.to_le_bytes());
        put(out, 48, self.capacity.to_le_bytes());
        put(out, 56, self.cluster.to_le_bytes());
        put(out, 60, self.segment_bits.to_le_bytes());
        put(out, 64, self.volume.0.to_le_bytes());
        put(out, 68, self.volume.1.to_le_bytes());
        put(out, 72, self.epoch.to_le_bytes());
        put_ref(out, 80, self.current);
        // In the first sector, for a torn first superblock leaves the others blank.
        put(out, 84, u32::from(self.running).to_le_bytes());
        put_ref(out, 104, self.previous);
        put(out, 128, (self.layout as u32).to_le_bytes());
        put(out, 132, (self.spread as u32).to_le_bytes());
        put(out, 136, self.lost.to_le_bytes());
        put(out, 144, self.durable.to_le_bytes());
        let long_files = if self.long_files { LONG_FILES } else { 0 };
        put(out, 152, (self.threshold | long_files).to_le_bytes());
        put(out, 156, self.preset.to_le_bytes());
        put(out, 160, self.sealed_below.to_le_bytes());
        self.doubt.put(out, 168);
        put(out, 688, self.made_with.to_le_bytes());
        crate::codec::seal(out, MAGIC);
    }

    /// Reads and verifies one block.
    ///
    /// # Errors
    /// [`Corrupt::Version`] if the magic matches and the version does not: that is judged before the
    /// checksum, because another version may checksum otherwise. [`Corrupt`] for other damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..BLOCK).ok_or(Corrupt::Short)?;
        if u32_at(bytes, 0) == MAGIC && u32_at(bytes, SEAL) != VERSION {
            return Err(Corrupt::Version(u32_at(bytes, SEAL)));
        }
        check(bytes, MAGIC)?;
        let found = Self {
            mode: u32_at(bytes, 12),
            seq: u64_at(bytes, 16),
            store: u128_at(bytes, 24),
            seed: u64_at(bytes, 40),
            capacity: u64_at(bytes, 48),
            cluster: u32_at(bytes, 56),
            segment_bits: u32_at(bytes, 60),
            volume: (u32_at(bytes, 64), u32_at(bytes, 68)),
            epoch: u64_at(bytes, 72),
            current: ref_at(bytes, 80),
            previous: ref_at(bytes, 104),
            lost: u64_at(bytes, 136),
            durable: u64_at(bytes, 144),
            layout: Layout::from_u32(u32_at(bytes, 128))?,
            spread: Spread::from_u32(u32_at(bytes, 132))?,
            threshold: u32_at(bytes, 152) & !LONG_FILES,
            long_files: u32_at(bytes, 152) & LONG_FILES != 0,
            preset: u32_at(bytes, 156),
            sealed_below: u64_at(bytes, 160),
            doubt: Doubt::at(bytes, 168)?,
            running: u32_at(bytes, 84) == 1,
            made_with: u64_at(bytes, 688),
        };
        if found.threshold > THRESHOLD_MAX {
            return Err(Corrupt::Field("threshold"));
        }
        if found.segment_bits > 30 {
            return Err(Corrupt::Field("segment bits"));
        }
        if found.volume.0 >= found.volume.1 {
            return Err(Corrupt::Field("volume"));
        }
        Ok(found)
    }
}
