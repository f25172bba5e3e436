//! What a store keeps in hash tables on disk, where its preset's layout is blocks: names of the tables, and the values
//! that are no frames.
//!
//! ```text
//! objects  key                   -> frame, whole or manifest
//! chunks   chunk key             -> frame, chunk
//! large    id of a manifest 8    -> key of the large object
//! groups   number 4              -> priority 1 | interval 4
//! ```
//!
//! A value needs no checksum of its own: the block around its entry has one.

use crate::{
    Corrupt,
    codec::{put, u32_at, u64_at},
    journal::Group,
};

/// The table of objects.
pub const OBJECTS: &str = "objects";
/// The table of pieces of large objects.
pub const CHUNKS: &str = "chunks";
/// The table of large objects, by the ids of their manifests: written before the first chunk, removed after the last.
pub const LARGE: &str = "large";
/// The table of settings of groups.
pub const GROUPS: &str = "groups";

/// The key of a large object in [`LARGE`].
#[must_use]
pub fn large_key(id: u64) -> [u8; 8] {
    id.to_le_bytes()
}

/// The id that a key of [`LARGE`] is.
///
/// # Errors
/// [`Corrupt::Short`] for another length.
pub fn large_id(key: &[u8]) -> Result<u64, Corrupt> {
    if key.len() == 8 { Ok(u64_at(key, 0)) } else { Err(Corrupt::Short) }
}

/// Key and value of a group's settings in [`GROUPS`].
#[must_use]
pub fn encode_group(group: &Group) -> ([u8; 4], [u8; 5]) {
    let mut value = [0; 5];
    value[0] = group.priority;
    put(&mut value, 1, group.interval.to_le_bytes());
    (group.id.to_le_bytes(), value)
}

/// Reads them back.
///
/// # Errors
/// [`Corrupt`] for other lengths, or a priority that there is not.
pub fn decode_group(key: &[u8], value: &[u8]) -> Result<Group, Corrupt> {
    if key.len() != 4 || value.len() != 5 {
        return Err(Corrupt::Short);
    }
    if value[0] > 2 {
        return Err(Corrupt::Field("priority"));
    }
    Ok(Group { id: u32_at(key, 0), priority: value[0], interval: u32_at(value, 1), page: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let group = Group { id: 9, priority: 2, interval: 70_000, page: 0 };
        let (key, value) = encode_group(&group);
        assert_eq!(decode_group(&key, &value), Ok(group));
        assert_eq!(large_id(&large_key(1 << 50)), Ok(1 << 50));
        assert_eq!(decode_group(&key, &[3, 0, 0, 0, 0]), Err(Corrupt::Field("priority")));
        assert!(decode_group(&key, &[]).is_err() && decode_group(&[], &value).is_err() && large_id(&[1]).is_err());
    }
}
