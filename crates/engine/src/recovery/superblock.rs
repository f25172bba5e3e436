//! Telling a store from a blank place, and both from a store that lost its superblocks.
//!
//! Invariants: what is not blank and has no superblock is refused, never made anew.

use std::io;

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::{
    BLOCK, Corrupt, has_remains,
    superblock::Superblock,
    zone::{BEGINNING, CLUSTER_MIN, Map},
};

use super::found::too_small;
use crate::{Error, Options, Result, base::medium::read_twice};

/// Reads the newer intact superblock, and whether the other one is intact too; `None` if the place is blank and was no
/// store before.
pub(super) fn read_superblock(
    place: &str,
    device: &dyn Device,
    options: &Options,
) -> Result<Option<(Superblock, bool)>> {
    let damaged = |why: String, mend: &str| Error::Damaged { place: place.into(), why, mend: mend.into() };
    if device.block_size() > BLOCK {
        let why = format!("{place} has blocks of {} bytes, more than {BLOCK}", device.block_size());
        return Err(Error::Option { name: "places", why });
    }
    let has = || format!("{place} has {} bytes", device.capacity());
    if device.capacity() < Map::least_capacity(CLUSTER_MIN) {
        return too_small(&has(), CLUSTER_MIN);
    }
    let mut newest: Option<Superblock> = None;
    let mut intact = 0;
    let mut blank = true;
    let mut unread = None;
    let mut why = Corrupt::Magic;
    for slot in 0..2 {
        let mut block = AlignedBuf::zeroed(BLOCK);
        if let Err(error) = read_twice(device, Map::superblock(slot), &mut block) {
            let at = Map::superblock(slot);
            unread = Some(Error::io(format!("{place}: reading the superblock at {at}"), error));
            continue;
        }
        blank &= block.iter().all(|byte| *byte == 0);
        match Superblock::decode(&block) {
            Ok(found) => {
                intact += 1;
                newest = newest.filter(|known| known.seq >= found.seq).or(Some(found));
            }
            Err(found) => why = found,
        }
    }
    // One of the two is enough, whatever became of the other.
    let version = if let Corrupt::Version(found) = why { Some(found) } else { None };
    match (newest, version) {
        (Some(found), _) if found.capacity > device.capacity() => Err(damaged(
            format!("it had {} bytes and now has {}", found.capacity, device.capacity()),
            "restore the file's length, or remove it to start empty",
        )),
        (Some(found), _) => Ok(Some((found, intact == 2))),
        (None, _) if unread.is_some() => Err(unread.unwrap_or(Error::Closed)),
        (None, Some(found)) => Err(Error::Version { place: place.into(), found, supported: picaflor_format::VERSION }),
        (None, None) if blank => {
            // No place is so small that this is more than all of it.
            let mut beginning = AlignedBuf::zeroed(BEGINNING.len as usize);
            read_twice(device, 0, &mut beginning)
                .map_err(|error| Error::io(format!("{place}: reading its beginning"), error))?;
            if has_remains(&beginning) {
                Err(lost_superblocks(place))
            } else if device.capacity() < Map::least_capacity(options.cluster) {
                too_small(&has(), options.cluster)
            } else if options.read_only {
                Err(damaged("there is no store here".into(), "open it for writing once to make one"))
            } else {
                Ok(None)
            }
        }
        (None, None) => Err(damaged(
            format!("no superblock could be read ({why}), and it is not blank"),
            "it may hold something else: choose another place, or clear its first 256 KiB to start empty",
        )),
    }
}

/// Writes the superblock where its number says, durably.
///
/// # Errors
/// Those of the device.
pub fn write_superblock(device: &dyn Device, block: &Superblock) -> io::Result<()> {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    block.encode(&mut buf);
    device.write(Map::superblock(block.seq), &buf)?;
    device.sync()
}

/// The superblocks are blank, and there was a store.
pub(crate) fn lost_superblocks(place: &str) -> Error {
    Error::Damaged {
        place: place.into(),
        why: "both superblocks are blank, and behind them are the remains of a store".into(),
        mend: "restore it from a copy; to give up what is in it and start empty, remove the file or clear its first 256 KiB"
            .into(),
    }
}
