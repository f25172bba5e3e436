//! The image: the records that were in memory at a clean close, side by side, so that the next opening has them with a
//! few long reads where it would make thousands of short ones.
//!
//! Invariants: an image is believed while the settings say so, which they do when all of it is durable; before the
//! first change of an opening they durably say so no longer. So it is never older than the records it copies.

use picaflor::htod::{HashTables, Table};
use picaflor_format::graph;

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
    /// Parts on the device, believed or not.
    count: u32,
    is_current: bool,
}

impl Image {
    /// Brings what it holds into memory.
    pub(crate) fn open(tables: &HashTables, groups: &Groups) -> Result<Self> {
        let (settings, parts) = (tables.table("settings")?, tables.table("image")?);
        let said = settings.get(NAME)?.and_then(|bytes| graph::decode_image(&bytes).ok());
        let (is_current, count) = said.unwrap_or((false, 0));
        let mut image = Self { settings, parts, count, is_current };
        if is_current && !image.read(groups)? {
            // A copy that is not whole is of no use; what it copies is.
            image.is_current = false;
        }
        Ok(image)
    }

    /// Whether all of it was there.
    fn read(&self, groups: &Groups) -> Result<bool> {
        let numbers: Vec<u32> = (0..self.count).collect();
        for some in numbers.chunks(AT_ONCE) {
            let names: Vec<[u8; 4]> = some.iter().map(|number| number.to_le_bytes()).collect();
            let names: Vec<&[u8]> = names.iter().map(<[u8; 4]>::as_slice).collect();
            for part in self.parts.get_many(&names)? {
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
        if self.is_current {
            self.settings.put(NAME, &graph::encode_image(false, self.count))?;
            tables.commit()?;
            self.is_current = false;
        }
        Ok(())
    }

    /// Writes what is in memory, if what was written is not the same.
    pub(crate) fn write(&mut self, tables: &HashTables, groups: &Groups) -> Result<()> {
        if self.is_current {
            return Ok(());
        }
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
        for old in number..self.count {
            self.parts.remove(&old.to_le_bytes())?;
        }
        tables.commit()?;
        self.settings.put(NAME, &graph::encode_image(true, number))?;
        (self.count, self.is_current) = (number, true);
        Ok(tables.commit()?)
    }
}
