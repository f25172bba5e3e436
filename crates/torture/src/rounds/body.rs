//! Bodies that say who they are, so that a torn, a foreign and an old one are told apart.
//!
//! A body is blocks of 16 bytes. Each begins with version and key; the first goes on with the body's length, the others
//! with a number that follows from version, key and place. The metadata says version and key once more.

use bytes::Bytes;

use crate::dice::Dice;

/// Bytes of a block.
const BLOCK: usize = 16;
/// Shortest body, in bytes: one block, which says how long the body is.
pub(super) const SHORTEST: usize = BLOCK;
/// In each block, after version and key.
const MARK: u16 = 0x6b69;

fn block(key: u32, version: u32, len: usize, number: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..4].copy_from_slice(&version.to_le_bytes());
    block[4..6].copy_from_slice(&(key as u16).to_le_bytes());
    block[6..8].copy_from_slice(&MARK.to_le_bytes());
    let rest = match number {
        0 => len as u64,
        _ => Dice::new(u64::from(version) << 32 | u64::from(key), number as u64).roll(),
    };
    block[8..].copy_from_slice(&rest.to_le_bytes());
    block
}

/// The body of a version of a key.
pub(super) fn body(key: u32, version: u32, len: usize) -> Vec<u8> {
    let len = len.max(SHORTEST);
    let mut body = Vec::with_capacity(len + BLOCK);
    for number in 0..len.div_ceil(BLOCK) {
        body.extend_from_slice(&block(key, version, len, number));
    }
    body.truncate(len);
    body
}

/// A version in words: life, number, writer.
pub(super) fn name(version: u32) -> String {
    match version {
        0 => "nothing".into(),
        _ => format!("{}.{}.{}", version >> 20, version >> 5 & 0x7fff, version & 31),
    }
}

/// The metadata of a version of a key.
pub(super) fn metadata(key: u32, version: u32) -> Bytes {
    format!("{key} {version}").into()
}

/// Which version this is.
///
/// # Errors
/// What does not fit, and where: torn, of another version, of another key, or nothing that was ever put.
pub(super) fn version_of(key: u32, metadata: Option<&[u8]>, bytes: &[u8]) -> Result<u32, String> {
    let first = bytes.get(..BLOCK).ok_or_else(|| format!("{} bytes, fewer than any body has", bytes.len()))?;
    let (version, owner) = who(first).ok_or_else(|| format!("a body that begins with {first:02x?}"))?;
    if owner != key as u16 {
        return Err(format!("a body of key {owner}, version {}", name(version)));
    }
    let is = name(version);
    let len = u64::from_le_bytes(std::array::from_fn(|i| first[8 + i]));
    if len != bytes.len() as u64 {
        return Err(format!("version {is} with {} of its {len} bytes", bytes.len()));
    }
    as_is(key, version, bytes.len(), 0, bytes)?;
    match metadata {
        Some(found) if found != self::metadata(key, version) => {
            Err(format!("version {is} with the metadata {:?}", String::from_utf8_lossy(found)))
        }
        _ => Ok(version),
    }
}

/// Which version this part is of, from byte `from` of a body of `len` on. `None` if it holds no whole block, which
/// could say.
///
/// # Errors
/// As [`version_of`].
pub(super) fn version_of_part(key: u32, len: usize, from: usize, bytes: &[u8]) -> Result<Option<u32>, String> {
    let Some(first) = bytes.get(from.next_multiple_of(BLOCK) - from..).and_then(|rest| rest.get(..BLOCK)) else {
        return Ok(None);
    };
    let (version, owner) = who(first).ok_or_else(|| format!("a part from {from} on with {first:02x?}"))?;
    if owner != key as u16 {
        return Err(format!("a part from {from} on of key {owner}, version {}", name(version)));
    }
    as_is(key, version, len, from, bytes).map(|()| Some(version))
}

/// Whether these bytes are those of a version of `len` bytes, from byte `from` on.
fn as_is(key: u32, version: u32, len: usize, from: usize, bytes: &[u8]) -> Result<(), String> {
    let mut at = from;
    while at < from + bytes.len() {
        let end = ((at / BLOCK + 1) * BLOCK).min(from + bytes.len());
        let found = &bytes[at - from..end - from];
        let right = block(key, version, len, at / BLOCK);
        if found != &right[at % BLOCK..at % BLOCK + found.len()] {
            let is = name(version);
            let whose = match who(found).filter(|_| at.is_multiple_of(BLOCK)) {
                Some(found) if found == (version, key as u16) => {
                    "has its own version and key, and belongs elsewhere".into()
                }
                Some((other, owner)) => format!("is of key {owner}, version {}", name(other)),
                None => format!("is {found:02x?}"),
            };
            return Err(format!("version {is}, {len} bytes, of which the block at {at} {whose}"));
        }
        at = end;
    }
    Ok(())
}

/// Version and key of a block, if it is one.
fn who(block: &[u8]) -> Option<(u32, u16)> {
    let (version, key, mark) = (block.get(..4)?, block.get(4..6)?, block.get(6..8)?);
    let key = u16::from_le_bytes([key[0], key[1]]);
    (mark == MARK.to_le_bytes()).then(|| (u32::from_le_bytes(std::array::from_fn(|i| version[i])), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_who_it_is() {
        for len in [16, 17, 31, 32, 1000, 70_000] {
            assert_eq!(version_of(7, Some(b"7 12"), &body(7, 12, len)), Ok(12));
        }
        assert!(version_of(7, Some(b"7 11"), &body(7, 12, 99)).is_err_and(|why| why.contains("metadata")));
    }

    #[test]
    fn a_part_says_who_it_is_wherever_it_begins() {
        let (old, new) = (body(7, 11, 500), body(7, 12, 500));
        for from in [0, 1, 15, 16, 17, 460] {
            assert_eq!(version_of_part(7, 500, from, &new[from..from + 40]), Ok(Some(12)));
        }
        assert_eq!(version_of_part(7, 500, 17, &new[17..47]), Ok(None), "it holds no whole block");
        let mixed = [&new[..256], &old[256..]].concat();
        for (len, from, bytes) in [(500, 16, &old[32..80]), (500, 3, &mixed[3..]), (499, 0, &new[..40])] {
            assert!(version_of_part(7, len, from, bytes).is_err(), "{len} {from}");
        }
        assert!(version_of_part(8, 500, 0, &new).is_err());
    }

    #[test]
    fn torn_foreign_short_and_mixed_bodies_are_told_apart() {
        let (old, new) = (body(7, 11, 500), body(7, 12, 500));
        let why = |bytes: &[u8]| version_of(7, None, bytes).err().unwrap_or_default();
        assert!(why(&body(8, 12, 500)).contains("of key 8, version 0.0.12"));
        assert!(why(&new[..400]).contains("400 of its 500"));
        assert!(why(&[&new[..256], &old[256..]].concat()).contains("block at 256 is of key 7, version 0.0.11"));
        assert!(why(&[&new[..256], &[0; 244]].concat()).contains("block at 256 is [00"));
        let moved = [&new[..32], &new[48..64], &new[32..48], &new[64..]].concat();
        assert!(why(&moved).contains("belongs elsewhere"), "{}", why(&moved));
        assert!(why(b"short").contains("5 bytes"));
    }
}
