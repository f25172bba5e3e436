//! The bytes of a simulated device, kept sparsely.
//!
//! Of a page only those lines are kept that are not all zeros: a replay whose objects have headers, and here and there
//! a mark in their bodies, fits in memory, whatever their sizes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of a line: a page has as many as a mask has bits.
const LINE: usize = PAGE / 64;
/// Pages that share one look-up.
const GROUP: u64 = 512;

/// Bytes at offsets, of any extent; what was never written is zero.
#[derive(Default)]
pub struct SparseBytes {
    groups: HashMap<u64, Box<[Page]>>,
    held: u64,
}

#[derive(Clone, Default)]
struct Page {
    /// Which lines are not zeros, the first one in the lowest bit.
    mask: u64,
    /// Those lines.
    bytes: Box<[u8]>,
}

/// The numbers of the bits that are set, from the lowest.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

impl Page {
    fn read(&self, from: usize, buf: &mut [u8]) {
        buf.fill(0);
        let end = from + buf.len();
        for (line, bytes) in bits(self.mask).zip(self.bytes.chunks_exact(LINE)) {
            let start = line * LINE;
            let (low, high) = (from.max(start), end.min(start + LINE));
            if low < high {
                buf[low - from..high - from].copy_from_slice(&bytes[low - start..high - start]);
            }
        }
    }

    fn write(&mut self, from: usize, buf: &[u8]) {
        if from.is_multiple_of(LINE) && buf.len().is_multiple_of(LINE) {
            return self.set(from / LINE, buf);
        }
        let mut whole = [0; PAGE];
        self.read(0, &mut whole);
        whole[from..from + buf.len()].copy_from_slice(buf);
        self.set(0, &whole);
    }

    /// Puts whole lines there, from this one on.
    fn set(&mut self, first: usize, buf: &[u8]) {
        let lines = || buf.chunks_exact(LINE);
        let mask = lines().zip(first..).fold(0, |mask, (bytes, line)| mask | u64::from(!is_zero(bytes)) << line);
        let covered = (u64::MAX >> (64 - buf.len() / LINE)) << first;
        let begin = (self.mask & ((1 << first) - 1)).count_ones() as usize * LINE;
        let end = begin + (self.mask & covered).count_ones() as usize * LINE;
        let new = || bits(mask).map(|line| &buf[(line - first) * LINE..][..LINE]);
        if end - begin == mask.count_ones() as usize * LINE {
            let old = self.bytes[begin..end].chunks_exact_mut(LINE);
            old.zip(new()).for_each(|(old, new)| old.copy_from_slice(new));
        } else {
            let kept = self.bytes.len() - (end - begin) + mask.count_ones() as usize * LINE;
            let mut bytes = Vec::with_capacity(kept);
            bytes.extend_from_slice(&self.bytes[..begin]);
            new().for_each(|line| bytes.extend_from_slice(line));
            bytes.extend_from_slice(&self.bytes[end..]);
            self.bytes = bytes.into();
        }
        self.mask = self.mask & !covered | mask;
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |or, byte| or | byte) == 0
}

impl SparseBytes {
    /// Nothing but zeros.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory that contents take.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Fills `buf` from `offset`.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (number, from, range) in pages(offset, buf.len()) {
            let part = &mut buf[range];
            match self.groups.get(&(number / GROUP)) {
                Some(group) => group[(number % GROUP) as usize].read(from, part),
                None => part.fill(0),
            }
        }
    }

    /// Puts `buf` at `offset`.
    pub fn write(&mut self, offset: u64, buf: &[u8]) {
        for (number, from, range) in pages(offset, buf.len()) {
            self.write_page(number, from, &buf[range]);
        }
    }

    /// Makes a range zero again, and frees what it held.
    pub fn clear(&mut self, offset: u64, len: u64) {
        let mut at = offset;
        while at < offset + len {
            let (number, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let step = (offset + len - at).min((PAGE - from) as u64);
            if !self.groups.contains_key(&(number / GROUP)) {
                at = ((number / GROUP + 1) * GROUP * PAGE as u64).min(offset + len);
                continue;
            }
            self.write_page(number, from, &[0; PAGE][..step as usize]);
            at += step;
        }
    }

    fn write_page(&mut self, number: u64, from: usize, part: &[u8]) {
        let pages = match self.groups.entry(number / GROUP) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(_) if is_zero(part) => return,
            Entry::Vacant(group) => group.insert(vec![Page::default(); GROUP as usize].into_boxed_slice()),
        };
        let page = &mut pages[(number % GROUP) as usize];
        self.held -= page.bytes.len() as u64;
        page.write(from, part);
        self.held += page.bytes.len() as u64;
    }
}

/// Cuts a range into pages: the page's number, where in it, and which bytes of the range.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let from = (at % PAGE as u64) as usize;
        let take = (PAGE - from).min(len - done);
        done += take;
        Some((at / PAGE as u64, from, done - take..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_plain_bytes_and_zeros_cost_nothing() {
        let size = 40_000;
        let mut plain = vec![0_u8; size];
        let mut sparse = SparseBytes::new();
        let mut random = crate::fault::Random::new(7, 1);
        for round in 0..2_000 {
            let mut from = random.below(size as u64) as usize;
            let mut len = random.below((size - from).min(9_000) as u64) as usize;
            if round % 2 == 0 {
                // Whole lines go another way.
                (from, len) = (from / LINE * LINE, len / LINE * LINE);
            }
            match round % 3 {
                0 => {
                    let byte = (random.next() % 3) as u8;
                    plain[from..from + len].fill(byte);
                    sparse.write(from as u64, &vec![byte; len]);
                }
                1 => {
                    plain[from..from + len].fill(0);
                    sparse.clear(from as u64, len as u64);
                }
                _ => {
                    let mut buf = vec![9; len];
                    sparse.read(from as u64, &mut buf);
                    assert_eq!(buf, plain[from..from + len], "{from} {len}");
                }
            }
        }
        sparse.clear(0, size as u64);
        assert_eq!(sparse.held(), 0);
        sparse.write(8_000, &[0, 0, 5, 0, 6, 0]);
        assert_eq!(sparse.held(), LINE as u64);
    }
}
