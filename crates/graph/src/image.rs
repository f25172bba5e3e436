//! The image: the records that were in memory at a clean close, side by side, so that the next opening has them with a
//! few long reads where it would make thousands of short ones.
//!
//! Invariants: an image is believed while the settings say so, which they do when all of it is durable; before the
//! first change of an opening they durably say so no longer, whichever version of this program made it. So it is never
//! older than the records it copies. One of another version is not read.

use picaflor::htod::{HashTables, Table};
use picaflor_format::graph::{self, ImageSaid};

use super::{Result, groups::Groups};

/// Bytes of a part, about.
const PART: usize = 512 << 10;
/// Parts that are read or written at a time.
const AT_ONCE: usize = 4;
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
        // What cannot be read may be believed by who can.
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
            for part in self.parts.get_many(&names)? {
                let part = match part {
                    Ok(Some(part)) => part,
                    Ok(None) | Err(picaflor::Error::Damaged { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                };
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
        let parts = self.parts.keys().collect::<picaflor::Result<Vec<_>>>()?;
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
        let (mut items, mut bytes, mut number) = (Vec::new(), 0, 0_u32);
        let put = |number: u32, items: &mut Vec<Vec<u8>>| -> Result<()> {
            self.parts.put(&number.to_le_bytes(), &graph::encode_group(items))?;
            items.clear();
            if (number as usize + 1).is_multiple_of(AT_ONCE) {
                tables.commit()?;
            }
            Ok(())
        };
        for key in groups.cached_keys() {
            let Some(record) = groups.cached(key) else { continue };
            let item = graph::encode_copy(key.into(), &record);
            bytes += item.len() + 4;
            items.push(item);
            if bytes >= PART {
                put(number, &mut items)?;
                (bytes, number) = (0, number + 1);
            }
        }
        if !items.is_empty() {
            put(number, &mut items)?;
            number += 1;
        }
        for old in number..count {
            self.parts.remove(&old.to_le_bytes())?;
        }
        tables.commit()?;
        self.settings.put(NAME, &ImageSaid::new(true, number).encode())?;
        (self.count, self.is_current, self.is_believed) = (Some(number), true, true);
        Ok(tables.commit()?)
    }
}
