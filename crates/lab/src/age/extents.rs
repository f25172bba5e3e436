//! Extents: parts of objects on a volume, and what a file system says of a file's.

use std::{fs::File, io};

use fiemap::{Fiemap, FiemapExtentFlags};

/// Bytes that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Bytes between two parts that one read passes over: a header or a table of a store parts nothing.
pub(super) const BLOCK: u64 = 4 << 10;

/// Parts of an object in its order, those joined that have less than a [`BLOCK`] between them.
pub(super) fn joined(parts: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for part in parts {
        match extents.last_mut() {
            Some(last) if part.offset.checked_sub(last.end()).is_some_and(|gap| gap < BLOCK) => {
                last.len = part.end() - last.offset;
            }
            _ => extents.push(part),
        }
    }
    extents
}

/// Where a file lies, by the file system's word (FIEMAP). What lies side by side is one extent, however many the file
/// system counts: ext4 ends one at 128 MiB. `None` if the file system does not say, or not yet.
pub(super) fn of_file(file: &File) -> io::Result<Option<Vec<Extent>>> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut left = file.metadata()?.len();
    for found in Fiemap::new(file) {
        let found = match found {
            // EOPNOTSUPP and ENOTTY: tmpfs, overlays, network file systems.
            Err(e) if matches!(e.raw_os_error(), Some(95 | 25)) => return Ok(None),
            found => found?,
        };
        if found.fe_flags.intersects(FiemapExtentFlags::UNKNOWN | FiemapExtentFlags::ENCODED) {
            return Ok(None);
        }
        // Allocated beyond the end of what was written.
        let len = found.fe_length.min(left);
        left -= len;
        match extents.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.end() == found.fe_physical => last.len += len,
            _ => extents.push(Extent { offset: found.fe_physical, len }),
        }
    }
    Ok(Some(extents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_read_passes_over_parts_nothing() {
        let part = |offset, len| Extent { offset, len };
        let parts = [part(0, 1000), part(1100, 900), part(6096, 10), part(6000, 50)];
        assert_eq!(joined(parts), [part(0, 2000), part(6096, 10), part(6000, 50)]);
    }
}
