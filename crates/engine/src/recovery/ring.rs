//! Reading the journal's ring: all of it, in large reads, once; again only the pages that look damaged.
//!
//! Invariants: the log is the unbroken run of pages from the checkpoint's first one on; a hole that a later
//! batch follows is damage, and then nothing that the journal should have told can be known.

use std::collections::BTreeMap;

use picaflor_format::{
    BLOCK, Corrupt,
    journal::{Page, decode_page},
};

use super::image::Unfit;
use crate::{Error, Result, base::medium::read_twice, read::parts::Parts};

/// The intact pages of this store that are on the ring, by sequence number.
pub(super) struct Ring {
    pages: BTreeMap<u64, Page>,
    /// Places on the ring that the device refused to read.
    unread: BTreeMap<u64, Error>,
    /// Places on the ring.
    places: u64,
}

/// Bytes of one read.
const READ: usize = 1 << 20;

impl Ring {
    /// Reads the ring. Pages that cannot be decoded are not there.
    pub(super) fn read(volume: &Parts) -> Self {
        let zone = volume.medium.map().journal;
        let (mut pages, mut unread) = (BTreeMap::new(), BTreeMap::new());
        let mut at = zone.start;
        while at < zone.end() {
            let len = (READ as u64).min(zone.end() - at) as usize;
            let mut buf = volume.shared.pool.take(len);
            if volume.medium.device.read(at, &mut buf).is_err() {
                // Block by block, so that one bad block hides no other page.
                buf.fill(0);
                for (i, block) in buf.chunks_mut(BLOCK).enumerate() {
                    let start = at + (i * BLOCK) as u64;
                    if let Err(error) = read_twice(&*volume.medium.device, start, block) {
                        block.fill(0);
                        let place = format!("{}: reading a page of the journal at {start}", volume.medium.place);
                        unread.insert((start - zone.start) / BLOCK as u64, Error::io(place, error));
                    }
                }
            }
            let blocks = (at..).step_by(BLOCK).zip(buf.chunks_mut(BLOCK));
            let own = blocks.filter_map(|(start, block)| match decode_page(block) {
                // It may have been bad on its way only, and the log would end before it.
                Err(Corrupt::Checksum) => {
                    volume.medium.device.read(start, block).ok().and_then(|()| decode_page(block).ok())
                }
                page => page.ok(),
            });
            pages.extend(own.filter(|page| page.store == volume.medium.store_id).map(|page| (page.seq, page)));
            at += len as u64;
        }
        Self { pages, unread, places: volume.medium.map().journal_pages() }
    }

    /// The pages from `start` on up to the first that is not there.
    pub(super) fn run(&self, start: u64) -> impl Iterator<Item = &Page> {
        (start..).map_while(|seq| self.pages.get(&seq))
    }

    /// The log from `start` on.
    ///
    /// # Errors
    /// If pages that once were durable are gone, or may be there and cannot be read.
    pub(super) fn log(&self, start: u64) -> Result<Vec<&Page>, Unfit> {
        let log: Vec<&Page> = self.run(start).collect();
        let end = start + log.len() as u64;
        // The log may go on there.
        if let Some(error) = self.unread.get(&(end % self.places)) {
            return Err(Unfit::Refused(error.clone()));
        }
        // A page of the batch that the crash cut short may be there without those before it.
        match self.pages.range(end..).find(|(seq, page)| *seq - u64::from(page.batch) > end) {
            Some(_) => Err(format!("journal page {end} is damaged").into()),
            None => Ok(log),
        }
    }

    /// A sequence number that no page on the ring has reached, read or not.
    pub(super) fn beyond(&self) -> u64 {
        self.pages.last_key_value().map_or(0, |(seq, _)| *seq) + self.places + 1
    }

    /// Wipes what a torn batch left behind the end of the log, lest a later page make it part of the log.
    ///
    /// # Errors
    /// [`Error::Io`] from the device.
    pub(super) fn clear_from(&self, volume: &Parts, next: u64) -> Result<()> {
        let mut zeros = volume.shared.pool.take(BLOCK);
        zeros.fill(0);
        let place = |error| Error::io(format!("{}: clearing the journal", volume.medium.place), error);
        let mut cleared = false;
        for seq in self.pages.range(next..).map(|(seq, _)| *seq) {
            volume.medium.device.write(volume.medium.map().journal_page(seq), &zeros).map_err(place)?;
            cleared = true;
        }
        if cleared { volume.medium.device.sync().map_err(place) } else { Ok(()) }
    }
}
