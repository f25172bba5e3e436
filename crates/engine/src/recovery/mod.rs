//! Opening: superblock → checkpoint → journal → the clusters written since → ready.
//!
//! [`open`] judges the options and opens every volume; `volume.rs` does one of them, `scan.rs` reads the
//! clusters that a checkpoint does not cover, `merge.rs` enters what they hold; a cache is open before that
//! (`deferred.rs`). A store that comes back from a crash says what it kept and dropped in its [`Receipt`].

mod build;
mod created_files;
mod deferred;
pub(crate) mod folder;
mod found;
mod grow;
mod image;
mod merge;
mod parallel_read;
mod ring;
mod scan;
mod shrink;
mod since;
pub(crate) mod superblock;
mod validate;
mod volume;

pub(crate) use deferred::Deferred;
pub use folder::CLEAN;
pub use found::EPOCH_SHIFT;
pub(crate) use grow::grow_at_work;
pub(crate) use shrink::shrink;
pub use superblock::write_superblock;

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak, atomic::AtomicU64},
};

pub(crate) use created_files::CreatedFiles;
use parking_lot::Mutex;
use picaflor_common::Hasher;
use picaflor_device::{BufPool, Device, FileDevice, Folder, MemoryDevice, OpenOptions, RealFolder};
use picaflor_format::{
    superblock::{PRESETS, Superblock},
    zone::Map,
};
use rand::Rng;
use validate::{Made, as_it_was_made, check, check_memory};

use crate::{
    Daemons, Error, Inspection, Options, Place, Result, Spread,
    api::inspect::inspect,
    background::eviction::Budget,
    base::beside::Beside,
    base::group::Groups,
    base::layout::{Env, Layout},
    base::medium::read_twice,
    base::pinned::Pins,
    base::receipt::Receipt,
    cache::memory::Memory,
    recovery::found::{Found, Identity, too_small},
    recovery::validate::CAPACITY_DEFAULT,
    shared::{Member, STRIPES, Shared},
    space::LayoutKind,
    volume::Volume,
    write::append::{lanes, unwritten_max},
};

pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) volumes: Vec<Arc<Volume>>,
    /// Where the layout keeps its own index: then there are no volumes.
    pub(crate) layout: Option<Arc<dyn Layout>>,
    pub(crate) hasher: Hasher,
    pub(crate) deferred: Arc<Deferred>,
    pub(crate) created: CreatedFiles,
    /// Of each volume the bytes that it is to have, if these are fewer; else empty. See [`shrink`].
    pub(crate) fewer: Vec<Option<u64>>,
}

/// `before`: the receipt of the opening in which this one's store gave bytes back, if it did.
pub(crate) fn open(mut options: Options, before: Option<Box<Receipt>>) -> Result<Opened> {
    let began = std::time::Instant::now();
    if let Some(Place::Path(path)) = options.places.first() {
        // A folder is opened otherwise than a file is.
        options.remember(folder::superblock_at(path).as_ref());
    } else if let Some(Place::Folder(folder)) = options.places.first() {
        options.remember(folder::superblock_in(&**folder).as_ref());
    }
    check(&options)?;
    // Dropped last: whatever fails from here on leaves no new file behind.
    let mut created = CreatedFiles::default();
    let mut found = Vec::new();
    for (number, place) in options.places.iter().enumerate() {
        let (name, device, folder) = open_place(place, &options, &mut created)?;
        let (superblock, both) = superblock::read_superblock(&name, &*device, &options)?.unzip();
        let room = validate::room(place, device.capacity());
        let long_files = options.long_files.get(number);
        let long_files = long_files.map(|place| open_long_files(place, &options, &mut created)).transpose()?;
        let doubtful = both == Some(false);
        found.push(Found { place: name, device, folder, long_files, room, superblock, doubtful });
    }
    options.remember(found.iter().find_map(|found| found.superblock.as_ref()));
    check(&options)?;
    found.iter().try_for_each(check_long_files)?;
    options.mode = options.preset.mode(options.mode);
    let mut identity = identity(&mut found, &options)?;
    options.cluster = identity.cluster;
    options.spread = identity.spread;
    check_memory(&options)?;
    // What says how large it is now must not be one that can be lost alone.
    identity.writes_both |= grow::grow(&mut found, &options)?;
    let fewer = shrink::fewer(&found, &options)?;
    if !fewer.is_empty() {
        options.daemons = Daemons::Manual;
    }
    if !options.read_only {
        let mut folders = (0..).zip(&found).filter_map(|(volume, found)| Some((volume, found.long_files.as_ref()?)));
        let mark = |(volume, folder): (u32, &Arc<dyn Folder>)| folder::mark(&**folder, (identity.store, volume));
        let marked = folders.try_for_each(mark);
        marked.map_err(|error| Error::io("writing whose files these are", error))?;
    }
    let hasher = Hasher::new(identity.seed);
    let shared = Arc::new(shared(options, identity.epoch));
    if let LayoutKind::Other(opener) = shared.preset.layout
        && let Some(found) = found.pop()
    {
        let place = volume::to_place(found, &shared, &identity);
        let (layout, receipt) = opener.0(place, Arc::clone(&shared) as Arc<dyn Env>)?;
        let deferred = Arc::new(Deferred::over(&shared, receipt, began));
        return Ok(Opened { shared, volumes: Vec::new(), layout: Some(layout), hasher, deferred, created, fewer });
    }
    let unopened: Vec<volume::Unopened> = (found.into_iter().enumerate())
        .map(|(number, found)| volume::read(number, found, &shared, &identity))
        .collect::<Result<_>>()?;
    if identity.may_be_unborn && !shared.options.read_only {
        unopened.iter().try_for_each(volume::rewrite)?;
    }
    let mut volumes = Vec::with_capacity(unopened.len());
    let mut left = Vec::with_capacity(unopened.len());
    for unopened in unopened {
        let (volume, receipt, merge) = volume::begin(unopened, &identity)?;
        left.push((volume.parts().clone(), receipt, merge));
        volumes.push(volume);
    }
    if identity.lost != 0 && !shared.options.read_only {
        // They are empty now, durably.
        volumes.iter().try_for_each(|volume| volume.log.write_superblock(|block| block.lost = 0))?;
    }
    shared.see_generation(shared.pins.opened());
    let members = volumes.iter().map(|volume| {
        let member: Weak<dyn Member> = Arc::<Volume>::downgrade(volume);
        member
    });
    let _ = shared.members.set(members.collect());
    let deferred = Arc::new(Deferred::new(&shared, left, (began, before)));
    Ok(Opened { shared, volumes, layout: None, hasher, deferred, created, fewer })
}

/// Whether nothing was ever made durable here: no checkpoint, and no page of the journal.
fn is_never_committed(found: &Found) -> Result<bool> {
    let Some(block) = found.superblock else { return Ok(true) };
    let Some(map) = block.map() else { return Ok(false) };
    if block.epoch != 1 || block.current.is_some() {
        return Ok(false);
    }
    let mut page = picaflor_device::AlignedBuf::zeroed(picaflor_format::BLOCK);
    let at = map.journal_page(1);
    read_twice(&*found.device, at, &mut page)
        .map_err(|error| Error::io(format!("{}: reading a page of the journal at {at}", found.place), error))?;
    Ok(page.iter().all(|byte| *byte == 0))
}

/// Reads the identity off the superblocks there are, and puts the volumes in their order; or makes one.
fn identity(found: &mut [Found], options: &Options) -> Result<Identity> {
    let count = found.len() as u32;
    let mut never_committed = found.iter().any(|found| found.superblock.is_none());
    for found in &*found {
        never_committed = never_committed && is_never_committed(found)?;
    }
    if never_committed {
        // A crash came while the store was being made.
        found.iter_mut().for_each(|found| found.superblock = None);
    }
    let known: Vec<Superblock> = found.iter().filter_map(|found| found.superblock).collect();
    let Some(first) = known.first().copied() else {
        let mut random = rand::rng();
        let (store, seed) = match options.seed {
            Some(seed) => (u128::from(seed), seed),
            None => (random.random(), random.random()),
        };
        let (cluster, spread) = (options.cluster, options.spread);
        let (writes_both, may_be_unborn) = (false, false);
        return Ok(Identity { store, seed, cluster, spread, writes_both, epoch: 1, count, lost: 0, may_be_unborn });
    };
    let odd = |why: String| Error::Option { name: "places", why };
    for found in &*found {
        match found.superblock {
            None => {
                return Err(odd(format!(
                    "{} is empty, the others hold a store; give all of its {} places",
                    found.place, first.volume.1
                )));
            }
            Some(block) if block.store != first.store => {
                return Err(odd(format!("{} belongs to another store", found.place)));
            }
            Some(block) if block.volume.1 != count => {
                return Err(odd(format!("{} is one of {} places, {count} were given", found.place, block.volume.1)));
            }
            Some(_) => {}
        }
    }
    found.sort_by_key(|found| found.superblock.map(|block| block.volume.0));
    let spread = match Spread::as_made(first.spread) {
        None if count > 1 => {
            return Err(odd(format!(
                "{} is one of {count} places of an earlier version, in which an object lay on any of them; copy what is to \
                 stay with the version that made it into a store at new places, or remove its places to start empty",
                found[0].place
            )));
        }
        spread => spread.unwrap_or(options.spread),
    };
    let places = found.iter().filter_map(|Found { place, room, superblock, .. }| {
        let block = superblock.as_ref()?;
        Some(Made { place, room: *room, capacity: block.capacity, made_with: block.first_capacity() })
    });
    as_it_was_made((first.made_by(), first.layout, first.mode), places, options)?;
    // A superblock that cannot be read is one ahead at most.
    let doubtful = found.iter().any(|found| found.doubtful);
    let epoch = known.iter().map(|block| block.epoch).max().unwrap_or(0) + 1 + u64::from(doubtful);
    let lost = known.iter().fold(0, |lost, block| lost | block.lost);
    let (store, seed, cluster) = (first.store, first.seed, first.cluster);
    let may_be_unborn = count > 1 && known.iter().all(|block| block.epoch == 1);
    Ok(Identity { store, seed, cluster, spread, writes_both: doubtful, epoch, count, lost, may_be_unborn })
}

type Opening = (String, Arc<dyn Device>, Option<Arc<dyn Folder>>);

fn open_place(place: &Place, options: &Options, created: &mut CreatedFiles) -> Result<Opening> {
    let preset = options.preset.name;
    let wrong = |what: &str| Err(Error::Option { name: "places", why: format!("preset {preset} lies {what}") });
    match (place, options.wants_folder()) {
        (Place::Folder(folder), true) => open_folder(folder.backend(), Arc::clone(folder), options),
        (Place::Path(path), true) => {
            let name = path.display().to_string();
            let folder = RealFolder::open_with(path, options.file_mode);
            let folder = folder.map_err(|error| unopened(path, options, error))?;
            let folder = Arc::new(folder);
            created.folder(&folder);
            open_folder(name, folder, options)
        }
        (Place::Device(_), true) => wrong("in a folder, not on a device"),
        (Place::Folder(_), false) => wrong("on a device, not in a folder"),
        (Place::Device(device), false) => Ok((device.backend(), Arc::clone(device), None)),
        (Place::Path(path), false) => {
            let name = path.display().to_string();
            let each = options.capacity / options.places.len() as u64;
            if !is_there(path) && each != 0 && each < Map::least_capacity(options.cluster) {
                return too_small(&format!("{each} bytes are given for {name}"), options.cluster);
            }
            let device = open_file(path, options).map_err(|error| unopened(path, options, error))?;
            let device = Arc::new(device);
            created.file(&device);
            Ok((name, device, None))
        }
    }
}

/// Opens a folder for the long objects of a place.
fn open_long_files(place: &Place, options: &Options, created: &mut CreatedFiles) -> Result<Arc<dyn Folder>> {
    match place {
        Place::Folder(folder) => Ok(Arc::clone(folder)),
        Place::Path(path) => {
            let folder = RealFolder::open_with(path, options.file_mode);
            let folder = folder.map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
            let folder = Arc::new(folder);
            created.folder(&folder);
            Ok(folder)
        }
        Place::Device(_) => {
            Err(Error::Option { name: "long_files", why: "a device was given: files need a folder".into() })
        }
    }
}

/// Refuses a folder that is not this store's, and a store that was made the other way.
fn check_long_files(found: &Found) -> Result<()> {
    let place = &found.place;
    let wrong = |why: String| Err(Error::Option { name: "long_files", why });
    if let Some(made) = &found.superblock
        && made.long_files != found.long_files.is_some()
    {
        return wrong(match made.long_files {
            true => format!("{place} keeps its long objects as files of a folder: give that folder"),
            false => format!("{place} was made without a folder, and its long objects lie on it: give none"),
        });
    }
    let Some(folder) = &found.long_files else { return Ok(()) };
    let of = || format!("{}, for the long objects of {place}", folder.backend());
    let marked = folder::marked(&**folder).map_err(|error| Error::io(format!("reading {}", of()), error))?;
    match found.superblock.map(|block| (block.store, block.volume.0)) {
        // Before the first commit a crash may leave the name of the opening before.
        Some(owner) if marked.owner != Some(owner) && !is_never_committed(found)? => {
            wrong(format!("{} holds no files of this place: give the folder that it was made with", of()))
        }
        None if marked.files > 0 => wrong(format!("{} holds files already: choose an empty folder", of())),
        _ => Ok(()),
    }
}

/// Why a path was not opened: another preset made what is there, if that is it.
fn unopened(path: &Path, options: &Options, error: std::io::Error) -> Error {
    let name = path.display().to_string();
    match inspect(path) {
        Ok(Inspection::Store(about)) if is_other(about.preset, options) => {
            validate::other_preset(&name, about.preset, options)
        }
        _ => Error::io(format!("opening {name}"), error),
    }
}

/// Whether this preset leaves other bytes than the one that is asked for.
fn is_other(made: &str, options: &Options) -> bool {
    PRESETS.iter().any(|(name, layout)| *name == made && *layout != options.preset.on_device())
}

/// A folder has no blocks: a device in memory, of which nothing but the superblock is ever written, stands for them.
fn open_folder(name: String, folder: Arc<dyn Folder>, options: &Options) -> Result<Opening> {
    let blocks = folder::read_superblocks(&*folder)
        .map_err(|error| Error::io(format!("{name}: reading the superblocks"), error))?;
    let known = blocks.iter().filter_map(|block| Superblock::decode(block).ok()).map(|block| block.capacity).max();
    let asked = if options.capacity == 0 { CAPACITY_DEFAULT } else { options.capacity };
    let capacity = known.unwrap_or(asked).max(Map::least_capacity(options.cluster)).next_multiple_of(4096);
    let device = MemoryDevice::new(capacity);
    for (slot, mut block) in blocks.into_iter().enumerate() {
        block.resize(picaflor_format::BLOCK, 0);
        device.write(Map::superblock(slot as u64), &block).map_err(|error| Error::io(name.clone(), error))?;
    }
    Ok((name, Arc::new(device), Some(folder)))
}

/// Whether there is a file with something in it, or a device.
fn is_there(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.len() > 0 || !meta.is_file())
}

fn open_file(path: &Path, options: &Options) -> std::io::Result<FileDevice> {
    let exists = is_there(path);
    let each = options.capacity / options.places.len() as u64;
    let capacity = match (exists, each) {
        (true, _) => None,
        (false, 0) => Some(CAPACITY_DEFAULT),
        (false, each) => Some(each / 4096 * 4096),
    };
    FileDevice::open(
        path,
        OpenOptions {
            capacity,
            create: !exists && !options.read_only,
            read_only: options.read_only,
            preallocate: options.preallocate,
            mode: options.file_mode,
            ..OpenOptions::default()
        },
    )
}

fn shared(options: Options, epoch: u64) -> Shared {
    let idle = (options.memory / 16).clamp(u64::from(options.cluster) * 2, 8 << 20);
    // Idle buffers, then hints and copies (`write/placement.rs`) and reads in flight.
    let overhead = idle + (options.memory / 32).min(8 << 20);
    let room = options.memory.saturating_sub(overhead);
    let buffers = unwritten_max(&options, lanes(&options)) * options.places.len() as u64;
    let index_max = room.saturating_sub(buffers).min(options.memory / 4 * 3);
    Shared {
        index_max,
        claimed: AtomicU64::new(0),
        preset: options.preset,
        clock: options.clock.clone(),
        counters: Arc::default(),
        memory: Memory::new(options.preset.retention, room),
        groups: Groups::default(),
        pins: Pins::default(),
        pool: BufPool::new(idle as usize),
        budget: Budget::default(),
        index_bytes: Arc::default(),
        buffer_bytes: AtomicU64::new(0),
        overhead,
        generation: AtomicU64::new(epoch << EPOCH_SHIFT),
        last_read: AtomicU64::new(0),
        members: OnceLock::new(),
        leases: Arc::default(),
        beside: Beside::default(),
        stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        options,
    }
}
