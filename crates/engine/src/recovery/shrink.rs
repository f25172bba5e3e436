//! A store that is given fewer bytes than it has. It is opened as it is, on this thread alone; what lies at the end
//! moves or leaves (`background/give_back.rs`); it is closed, its superblock says how large it is, and it is opened
//! again.
//!
//! Invariant: until the superblock says so the store is as large as it was; then nothing leads to where it was larger.
//! Of several places one may be smaller already, where a crash came between.

use std::sync::Arc;

use super::{found::Found, validate};
use crate::{Error, Options, Result, space::LayoutKind, volume::Volume};

/// Of each place the bytes that it is to have, if these are fewer than it has; empty if none is to have fewer.
pub(super) fn fewer(found: &[Found], options: &Options) -> Result<Vec<Option<u64>>> {
    let given = options.capacity / options.places.len() as u64;
    if given == 0 || options.preset.layout != LayoutKind::Ring {
        return Ok(Vec::new());
    }
    let fewer = |found: &Found| {
        let wanted = validate::wanted(given, found.room, options.preset.layout);
        let Some(block) = found.superblock.filter(|block| wanted < block.capacity) else { return Ok(None) };
        validate::map_of(&block.resized(wanted)).map(|_| Some(wanted))
    };
    let fewer: Vec<_> = found.iter().map(fewer).collect::<Result<_>>()?;
    Ok(if fewer.iter().any(Option::is_some) { fewer } else { Vec::new() })
}

/// Gives back what is too much, and closes the volumes, whose opening is over.
///
/// # Errors
/// [`Error::Option`] for the capacity if a store has more than would fit; those of the devices. The store is closed all
/// the same, as large as it was.
pub(crate) fn shrink(volumes: &[Arc<Volume>], fewer: &[Option<u64>]) -> Result<()> {
    let fewer = || volumes.iter().zip(fewer).filter_map(|(volume, fewer)| Some((volume, (*fewer)?)));
    let emptied = fewer().try_for_each(|(volume, capacity)| {
        let map = validate::map_of(&volume.log.superblock().resized(capacity))?;
        volume.room.give_back(map.cluster_count())
    });
    let closed = volumes.iter().fold(emptied, |result, volume| result.and(volume.close()));
    let shrunk = closed.and_then(|()| {
        fewer().try_for_each(|(volume, capacity)| {
            volume.log.write_size(capacity)?;
            let place = &volume.medium.place;
            let shrunk = volume.medium.device.shrink(capacity);
            shrunk.map_err(|error| Error::io(format!("{place}: giving back what is beyond {capacity} bytes"), error))
        })
    });
    volumes.iter().for_each(|volume| volume.medium.device.release());
    shrunk
}
