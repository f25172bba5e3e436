//! Writes that wait, so that all that a commit covers goes out in one batch.
//!
//! Invariants:
//! - a write is known by the place where it, or the page that it is a part of, begins; of what waits for a place only
//!   the last is written;
//! - what is on its way is found here until the device has it, so that what was there before is not read;
//! - one batch at a time is on its way, so no place is written twice at once; after one that failed there is none.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use picaflor_device::AlignedBuf;

/// Bytes that wait before they are written without waiting for a commit.
const MOST: usize = 1 << 20;
/// Most bytes of one write.
const LONGEST: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Queue {
    held: Mutex<Held>,
    /// Writes in `held`: most readers find none, and need no lock to see it.
    count: AtomicUsize,
    /// Held while a batch is written.
    turn: Mutex<()>,
}

#[derive(Default)]
struct Held {
    waiting: BTreeMap<u64, Piece>,
    /// Handed to the device.
    flying: BTreeMap<u64, Piece>,
    /// Of what waits.
    bytes: usize,
}

/// A write, and how far behind its place it begins.
#[derive(Clone)]
struct Piece {
    from: usize,
    bytes: Bytes,
}

impl Queue {
    /// Has `bytes` written at `place` with the next batch, instead of what waited for that place.
    pub(super) fn put(&self, place: u64, bytes: Bytes) {
        self.insert(&mut self.held.lock(), place, Piece { from: 0, bytes });
    }

    /// As [`Queue::put`], a part of the page that begins at `place`, together with the part of it that waits.
    pub(super) fn put_part(&self, place: u64, page: &[u8], part: Range<usize>) {
        let mut held = self.held.lock();
        let (mut from, mut to) = (part.start, part.end);
        // More than a page is no part of it: where the device is damaged, a block may have been granted in here.
        if let Some(old) = held.waiting.get(&place).filter(|old| old.from + old.bytes.len() <= page.len()) {
            (from, to) = (from.min(old.from), to.max(old.from + old.bytes.len()));
        }
        let bytes = AlignedBuf::copy_from(&page[from..to]).into_bytes();
        self.insert(&mut held, place, Piece { from, bytes });
    }

    fn insert(&self, held: &mut Held, place: u64, piece: Piece) {
        held.bytes += piece.bytes.len();
        if let Some(old) = held.waiting.insert(place, piece) {
            held.bytes -= old.bytes.len();
        }
        self.count_again(held);
    }

    fn count_again(&self, held: &Held) {
        self.count.store(held.waiting.len() + held.flying.len(), Release);
    }

    /// What is to be written at a place, or is being written.
    pub(super) fn get(&self, place: u64) -> Option<Bytes> {
        if self.count.load(Acquire) == 0 {
            return None;
        }
        let held = self.held.lock();
        held.waiting.get(&place).or_else(|| held.flying.get(&place)).map(|piece| piece.bytes.clone())
    }

    /// The parts of a page that the device may not have, the older first. To be asked before the device is.
    pub(super) fn parts(&self, place: u64) -> Parts {
        if self.count.load(Acquire) == 0 {
            return Parts([None, None]);
        }
        let held = self.held.lock();
        Parts([held.flying.get(&place).cloned(), held.waiting.get(&place).cloned()])
    }

    pub(super) fn is_long(&self) -> bool {
        self.count.load(Acquire) > 0 && self.held.lock().bytes > MOST
    }

    /// The right to write a batch.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// What waits, in the order of places; the caller has the turn, and says when it has [landed](Queue::landed).
    pub(super) fn take(&self, _turn: &MutexGuard<'_, ()>) -> Vec<(u64, Bytes)> {
        let mut held = self.held.lock();
        held.bytes = 0;
        debug_assert!(held.flying.is_empty(), "a batch that failed stays where reads find it");
        held.flying = std::mem::take(&mut held.waiting);
        held.flying.iter().map(|(&place, piece)| (place + piece.from as u64, piece.bytes.clone())).collect()
    }

    /// The device has what was taken.
    pub(super) fn landed(&self) {
        let mut held = self.held.lock();
        held.flying.clear();
        self.count_again(&held);
    }
}

/// One write for each run of neighbours; they come in the order of places.
pub(super) fn joined(writes: Vec<(u64, Bytes)>) -> Vec<(u64, Bytes)> {
    let mut rest = &writes[..];
    let mut out = Vec::with_capacity(rest.len());
    while let Some((place, first)) = rest.first() {
        let mut len = 0;
        let joins = |(at, bytes): &&(u64, Bytes)| {
            let follows = *at == place + len as u64;
            len += bytes.len();
            follows && len <= LONGEST
        };
        let (run, behind) = rest.split_at(rest.iter().take_while(joins).count().max(1));
        rest = behind;
        if run.len() == 1 {
            out.push((*place, first.clone()));
            continue;
        }
        let mut whole = AlignedBuf::zeroed(run.iter().map(|(_, bytes)| bytes.len()).sum());
        let mut at = 0;
        for (_, bytes) in run {
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        out.push((*place, whole.into_bytes()));
    }
    out
}

/// See [`Queue::parts`].
pub(super) struct Parts([Option<Piece>; 2]);

impl Parts {
    /// Lays them over what the device holds of the page.
    pub(super) fn lay_over(&self, page: &mut [u8]) {
        for Piece { from, bytes } in self.0.iter().flatten() {
            if let Some(part) = page.get_mut(*from..from + bytes.len()) {
                part.copy_from_slice(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_page_that_wait_are_one_and_neighbours_are_one_write() {
        let queue = Queue::default();
        let page: Vec<u8> = (0..8u8).flat_map(|sector| [sector; 512]).collect();
        queue.put_part(4096, &page, 512..1024);
        queue.put_part(4096, &page, 1536..2048);
        queue.put(8192, Bytes::from_static(&[9; 512]));
        queue.put(8704, Bytes::from_static(&[8; 512]));
        let writes = joined(queue.take(&queue.turn()));
        let places: Vec<(u64, usize)> = writes.iter().map(|(place, bytes)| (*place, bytes.len())).collect();
        assert_eq!(places, [(4096 + 512, 1536), (8192, 1024)]);
        let mut read = vec![0; 4096];
        queue.parts(4096).lay_over(&mut read);
        assert_eq!((read[0], &read[512..2048]), (0, &page[512..2048]), "found while it is on its way");
        queue.landed();
        assert!(queue.get(8192).is_none());
    }
}
