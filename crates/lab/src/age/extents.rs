//! Extents: parts of objects on a volume, and what a file system says of a file's.

use std::{fs::File, io};

use fiemap::{Fiemap, FiemapExtentFlags};

/// Bytes that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
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
            Some(last) if last.offset + last.len == found.fe_physical => last.len += len,
            _ => extents.push(Extent { offset: found.fe_physical, len }),
        }
    }
    Ok(Some(extents))
}
