//! Records in groups: where a node's are, and a cache of as many groups as fit.
//!
//! A node's id is `place * groups + group`, where the group follows from its name. So an id names both its records, and
//! a name is found without a table of names.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use picaflor_common::{S3Fifo, Standing, Step};
use picaflor_format::{
    Corrupt,
    graph::{self, CopyOf, Edges, Node},
};
use picaflor_table::htod::{HashTables, Table};
use xxhash_rust::xxh3::xxh3_64;

use crate::base::{GraphError, GraphOptions, Result};

/// Nodes of a group, on average, if there are as many as was said.
const NODES: u32 = 16;
/// The part of the memory that is for index pages; the rest is for records.
pub(crate) const INDEX_PART: usize = 4;
/// What an entry of the cache takes beside its bytes.
const OVERHEAD: usize = 160;

/// Which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// The nodes of a group.
    Nodes(u32),
    /// The dependents of the nodes of a group.
    Edges(u32),
    /// Some of the dependents of a node: id, log2 of the chunks, which.
    Chunk(u32, u8, u32),
}

impl From<CopyOf> for Key {
    fn from(of: CopyOf) -> Self {
        match of {
            CopyOf::Nodes(group) => Self::Nodes(group),
            CopyOf::Edges(group) => Self::Edges(group),
            CopyOf::Chunk(id, bits, which) => Self::Chunk(id, bits, which),
        }
    }
}

impl From<Key> for CopyOf {
    fn from(key: Key) -> Self {
        match key {
            Key::Nodes(group) => Self::Nodes(group),
            Key::Edges(group) => Self::Edges(group),
            Key::Chunk(id, bits, which) => Self::Chunk(id, bits, which),
        }
    }
}

pub(crate) struct Groups {
    nodes: Table,
    edges: Table,
    chunks: Table,
    count: u32,
    is_new: bool,
    cache: Mutex<Cache>,
}

struct Cache {
    held: HashMap<Key, Held>,
    queue: S3Fifo<Key>,
    bytes: usize,
    room: usize,
}

struct Held {
    bytes: Arc<[u8]>,
    uses: AtomicU8,
}

impl Groups {
    pub(crate) fn open(tables: &HashTables, options: &GraphOptions) -> Result<Self> {
        let settings = tables.table("settings")?;
        let known = settings.get(b"groups")?;
        let is_new = known.is_none();
        let count = match known {
            Some(bytes) => {
                let count = bytes.first_chunk::<4>().map(|&bytes| u32::from_le_bytes(bytes));
                let none = || GraphError::Damaged { at: "groups".to_owned(), why: "no number of groups".to_owned() };
                count.filter(|&count| count > 0).ok_or_else(none)?
            }
            None => {
                let count = options.nodes.div_ceil(NODES).max(1);
                settings.put(b"groups", &count.to_le_bytes())?;
                tables.commit()?;
                count
            }
        };
        let room = options.memory - options.memory / INDEX_PART;
        let queue = S3Fifo::new(room as u64 / 1024, 1);
        let cache = Mutex::new(Cache { held: HashMap::new(), queue, bytes: 0, room });
        let (nodes, edges, chunks) = (tables.table("nodes")?, tables.table("edges")?, tables.table("chunks")?);
        Ok(Self { nodes, edges, chunks, count, is_new, cache })
    }

    pub(crate) fn cached_bytes(&self) -> usize {
        self.cache.lock().bytes
    }

    pub(crate) fn group_of_name(&self, name: &[u8]) -> u32 {
        (xxh3_64(name) % u64::from(self.count)) as u32
    }

    /// The group of an id, and its place there.
    pub(crate) fn place(&self, id: u32) -> (u32, usize) {
        (id % self.count, (id / self.count) as usize)
    }

    pub(crate) fn id(&self, group: u32, place: usize) -> Result<u32> {
        let id = place as u64 * u64::from(self.count) + u64::from(group);
        u32::try_from(id).map_err(|_| GraphError::Full)
    }

    fn table(&self, key: Key) -> (&Table, Vec<u8>) {
        match key {
            Key::Nodes(group) => (&self.nodes, group.to_le_bytes().to_vec()),
            Key::Edges(group) => (&self.edges, group.to_le_bytes().to_vec()),
            Key::Chunk(id, bits, which) => {
                (&self.chunks, [&id.to_le_bytes()[..], &[bits], &which.to_le_bytes()].concat())
            }
        }
    }

    /// A record; empty if there is none.
    pub(crate) fn read(&self, key: Key) -> Result<Arc<[u8]>> {
        if let Some(held) = self.cache.lock().held.get(&key) {
            held.uses.store((held.uses.load(Relaxed) + 1).min(3), Relaxed);
            return Ok(Arc::clone(&held.bytes));
        }
        let (table, table_key) = self.table(key);
        let bytes: Arc<[u8]> = table.get(&table_key)?.unwrap_or_default().into();
        self.cache.lock().take(key, &bytes);
        Ok(bytes)
    }

    /// How many groups there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether this opening made the graph.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Writes a record that will not be asked for soon. Durable with the next commit.
    pub(crate) fn write_past(&self, key: Key, bytes: &[u8]) -> Result<()> {
        let (table, table_key) = self.table(key);
        Ok(table.put(&table_key, bytes)?)
    }

    /// Reads all groups, if records of so many bytes fit in memory.
    pub(crate) fn warm(&self, bytes: u64) -> Result<()> {
        let all = bytes + u64::from(self.count) * 2 * OVERHEAD as u64;
        if all > self.cache.lock().room as u64 {
            return Ok(());
        }
        let keys: Vec<u32> = (0..self.count).collect();
        for some in keys.chunks(1024) {
            self.read_ahead(some.iter().flat_map(|&group| [Key::Nodes(group), Key::Edges(group)]))?;
        }
        Ok(())
    }

    /// Takes a record into memory that was found elsewhere.
    pub(crate) fn remember(&self, key: Key, record: &[u8]) {
        self.cache.lock().take(key, &record.into());
    }

    /// Which records are in memory.
    pub(crate) fn cached_keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.cache.lock().held.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// A record, if it is in memory.
    pub(crate) fn cached(&self, key: Key) -> Option<Arc<[u8]>> {
        self.cache.lock().held.get(&key).map(|held| Arc::clone(&held.bytes))
    }

    /// Brings records into memory that are about to be read, with many reads on their way at once. One that cannot be
    /// read is left to the reader.
    pub(crate) fn read_ahead(&self, keys: impl Iterator<Item = Key>) -> Result<()> {
        let mut keys: Vec<Key> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        {
            let cache = self.cache.lock();
            keys.retain(|key| !cache.held.contains_key(key));
        }
        // Neighbours in this order are of one table.
        for of_table in keys.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
            let table = self.table(of_table[0]).0;
            let names: Vec<Vec<u8>> = of_table.iter().map(|&key| self.table(key).1).collect();
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let values = table.get_many(&names)?;
            let mut cache = self.cache.lock();
            for (&key, value) in of_table.iter().zip(values) {
                if let Ok(value) = value {
                    cache.take(key, &value.unwrap_or_default().into());
                }
            }
        }
        Ok(())
    }

    /// Replaces a record; removes it if it is empty. Durable with the next commit.
    pub(crate) fn write(&self, key: Key, bytes: Vec<u8>) -> Result<()> {
        let (table, table_key) = self.table(key);
        if bytes.is_empty() {
            table.remove(&table_key)?;
        } else {
            table.put(&table_key, &bytes)?;
        }
        self.cache.lock().take(key, &bytes.into());
        Ok(())
    }

    pub(crate) fn node(&self, id: u32) -> Result<Option<Node>> {
        let (group, place) = self.place(id);
        let key = Key::Nodes(group);
        let bytes = self.read(key)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        graph::item(&bytes, place).and_then(Node::decode).map_err(damaged(key))
    }

    /// Where the dependents of a node are.
    pub(crate) fn edges_record(&self, id: u32) -> Result<Edges> {
        let (group, place) = self.place(id);
        let key = Key::Edges(group);
        let bytes = self.read(key)?;
        if bytes.is_empty() {
            return Ok(Edges::default());
        }
        graph::item(&bytes, place).and_then(Edges::decode).map_err(damaged(key))
    }

    /// Who claims to be built from a node, ascending.
    pub(crate) fn edges(&self, id: u32) -> Result<Vec<u32>> {
        match self.edges_record(id)? {
            Edges::Small(ids) => Ok(ids),
            Edges::Large { bits, .. } => {
                let mut ids = Vec::new();
                for which in 0..1u32 << bits {
                    ids.extend(self.chunk(Key::Chunk(id, bits, which))?);
                }
                ids.sort_unstable();
                Ok(ids)
            }
        }
    }

    pub(crate) fn chunk(&self, key: Key) -> Result<Vec<u32>> {
        let bytes = self.read(key)?;
        if bytes.is_empty() { Ok(Vec::new()) } else { graph::take_ids(&bytes).map_err(damaged(key)) }
    }
}

impl Cache {
    fn take(&mut self, key: Key, bytes: &Arc<[u8]>) {
        let charge = bytes.len() + OVERHEAD;
        self.bytes += charge;
        match self.held.insert(key, Held { bytes: Arc::clone(bytes), uses: AtomicU8::new(0) }) {
            Some(old) => self.bytes -= old.bytes.len() + OVERHEAD,
            None => self.queue.insert(hash(key), key, charge as u64),
        }
        while self.bytes > self.room {
            let held = &self.held;
            let standing = |key: &Key| match held.get(key) {
                Some(it) => Standing::Here(hash(*key), it.uses.load(Relaxed)),
                None => Standing::Gone,
            };
            let leave_with = |key: &Key, uses| {
                if let Some(it) = held.get(key) {
                    it.uses.store(uses, Relaxed);
                }
            };
            match self.queue.step(self.room as u64, standing, leave_with) {
                Step::Moved => {}
                Step::Empty => break,
                Step::Leaves(key) => {
                    let left = self.held.remove(&key).map_or(0, |old| old.bytes.len() + OVERHEAD);
                    self.bytes -= left;
                }
            }
        }
    }
}

fn hash(key: Key) -> u64 {
    let word = match key {
        Key::Nodes(group) => u64::from(group) << 2,
        Key::Edges(group) => u64::from(group) << 2 | 1,
        Key::Chunk(id, bits, which) => (u64::from(id) << 32 | u64::from(bits) << 24 | u64::from(which)) << 1 | 3,
    };
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn damaged(key: Key) -> impl Fn(Corrupt) -> GraphError {
    move |why| GraphError::Damaged { at: format!("{key:?}"), why: why.to_string() }
}
