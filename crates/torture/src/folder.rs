//! A file system small enough to be believed, on a device that crashes: for presets that keep a file for each object.
//!
//! Everything done is a record in a log on the device: written, removed. A record carries the checksum of the one
//! before it and the number of its life, so after a crash the log ends at the first that is not whole, also when that
//! is written again as it was: what was done survives in its order, as with a journaling file system. The contents of
//! a file carry no checksum: those that no sync followed may be torn.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use picaflor_device::{Device, Folder};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::plug::Plug;

const SECTOR: usize = 512;
/// First byte of a record's name.
const NAME: usize = 40;
const WRITE: u64 = 1;
const REMOVE: u64 = 2;

/// Numbers of lives: no two of this process have the same.
static LIVES: AtomicU64 = AtomicU64::new(1);

/// Files by their names, on one life's connection to a device.
pub(crate) struct LogFolder {
    device: Arc<Plug>,
    life: u64,
    state: Mutex<Option<State>>,
}

#[derive(Default)]
struct State {
    /// First byte and length of each file.
    files: BTreeMap<String, (u64, usize)>,
    dirs: BTreeSet<String>,
    end: u64,
    chain: u64,
}

impl LogFolder {
    pub(crate) fn new(device: Arc<Plug>) -> Self {
        Self { device, life: LIVES.fetch_add(1, Relaxed), state: Mutex::new(None) }
    }

    /// The state, read from the log when first asked for.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.is_none() {
            *state = Some(self.replay()?);
        }
        state.as_mut().map_or_else(|| Err(io::Error::other("no state")), act)
    }

    fn replay(&self) -> io::Result<State> {
        let mut state = State::default();
        let mut sector = [0; SECTOR];
        while state.end + (SECTOR as u64) <= self.device.capacity() {
            self.device.read(state.end, &mut sector)?;
            let Some((kind, len, name)) = decode(&sector, state.chain) else { break };
            state.apply(kind, len, name, &sector);
        }
        Ok(state)
    }

    fn log(&self, kind: u64, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.with(|state| {
            let sector = encode((kind, self.life), name, bytes.len(), state.chain);
            let mut all = sector.to_vec();
            all.extend_from_slice(bytes);
            all.resize(all.len().next_multiple_of(SECTOR), 0);
            self.device.write(state.end, &all)?;
            state.apply(kind, bytes.len(), name.into(), &sector);
            Ok(())
        })
    }
}

impl State {
    fn apply(&mut self, kind: u64, len: usize, name: String, sector: &[u8; SECTOR]) {
        let data = self.end + SECTOR as u64;
        match kind {
            WRITE => drop(self.files.insert(name, (data, len))),
            _ => drop(self.files.remove(&name)),
        }
        self.end = data + len.next_multiple_of(SECTOR) as u64;
        self.chain = xxh3_64_with_seed(sector, self.chain);
    }
}

/// Kind, bytes that follow, bytes of name, life, checksum over the rest and the record before; then the name.
fn encode((kind, life): (u64, u64), name: &str, len: usize, chain: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    for (at, field) in [kind, len as u64, name.len() as u64, life].into_iter().enumerate() {
        sector[at * 8..][..8].copy_from_slice(&field.to_le_bytes());
    }
    sector[NAME..NAME + name.len()].copy_from_slice(name.as_bytes());
    let sum = xxh3_64_with_seed(&sector, chain);
    sector[32..NAME].copy_from_slice(&sum.to_le_bytes());
    sector
}

fn decode(sector: &[u8; SECTOR], chain: u64) -> Option<(u64, usize, String)> {
    let field = |at: usize| sector[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    let (kind, len, name, life) = (field(0), field(8) as usize, field(16) as usize, field(24));
    let name = String::from_utf8(sector.get(NAME..NAME + name.min(SECTOR))?.to_vec()).ok()?;
    let whole = (kind == WRITE || kind == REMOVE) && encode((kind, life), &name, len, chain) == *sector;
    whole.then_some((kind, len, name))
}

impl Folder for LogFolder {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.with(|state| {
            let parent = path.rsplit_once('/').is_none_or(|(parent, _)| state.dirs.contains(parent));
            state.dirs.insert(path.into());
            if parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        })
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.log(WRITE, path, bytes)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let (start, len) = self.with(|state| state.files.get(path).copied().ok_or(io::ErrorKind::NotFound.into()))?;
        let mut bytes = vec![0; len.next_multiple_of(SECTOR)];
        self.device.read(start, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.with(|state| if state.files.contains_key(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) })?;
        self.log(REMOVE, path, &[])
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.with(|state| {
            state.files.iter().for_each(|(name, (_, len))| each(name, *len as u64));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn backend(&self) -> String {
        "log over faulty".into()
    }
}
