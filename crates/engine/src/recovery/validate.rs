//! What an opening refuses of its options, of the sizes that its places have, and of how they were made; asked by every
//! opening, and by [`crate::Options::check`] without one.

use std::{
    os::unix::fs::FileTypeExt,
    sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
};

use picaflor_format::{
    BLOCK,
    superblock::{Layout as OnDevice, Superblock, THRESHOLD_MAX},
    zone::{CLUSTER_MAX, CLUSTER_MIN, IN_PLACE_MAX, Map},
};

use super::found::too_small;
use crate::{
    About, Error, Mode, Options, Place, Result,
    base::policy::Eviction,
    base::policy::Persistence,
    cache::large::Large,
    cache::pages::Pages,
    index::{GRAINS_MAX, Index},
    space::{LayoutKind, Space},
};

/// Capacity of a store whose place does not exist yet and whose options do not say.
pub(super) const CAPACITY_DEFAULT: u64 = 1 << 30;
/// Least memory a store can work with, in clusters: open, in flight, and a little to read with.
const MEMORY_CLUSTERS_MIN: u64 = 16;
/// The same for each of several places: half of it is for buffers that are open or in flight.
const MEMORY_CLUSTERS_EACH: u64 = 8;

/// How many times the bytes that it was made with a store may have: its journal and the parts of its index stay as many
/// as they are.
const GROWTH_MAX: u64 = 8;

/// A superblock has a bit for each.
const PLACES_MAX: usize = u64::BITS as usize;

impl Options {
    /// Refuses what an opening would refuse of these options and of how its places were made, without touching them.
    /// `made`: what [`inspect`](crate::inspect()) found there; nothing where a store is to be made.
    ///
    /// # Errors
    /// [`crate::Error::Option`], as [`Store::open`](crate::Store::open).
    pub fn check(&self, made: &[About]) -> Result<()> {
        judge(self, made)
    }
}

/// Refuses what an opening would. `made`: what is at the places; nothing where they are to be made.
fn judge(options: &Options, made: &[About]) -> Result<()> {
    let mut options = options.clone();
    if let Some(first) = made.first().filter(|_| !options.preset_given) {
        options.take(options.rows.named(first.preset)?);
    }
    check(&options)?;
    options.mode = options.preset.mode(options.mode);
    if let Some(first) = made.first() {
        let preset = options.rows.named(first.preset)?;
        let places = made.iter().zip(&options.places).map(|(about, place)| Made {
            place: &about.place,
            capacity: about.capacity,
            made_with: about.made_with,
            room: room(place, about.capacity),
        });
        as_it_was_made((preset.name, preset.on_device(), first.mode as u32), places, &options)?;
        options.cluster = first.cluster;
    }
    check_memory(&options)?;
    let layout = options.preset.layout;
    let each = options.capacity / options.places.len() as u64;
    let counted = AtomicU64::new(0);
    for (number, place) in options.places.iter().enumerate() {
        let (name, capacity) = match (made.get(number), place) {
            (Some(about), _) => {
                let given = wanted(each, room(place, about.capacity), layout);
                (about.place.clone(), if each == 0 { about.capacity } else { given })
            }
            (None, Place::Device(device)) => {
                (device.backend(), if each == 0 { u64::MAX } else { each }.min(device.capacity()))
            }
            (None, Place::Folder(folder)) => (folder.backend(), if each == 0 { CAPACITY_DEFAULT } else { each }),
            (None, Place::Path(path)) => (path.display().to_string(), if each == 0 { CAPACITY_DEFAULT } else { each }),
        };
        let least = Map::least_capacity(options.cluster);
        if capacity < least {
            return too_small(&format!("{capacity} bytes are given for {name}"), options.cluster);
        }
        if matches!(layout, LayoutKind::Other(_)) {
            continue;
        }
        let capacity = capacity_within(capacity, layout);
        let bits = Index::segment_bits(capacity, options.memory / options.places.len() as u64);
        let bits = made.get(number).map_or(bits, |about| about.segment_bits);
        let made_with = made.get(number).map_or(capacity, |about| about.made_with);
        let map = Map::grown(made_with, capacity, options.cluster);
        let clusters = map.ok_or_else(|| no_map(capacity, options.cluster))?.cluster_count();
        foresee_tables(&options, &counted, &name, bits, clusters)?;
    }
    Ok(())
}

/// What of so many bytes a new place uses.
pub(super) fn capacity_within(bytes: u64, layout: LayoutKind) -> u64 {
    // The largest device that 36-bit addresses reach.
    let address_limit = GRAINS_MAX * picaflor_format::frame::GRAIN as u64;
    let most = match layout {
        LayoutKind::Ring => address_limit,
        LayoutKind::Other(_) => u64::MAX,
        LayoutKind::Places(_) => IN_PLACE_MAX.min(address_limit),
    };
    bytes.min(most) / BLOCK as u64 * BLOCK as u64
}

/// Where everything lies on a volume.
pub(super) fn map_of(block: &Superblock) -> Result<Map> {
    block.map().ok_or_else(|| no_map(block.capacity, block.cluster))
}

fn no_map(capacity: u64, cluster: u32) -> Error {
    let why = format!("{capacity} bytes are too few, or too many, for clusters of {cluster} bytes");
    Error::Option { name: "capacity", why }
}

/// Counts the memory of what has a row for every cluster. Refuses a device that is too large for the memory.
pub(super) fn count_tables(
    options: &Options,
    counted: &AtomicU64,
    place: &str,
    segment_bits: u32,
    clusters: u32,
) -> Result<()> {
    let places = if options.preset.has_places() { Space::BYTES_OF_PLACES } else { 0 };
    let tables = places + u64::from(clusters) * bytes_per_cluster(options);
    let before = counted.fetch_add(tables, Relaxed);
    let least = before + tables + Index::least_bytes(segment_bits);
    if least > options.memory / 2 {
        let why = format!(
            "{} bytes; {place} needs {least} for its tables alone, and they may take half: give more, or make the store \
             anew with larger clusters",
            options.memory
        );
        return Err(Error::Option { name: "memory", why });
    }
    Ok(())
}

/// Memory that the values take which there are of each cluster.
pub(super) fn bytes_per_cluster(options: &Options) -> u64 {
    let each = match options.preset.eviction(options.mode) {
        Eviction::LruCluster => Space::BYTES_PER_USED_CLUSTER,
        Eviction::S3Fifo => Space::BYTES_PER_QUEUED_CLUSTER,
        _ => Space::BYTES_PER_CLUSTER,
    };
    let each = each + if options.preset.has_pages() { Pages::BYTES_PER_CLUSTER } else { 0 };
    let goes_by_index = options.mode == Mode::Cache && !options.preset.has_places();
    let each = each + if goes_by_index { Large::BYTES_PER_CLUSTER } else { 0 };
    let each = each + if options.cluster_age.limit().is_some() { Space::BYTES_PER_AGING_CLUSTER } else { 0 };
    each + size_of::<AtomicU16>() as u64
}

/// As [`count_tables`], where there is no index yet that counts itself.
pub(super) fn foresee_tables(
    options: &Options,
    counted: &AtomicU64,
    place: &str,
    segment_bits: u32,
    clusters: u32,
) -> Result<()> {
    count_tables(options, counted, place, segment_bits, clusters)?;
    counted.fetch_add(Index::empty_bytes(segment_bits), Relaxed);
    Ok(())
}

/// A place of a store that is there.
pub(super) struct Made<'a> {
    pub(super) place: &'a str,
    /// Bytes of it that are in use.
    pub(super) capacity: u64,
    /// Bytes that it was made with.
    pub(super) made_with: u64,
    /// Most bytes that it could be made with now.
    pub(super) room: u64,
}

/// Most bytes that a store made at this place could have: a device has so many, and a file is made as long as it is to
/// be.
pub(super) fn room(place: &Place, device: u64) -> u64 {
    let is_device = match place {
        Place::Path(path) => path.metadata().is_ok_and(|about| about.file_type().is_block_device()),
        Place::Device(_) => true,
        Place::Folder(_) => false,
    };
    if is_device { device } else { u64::MAX }
}

/// Bytes that a place has of those that are given for it, if it may have so many.
pub(super) fn wanted(given: u64, room: u64, layout: LayoutKind) -> u64 {
    capacity_within(given.min(room), layout)
}

/// What is fixed when a store is made is not asked for otherwise: its layout and its mode. Its places may have more
/// bytes or fewer where it lies in clusters.
pub(super) fn as_it_was_made<'a>(
    (made, layout, mode): (&str, OnDevice, u32),
    places: impl Iterator<Item = Made<'a>>,
    options: &Options,
) -> Result<()> {
    let wrong = |name, why: String| Err(Error::Option { name, why });
    if layout != options.preset.on_device() {
        let places: Vec<&str> = places.map(|made| made.place).collect();
        return Err(other_preset(&places.join(" + "), made, options));
    }
    if mode != options.mode as u32 {
        let why = match options.mode {
            Mode::Cache => "this place was made as a store, whose objects a cache would evict; open it in store mode",
            Mode::Store => {
                "this place was made as a cache, and may have evicted what it was given; open it in cache mode"
            }
        };
        return wrong("mode", why.into());
    }
    let given = options.capacity / options.places.len() as u64;
    if given == 0 {
        return Ok(());
    }
    for Made { place, capacity, made_with, room } in places {
        let wanted = wanted(given, room, options.preset.layout);
        let why = if capacity <= given && capacity >= wanted {
            continue;
        } else if options.preset.layout != LayoutKind::Ring {
            format!("of preset {made} it keeps its size")
        } else if options.read_only {
            "it changes where it is opened for writing".to_owned()
        } else if wanted / GROWTH_MAX > made_with {
            format!("it may grow to {GROWTH_MAX} times the {made_with} that it was made with")
        } else {
            continue;
        };
        let other = if capacity > given { "smaller" } else { "larger" };
        let why = format!(
            "{place} has {capacity} bytes, and {given} are given for it; {why}: give as many or none, or make a {other} one \
             at a new place, and copy to it what is to stay"
        );
        return wrong("capacity", why);
    }
    Ok(())
}

/// A place whose bytes the preset that was asked for cannot read.
pub(super) fn other_preset(place: &str, made: &str, options: &Options) -> Error {
    let known = options.rows.named(made).is_ok();
    let how = if known { "without a preset, or with" } else { "by a program with picaflor-literature, as" };
    let why = format!(
        "{place} was made with preset {made}, and {} lays objects otherwise: open it {how} {made}; or make a new store \
         at another place",
        options.preset.name
    );
    Error::Option { name: "preset", why }
}

/// What needs no place to be seen.
pub(super) fn check(options: &Options) -> Result<()> {
    let wrong = |name, why: String| Err(Error::Option { name, why });
    if options.places.is_empty() {
        return wrong("places", "at least one path or device is needed".into());
    }
    if options.places.len() > PLACES_MAX {
        return wrong("places", format!("{} were given; {PLACES_MAX} are the most", options.places.len()));
    }
    if !options.cluster.is_power_of_two() || !(CLUSTER_MIN..=CLUSTER_MAX).contains(&options.cluster) {
        return wrong("cluster", format!("{} is not a power of two from 16 KiB to 4 MiB", options.cluster));
    }
    if options.open_buffers == 0 {
        return wrong("open_buffers", "at least one is needed".into());
    }
    if options.preset.persistence != Persistence::JournalAndCheckpoint && options.places.len() > 1 {
        // What leaves one volume is told to the others by its log, and there is none.
        let why = format!("preset {} lies at one place, {} were given", options.preset.name, options.places.len());
        return wrong("places", why);
    }
    if options.file_mode & !0o777 != 0 || options.file_mode & 0o600 != 0o600 {
        let why = format!("{:o} is none of 600 to 777 in which the owner may read and write", options.file_mode);
        return wrong("file_mode", why);
    }
    if options.threshold == 0 || options.threshold > THRESHOLD_MAX {
        return wrong("threshold", format!("{} blocks; it is from 1 to {THRESHOLD_MAX}", options.threshold));
    }
    let (folders, places) = (options.long_files.len(), options.places.len());
    if folders > 0 && !options.takes_long_files() {
        let why = format!(
            "preset {} keeps no long objects in files of their own: leave it out, or choose buddy",
            options.preset.name
        );
        return wrong("long_files", why);
    }
    if folders > 0 && folders != places {
        return wrong("long_files", format!("{folders} folders for {places} places: give one for each, or none"));
    }
    if options.read_batch == 0 {
        return wrong("read_batch", "at least one read makes a batch".into());
    }
    if options.cluster_age.limit().is_some()
        && (options.mode == Mode::Store || options.preset.layout != LayoutKind::Ring)
    {
        let why = "clusters leave by age where a cache lies in clusters; a store keeps what it is given".into();
        return wrong("cluster_age", why);
    }
    let each = options.capacity / options.places.len() as u64;
    if options.capacity != 0 && each < Map::least_capacity(CLUSTER_MIN) {
        return too_small(&format!("{each} bytes a place are given"), CLUSTER_MIN);
    }
    Ok(())
}

pub(super) fn check_memory(options: &Options) -> Result<()> {
    let places = options.places.len() as u64;
    let least = u64::from(options.cluster) * MEMORY_CLUSTERS_MIN.max(MEMORY_CLUSTERS_EACH * places);
    if options.memory < least {
        let why = format!(
            "{} bytes; the least for clusters of {} bytes in {places} places is {least}",
            options.memory, options.cluster
        );
        return Err(Error::Option { name: "memory", why });
    }
    Ok(())
}
