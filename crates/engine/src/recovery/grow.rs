//! A store that is given more bytes than it has, where it is opened or while it is at work.
//!
//! 1. The places are made longer, durably.
//! 2. Their superblocks say so: both of the two, for neither must say alone how large a place is.
//! 3. The clusters that came are free.
//!
//! Invariants: nothing is written there before a superblock says so, and what is left of a place by a growth that fails
//! is a longer file; a cluster is granted only when all that has a value for it is long enough.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use picaflor_format::superblock::Superblock;

use super::{
    found::Found,
    validate::{self, Made, as_it_was_made},
};
use crate::{Error, Options, Result, shared::Shared, space::LayoutKind, volume::Volume};

/// A place that grows: as its superblock is to be, and the clusters that it has then.
struct Growing {
    number: usize,
    block: Superblock,
    clusters: u32,
}

/// Those of the places that are given more than they have: names, most bytes that they may have, and superblocks.
fn growing<'a>(places: impl Iterator<Item = (&'a str, u64, Superblock)>, options: &Options) -> Result<Vec<Growing>> {
    let (given, layout) = (options.capacity / options.places.len() as u64, options.preset.layout);
    let (counted, mut growing) = (AtomicU64::new(0), Vec::new());
    for (number, (place, room, mut block)) in places.enumerate() {
        let wanted = validate::wanted(given, room, layout);
        let grows = wanted > block.capacity;
        if grows {
            block = block.resized(wanted);
        }
        let clusters = validate::map_of(&block)?.cluster_count();
        validate::foresee_tables(options, &counted, place, block.segment_bits, clusters)?;
        if grows {
            growing.push(Growing { number, block, clusters });
        }
    }
    Ok(growing)
}

/// Gives places that are there the bytes that are given for them, where these are more; says whether any were.
pub(super) fn grow(found: &mut [Found], options: &Options) -> Result<bool> {
    if options.capacity == 0 || options.preset.layout != LayoutKind::Ring {
        return Ok(false);
    }
    // A new one is as large as it is to be.
    let made = found.iter().filter_map(|found| Some((&found.place[..], found.room, found.superblock?)));
    let growing = growing(made, options)?;
    for Growing { number, block, .. } in &growing {
        let found = &mut found[*number];
        let grown = found.device.grow(block.capacity);
        grown.map_err(|error| not_given(&found.place, block, error))?;
        found.superblock = Some(*block);
    }
    Ok(!growing.is_empty())
}

/// The same of volumes at work. Not by two threads at a time.
///
/// # Errors
/// [`Error::Option`] for a capacity that they cannot have, [`Error::Io`] where there is no room for it: what has not
/// grown goes on as it is. The failure that stopped a volume.
pub(crate) fn grow_at_work(shared: &Shared, volumes: &[Arc<Volume>], capacity: u64) -> Result<()> {
    let mut options = shared.options.clone();
    options.capacity = capacity;
    let blocks: Vec<_> = volumes.iter().map(|volume| volume.log.superblock()).collect();
    let places =
        || volumes.iter().zip(&blocks).map(|(volume, block)| (&*volume.medium.place, volume.medium.room, *block));
    let made = places().map(|(place, room, block)| Made {
        place,
        room,
        capacity: block.capacity,
        made_with: block.first_capacity(),
    });
    let Some(first) = blocks.first().filter(|_| options.preset.layout == LayoutKind::Ring) else {
        let why = format!("a store of preset {} keeps its size", options.preset.name);
        return Err(Error::Option { name: "capacity", why });
    };
    let each = capacity / volumes.len() as u64;
    if let Some((place, _, block)) = places()
        .find(|(_, room, block)| each > 0 && validate::wanted(each, *room, options.preset.layout) < block.capacity)
    {
        let why = format!(
            "{place} has {} bytes, and {each} are given for it: it gives back what is more where it is opened with fewer",
            block.capacity
        );
        return Err(Error::Option { name: "capacity", why });
    }
    as_it_was_made((first.made_by(), first.layout, first.mode), made, &options)?;
    let failure = volumes.iter().find_map(|volume| volume.log.commits.failure());
    failure.map_or(Ok(()), Err)?;
    for Growing { number, block, clusters } in growing(places(), &options)? {
        let Volume { medium, log, residents, space, .. } = &*volumes[number];
        medium.device.grow(block.capacity).map_err(|error| not_given(&medium.place, &block, error))?;
        log.write_size(block.capacity)?;
        let by = clusters - medium.map().cluster_count();
        shared.index_bytes.fetch_add(u64::from(by) * validate::bytes_per_cluster(&options), Relaxed);
        residents.classes.lengthen(by, Default::default);
        residents.pages.lengthen(by);
        medium.clusters.store(clusters, Relaxed);
        space.end().lengthen(by);
    }
    Ok(())
}

fn not_given(place: &str, block: &Superblock, error: std::io::Error) -> Error {
    Error::io(format!("{place}: giving it {} bytes", block.capacity), error)
}
