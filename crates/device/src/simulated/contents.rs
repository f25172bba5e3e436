//! The bytes of a simulated device, kept sparsely.
//!
//! A page that is all zeros costs nothing, and of another only the bytes between its first and last that are not
//! zero are kept: a replay whose objects have headers but no bodies fits in memory, whatever their sizes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Bytes of a page.
const PAGE: usize = 4096;
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
    /// Where in the page the bytes begin.
    start: u16,
    bytes: Box<[u8]>,
}

impl Page {
    fn read(&self, from: usize, buf: &mut [u8]) {
        buf.fill(0);
        let start = usize::from(self.start);
        let (low, high) = (from.max(start), (from + buf.len()).min(start + self.bytes.len()));
        if low < high {
            buf[low - from..high - from].copy_from_slice(&self.bytes[low - start..high - start]);
        }
    }

    fn write(&mut self, from: usize, buf: &[u8]) {
        if buf.len() == PAGE {
            return self.set(buf);
        }
        let mut whole = [0; PAGE];
        self.read(0, &mut whole);
        whole[from..from + buf.len()].copy_from_slice(buf);
        self.set(&whole);
    }

    fn set(&mut self, whole: &[u8]) {
        let start = first_nonzero(whole);
        let end = if start == PAGE { PAGE } else { last_nonzero(whole) + 1 };
        self.start = start as u16;
        self.bytes = whole[start..end].into();
    }
}

/// Bytes looked at together: most are zeros, and this compiles to wide instructions.
const STEP: usize = 64;

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |or, byte| or | byte) == 0
}

/// `PAGE` if there is none.
fn first_nonzero(page: &[u8]) -> usize {
    let Some(step) = page.chunks(STEP).position(|chunk| !is_zero(chunk)) else { return PAGE };
    step * STEP + page[step * STEP..].iter().position(|byte| *byte != 0).unwrap_or(0)
}

/// 0 if there is none.
fn last_nonzero(page: &[u8]) -> usize {
    let Some(step) = page.chunks(STEP).rposition(|chunk| !is_zero(chunk)) else { return 0 };
    let chunk = &page[step * STEP..][..STEP];
    step * STEP + chunk.iter().rposition(|byte| *byte != 0).unwrap_or(0)
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
            let from = random.below(size as u64) as usize;
            let len = random.below((size - from).min(9_000) as u64) as usize;
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
        assert_eq!(sparse.held(), 3);
    }
}
