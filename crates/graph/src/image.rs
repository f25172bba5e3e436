//! The image: the records that were in memory at a clean close, side by side and deflated, so that the next opening has
//! them with a few long reads where it would make thousands of short ones. Names, most of it, have much in common.
//!
//! Invariants: an image is believed while the settings say so, which they do when all of it is durable; before the
//! first change of an opening they durably say so no longer, whichever version of this program made it. So it is never
//! older than the records it copies. One of another version is not read.

use std::{
    io::{Read as _, Write as _},
    panic::resume_unwind,
    thread,
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use picaflor_format::graph::{self, ImageSaid};
use picaflor_table::htod::{HashTables, Table};

use crate::{base::Result, groups::Groups};

/// Bytes of a part, about, before it is deflated.
const PART: usize = 1 << 20;
/// Parts that are read or written at a time.
const AT_ONCE: usize = 8;
/// Where the settings say whether there is one, and of how many parts.
const NAME: &[u8] = b"image";

pub(crate) struct Image {
    settings: Table,
    parts: Table,
    /// Parts on the device, believed or not; unknown of another version's.
    count: Option<u32>,
    is_current: bool,
    /// What the settings say must be taken back before anything is changed.
    is_believed: bool,
}

impl Image {
    /// Brings what it holds into memory.
    pub(crate) fn open(tables: &HashTables, groups: &Groups) -> Result<Self> {
        let (settings, parts) = (tables.table("settings")?, tables.table("image")?);
        let mut image = Self { settings, parts, count: Some(0), is_current: false, is_believed: false };
        let Some(bytes) = image.settings.get(NAME)? else { return Ok(image) };
        // What cannot be read here may be read elsewhere.
        image.is_believed = bytes.first() != Some(&0);
        let said = ImageSaid::decode(&bytes).ok().filter(|said| said.version == graph::IMAGE);
        image.count = said.map(|said| said.parts);
        image.is_current = said.is_some_and(|said| said.is_believed);
        if image.is_current && !image.read(groups)? {
            // A copy that is not whole is of no use; what it copies is.
            image.is_current = false;
        }
        Ok(image)
    }

    /// Whether all of it was there.
    fn read(&self, groups: &Groups) -> Result<bool> {
        let numbers: Vec<u32> = (0..self.count.unwrap_or(0)).collect();
        for some in numbers.chunks(AT_ONCE) {
            let names: Vec<[u8; 4]> = some.iter().map(|number| number.to_le_bytes()).collect();
            let names: Vec<&[u8]> = names.iter().map(<[u8; 4]>::as_slice).collect();
            let mut parts = Vec::with_capacity(some.len());
            for part in self.parts.get_many(&names)? {
                match part {
                    Ok(Some(part)) => parts.push(part),
                    Ok(None) | Err(picaflor_table::Error::Damaged { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            for part in by_two(&parts, |part| inflate(part)) {
                let Some(part) = part else { return Ok(false) };
                let Ok(count) = graph::items(&part) else { return Ok(false) };
                for place in 0..count {
                    let Ok((key, record)) = graph::item(&part, place).and_then(graph::decode_copy) else {
                        return Ok(false);
                    };
                    groups.remember(key.into(), record);
                }
            }
        }
        Ok(true)
    }

    /// The records are about to be changed.
    pub(crate) fn outdate(&mut self, tables: &HashTables) -> Result<()> {
        if self.is_believed {
            let Some(count) = self.count else { return self.discard(tables) };
            self.settings.put(NAME, &ImageSaid::new(false, count).encode())?;
            tables.commit()?;
            (self.is_current, self.is_believed) = (false, false);
        }
        Ok(())
    }

    /// Drops what another version left: first what says that it is there.
    fn discard(&mut self, tables: &HashTables) -> Result<()> {
        self.settings.remove(NAME)?;
        tables.commit()?;
        (self.is_current, self.is_believed) = (false, false);
        let parts = self.parts.keys().collect::<picaflor_table::Result<Vec<_>>>()?;
        parts.iter().try_for_each(|part| self.parts.remove(part).map(drop))?;
        self.count = Some(0);
        Ok(tables.commit()?)
    }

    /// Writes what is in memory, if what was written is not the same.
    pub(crate) fn write(&mut self, tables: &HashTables, groups: &Groups) -> Result<()> {
        if self.is_current {
            return Ok(());
        }
        let Some(count) = self.count else {
            self.discard(tables)?;
            return self.write(tables, groups);
        };
        let (mut parts, mut items, mut bytes, mut number) = (Vec::new(), Vec::new(), 0, 0_u32);
        let mut put = |parts: &mut Vec<Vec<u8>>| -> Result<()> {
            for part in by_two(parts, |part| deflate(part)) {
                self.parts.put(&number.to_le_bytes(), &part)?;
                number += 1;
            }
            parts.clear();
            Ok(tables.commit()?)
        };
        for key in groups.cached_keys() {
            let Some(record) = groups.cached(key) else { continue };
            let item = graph::encode_copy(key.into(), &record);
            bytes += item.len() + 4;
            items.push(item);
            if bytes >= PART {
                parts.push(graph::encode_group(&items));
                (bytes, items) = (0, Vec::new());
            }
            if parts.len() == AT_ONCE {
                put(&mut parts)?;
            }
        }
        if !items.is_empty() {
            parts.push(graph::encode_group(&items));
        }
        put(&mut parts)?;
        for old in number..count {
            self.parts.remove(&old.to_le_bytes())?;
        }
        tables.commit()?;
        self.settings.put(NAME, &ImageSaid::new(true, number).encode())?;
        (self.count, self.is_current, self.is_believed) = (Some(number), true, true);
        Ok(tables.commit()?)
    }
}

/// What `work` makes of each, on two processors.
fn by_two<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (near, far) = items.split_at(items.len().div_ceil(2));
    let all = |items: &[T]| items.iter().map(&work).collect::<Vec<R>>();
    thread::scope(|scope| {
        // Without another thread this one does it all.
        let other = thread::Builder::new().spawn_scoped(scope, || all(far));
        let mut done = all(near);
        done.extend(match other {
            Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => all(far),
        });
        done
    })
}

/// A group as a part: its length 4, then DEFLATE.
fn deflate(group: &[u8]) -> Vec<u8> {
    let mut out = DeflateEncoder::new((group.len() as u32).to_le_bytes().to_vec(), Compression::fast());
    // Writing to memory does not fail.
    out.write_all(group).and_then(|()| out.finish()).unwrap_or_default()
}

/// The group of a part, if it is one.
fn inflate(part: &[u8]) -> Option<Vec<u8>> {
    let (len, body) = part.split_first_chunk::<4>()?;
    let len = u64::from(u32::from_le_bytes(*len));
    let mut group = Vec::with_capacity(len.min(2 * PART as u64) as usize);
    let read = DeflateDecoder::new(body).take(len + 1).read_to_end(&mut group);
    (read.ok()? as u64 == len).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_small_and_come_back_and_what_is_none_is_refused() {
        let name = |number: usize| format!("/results/athletics/event-{number:07}/index.html").into_bytes();
        let group = graph::encode_group(&(0..1000).map(name).collect::<Vec<_>>());
        let part = deflate(&group);
        assert!(part.len() * 3 < group.len(), "{} of {}", part.len(), group.len());
        assert_eq!(inflate(&part).as_ref(), Some(&group));
        let longer = [&(group.len() as u32 + 1).to_le_bytes()[..], &part[4..]].concat();
        let shorter = [&(group.len() as u32 - 1).to_le_bytes()[..], &part[4..]].concat();
        for wrong in [&part[..part.len() / 2], &part[..3], &longer, &shorter, &group] {
            assert_eq!(inflate(wrong), None);
        }
        // A block that is stored as it is: these bytes are read for as long as there is this version.
        let stored = [3, 0, 0, 0, 1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
        assert_eq!(inflate(&stored).as_deref(), Some(&b"abc"[..]));
        assert_eq!(by_two(&[1, 2, 3], |one| one * 2), [2, 4, 6]);
        assert_eq!(by_two(&[], |one: &u8| *one), [] as [u8; 0]);
    }
}
