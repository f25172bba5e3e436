//! What sealed clusters hold, by their tables: whether the frame that an entry leads to has a key, without a look at
//! the frame. A table tells it of every object of its cluster, so deletes and replacing puts of a store read one for
//! many. The memory tier keeps tables as it keeps objects.
//!
//! Invariants: a table counts for the grant in which it was read, while that is the cluster's last; one of an earlier
//! opening only with the header of its use, for a crash leaves the table of the use before in a cluster that it kept
//! from being sealed; a row counts where it fits its entry, by place, length and all that the index keeps of a hash;
//! what no row tells is read.

use std::sync::Arc;

use picaflor_common::KeyHash;
use picaflor_format::{
    BLOCK,
    cluster::{self, Table},
    frame::{GRAIN, Header, Kind},
};

use crate::{
    base::frame::{Draft, Frame},
    cache::catalog::Catalog,
    index::{IndexEntry, Location},
};

/// The longest table that is read: a longer one takes more time than looks at some of its frames.
const LONGEST: usize = 16 << 10;

/// Bytes of the key under which the memory tier has a table.
const KEY: usize = 20;

/// One use of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Granted {
    pub(crate) cluster: u32,
    pub(crate) number: u32,
}

impl Granted {
    /// Whether it was granted before this opening.
    pub(crate) fn is_earlier(self) -> bool {
        self.number == 0
    }
}

/// Whether a frame of the memory tier is a table.
pub(crate) fn is_table(frame: &Frame) -> bool {
    frame.header.kind == Kind::Chunk && usize::from(frame.header.key_len) == KEY
}

/// Whether a table tells anything.
pub(crate) fn has_rows(table: &Frame) -> bool {
    table.header.body_len > 0
}

/// The tables of a volume.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) catalog: Arc<Catalog>,
}

impl Tables {
    /// Whether the frame that an entry leads to has this key, by the table of its cluster, which `table` brings. `None`
    /// if that frame is to be looked at, as a large object's is in any case, for its chunks.
    pub(crate) fn tell(
        &self,
        entry: IndexEntry,
        hash: KeyHash,
        kind: Kind,
        table: impl FnOnce(Granted) -> Option<Arc<Frame>>,
    ) -> Option<bool> {
        let Location::OnDisk { grain } = entry.location() else { return None };
        let granted = self.use_of(grain)?;
        let table = table(granted)?;
        let offset = (grain * GRAIN as u64 - self.catalog.medium.map().cluster_start(granted.cluster)) as u32;
        let row = cluster::row_at(&table.body(), offset)?;
        let fits = (row.hash ^ hash.short()) & self.catalog.index.told_apart_by() == 0
            && entry.is_of_grains(row.len / GRAIN as u32)
            && self.catalog.space.grants.last(granted.cluster) == granted.number;
        let is_own = row.hash == hash.short() && (row.kind == Kind::Chunk) == (kind == Kind::Chunk);
        (fits && !(is_own && row.kind == Kind::Manifest)).then_some(is_own)
    }

    /// The use of the cluster around a grain, if a table may tell what lies there.
    pub(crate) fn use_of(&self, grain: u64) -> Option<Granted> {
        let keeps_objects = self.catalog.places.is_none() && !self.catalog.shared.memory.retention.holds_clusters();
        let cluster = self.catalog.medium.cluster_of(grain).filter(|_| keeps_objects)?;
        let number = self.catalog.space.grants.last(cluster);
        self.catalog.space.state(cluster).is_read().then_some(Granted { cluster, number })
    }

    fn key_of(&self, granted: Granted) -> ([u8; KEY], u64) {
        let mut key = *b"a table ............";
        key[8..12].copy_from_slice(&(self.catalog.medium.number as u32).to_le_bytes());
        key[12..16].copy_from_slice(&granted.cluster.to_le_bytes());
        key[16..].copy_from_slice(&granted.number.to_le_bytes());
        (key, self.catalog.medium.hasher.chunk(&key).short())
    }

    /// A table that memory has; without rows, if none tells what lies there.
    pub(crate) fn kept(&self, granted: Granted) -> Option<Arc<Frame>> {
        let (key, hash) = self.key_of(granted);
        self.catalog.shared.memory.get(hash, &key).filter(|frame| is_table(frame))
    }

    /// The same, read if memory has it not.
    pub(crate) fn get(&self, granted: Granted) -> Option<Arc<Frame>> {
        self.kept(granted).or_else(|| self.read(granted))
    }

    fn read(&self, granted: Granted) -> Option<Arc<Frame>> {
        let medium = &self.catalog.medium;
        let read = |len: usize| medium.read_at(granted.cluster, medium.cluster_len() - len, len).ok();
        let mut end = read(BLOCK)?;
        // One more read than the frame itself would be: for others to come, if it stays.
        let longer = cut_table(&end).filter(|len| self.catalog.shared.may_stay(*len as u64));
        if let Some(len) = longer {
            end = read(len.next_multiple_of(BLOCK))?;
        }
        let front = if granted.is_earlier() { Some(medium.read_at(granted.cluster, 0, BLOCK).ok()?) } else { None };
        Some(self.keep(granted, &end, front.as_deref()))
    }

    /// Keeps the table in what was read of the end of a cluster, and of its front if that [is earlier](Granted); one
    /// without rows if none of this use is there, or it is too long.
    pub(crate) fn keep(&self, granted: Granted, end: &[u8], front: Option<&[u8]>) -> Arc<Frame> {
        let own = (self.catalog.medium.store_id, granted.cluster);
        let header = front.and_then(|front| cluster::Header::decode(front).ok());
        let begins = |seq| header.is_some_and(|header| (header.store, header.id) == own && header.seq == seq);
        let body = match cluster::decode_table(end) {
            Ok(Table::Rows(last, rows))
                if (last.store, last.id) == own && (!granted.is_earlier() || begins(last.seq)) =>
            {
                &end[end.len() - cluster::table_len(rows.len())..end.len() - cluster::TRAILER]
            }
            _ => &[],
        };
        let (key, hash) = self.key_of(granted);
        let header = Header {
            mark: 0,
            generation: 0,
            expires: 0,
            body_len: body.len() as u32,
            meta_len: 0,
            key_len: KEY as u16,
            kind: Kind::Chunk,
            group: 0,
            server: 0,
            payload_crc: 0,
        };
        let mut frame = vec![0; header.frame_len()];
        let header = Draft { hash, header, key: &key, metadata: &[], body }.lay(0, &mut frame);
        let frame = Arc::new(Frame::new(hash, header, frame.into()));
        self.catalog.shared.cache_object(&frame, || true);
        frame
    }
}

/// Bytes from the end of a cluster that its table takes, if it begins before what was read and is worth reading.
pub(crate) fn cut_table(end: &[u8]) -> Option<usize> {
    let (_, rows) = cluster::decode_trailer(end).ok()?;
    Some(cluster::table_len(rows)).filter(|len| (end.len() + 1..=LONGEST).contains(len))
}
