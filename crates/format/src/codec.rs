//! Fixed-offset little-endian fields and the one way records are sealed with a checksum.

use crc_fast::CrcAlgorithm;

use crate::Corrupt;

const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// CRC-32C of some bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CRC32C, bytes) as u32
}

/// CRC-32C of several runs of bytes, one after the other.
pub(crate) fn crc_of(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(CRC32C);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

pub(crate) fn put<const N: usize>(buf: &mut [u8], at: usize, bytes: [u8; N]) {
    buf[at..at + N].copy_from_slice(&bytes);
}

fn take<const N: usize>(buf: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&buf[at..at + N]);
    out
}

pub(crate) fn u16_at(buf: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(buf, at))
}

pub(crate) fn u32_at(buf: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(buf, at))
}

pub(crate) fn u64_at(buf: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(take(buf, at))
}

pub(crate) fn u128_at(buf: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(take(buf, at))
}

/// Every record begins with its magic number and the CRC-32C of all that follows these eight bytes.
pub(crate) const SEAL: usize = 8;

pub(crate) fn seal(record: &mut [u8], magic: u32) {
    let sum = crc(&record[SEAL..]);
    put(record, 0, magic.to_le_bytes());
    put(record, 4, sum.to_le_bytes());
}

pub(crate) fn check(record: &[u8], magic: u32) -> Result<(), Corrupt> {
    if record.len() < SEAL {
        return Err(Corrupt::Short);
    }
    if u32_at(record, 0) != magic {
        return Err(Corrupt::Magic);
    }
    if u32_at(record, 4) != crc(&record[SEAL..]) {
        return Err(Corrupt::Checksum);
    }
    Ok(())
}
