//! Records that the application pinned: few and short, never evicted, and there before the first get.
//!
//! All of them are in memory, in the journal of every volume from the change on, and in every checkpoint. Invariants: a
//! change is noted here before a journal gets its record, under one lock, so that the image of a checkpoint, taken
//! after the journal page with which its log begins, has every change before that page; of two changes the one of the
//! larger generation holds, whichever volume tells of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use picaflor_format::{
    Corrupt,
    checkpoint::PinnedRow,
    journal::{self, PinnedBytes, Record},
};

use crate::{Error, Result};

/// Longest pinned record.
pub(crate) const LONGEST: usize = 4096;

/// The records that are pinned.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Mutex<BTreeMap<u128, Pin>>,
}

struct Pin {
    generation: u64,
    /// `None`, only while a store is being opened: it was taken out.
    bytes: Option<Bytes>,
}

impl Pin {
    fn bytes(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| PinnedRow::words(bytes.len()) as u64 * 8)
    }
}

impl Pins {
    /// Sets a record, or takes it out, and gives `log` what the journals have to tell of it. All of them together may
    /// take `most` bytes of a checkpoint.
    ///
    /// # Errors
    /// [`Error::Limit`] for a record that is too long, or one too many.
    pub(crate) fn change(
        &self,
        name: u128,
        bytes: Option<&[u8]>,
        most: u64,
        generation: impl FnOnce() -> u64,
        log: impl Fn(&[Record]),
    ) -> Result<()> {
        let limit = |what, len, max| Err(Error::Limit { what, len, max });
        if let Some(bytes) = bytes.filter(|bytes| !(1..=LONGEST).contains(&bytes.len())) {
            return limit("pinned record", bytes.len(), LONGEST);
        }
        let mut pins = self.pins.lock();
        let others: u64 = pins.iter().filter(|(other, _)| **other != name).map(|(_, pin)| pin.bytes()).sum();
        let generation = generation();
        let pin = Pin { generation, bytes: bytes.map(Bytes::copy_from_slice) };
        if bytes.is_some() && others + pin.bytes() > most {
            return limit("all pinned records", (others + pin.bytes()) as usize, most as usize);
        }
        let len = bytes.map(|bytes| bytes.len() as u32);
        let mut records = vec![Record::Pinned(journal::Pinned { name, generation, len })];
        records.extend(PinnedBytes::all(bytes.unwrap_or_default()).map(Record::PinnedBytes));
        match bytes {
            Some(_) => drop(pins.insert(name, pin)),
            None => drop(pins.remove(&name)),
        }
        log(&records);
        Ok(())
    }

    /// Takes over what a volume tells, unless something newer is known.
    pub(crate) fn restore(&self, name: u128, generation: u64, bytes: Option<Bytes>) {
        let mut pins = self.pins.lock();
        if pins.get(&name).is_none_or(|known| known.generation <= generation) {
            pins.insert(name, Pin { generation, bytes });
        }
    }

    /// Takes over the image of a checkpoint.
    ///
    /// # Errors
    /// [`Corrupt`] if it makes no sense.
    pub(crate) fn restore_image(&self, mut words: &[u64]) -> Result<(), Corrupt> {
        while !words.is_empty() {
            let (row, rest) = PinnedRow::next(words)?;
            self.restore(row.name, row.generation, Some(row.bytes.into()));
            words = rest;
        }
        Ok(())
    }

    /// All volumes have told: what was taken out is forgotten. Returns the largest generation.
    pub(crate) fn opened(&self) -> u64 {
        let mut pins = self.pins.lock();
        let newest = pins.values().map(|pin| pin.generation).max().unwrap_or(0);
        pins.retain(|_, pin| pin.bytes.is_some());
        newest
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<(u128, Bytes)> {
        self.pins.lock().iter().filter_map(|(name, pin)| Some((*name, pin.bytes.clone()?))).collect()
    }

    /// The image of a checkpoint.
    pub(crate) fn image(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for (name, pin) in &*self.pins.lock() {
            if let Some(bytes) = &pin.bytes {
                PinnedRow { name: *name, generation: pin.generation, bytes: bytes.to_vec() }.push(&mut words);
            }
        }
        words
    }

    /// Bytes of the image.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.pins.lock().values().map(Pin::bytes).sum()
    }
}

/// Reads changes off the records of a journal.
#[derive(Default)]
pub(crate) struct Reader {
    begun: Option<(journal::Pinned, Vec<u8>)>,
}

impl Reader {
    /// The next record, of any kind.
    pub(crate) fn next(&mut self, record: &Record, pins: &Pins) {
        match record {
            Record::Pinned(pinned) => self.begun = Some((*pinned, Vec::new())),
            Record::PinnedBytes(piece) => {
                self.begun.iter_mut().for_each(|(_, bytes)| bytes.extend_from_slice(piece.bytes()));
            }
            // Not all of it was written.
            _ => self.begun = None,
        }
        let is_whole =
            |(pinned, bytes): &mut (journal::Pinned, Vec<u8>)| pinned.len.is_none_or(|len| len as usize == bytes.len());
        if let Some((pinned, bytes)) = self.begun.take_if(|begun| is_whole(begun)) {
            pins.restore(pinned.name, pinned.generation, pinned.len.map(|_| bytes.into()));
        }
    }
}
