//! Going through all entries: for listings, and for the audit.

use std::sync::Arc;

use picaflor::{CheckReport, Result, layout::Listing};
use picaflor_format::{
    frame::{ChunkKey, Header},
    tabled::large_key,
};
use picaflor_table::htod::Pairs;

use super::{TableLayout, error::of_table};

/// Going through all objects.
pub(super) struct Objects {
    pairs: Pairs,
    layout: Arc<TableLayout>,
}

impl Objects {
    pub(super) fn of(layout: Arc<TableLayout>) -> Self {
        Self { pairs: layout.objects.pairs(), layout }
    }
}

impl Listing for Objects {
    fn next(&mut self) -> Option<Result<(Header, Vec<u8>)>> {
        let pair = self.pairs.next()?.map_err(of_table);
        Some(pair.and_then(|(key, frame)| Ok((self.layout.verified(&frame, &key, false)?, frame))))
    }

    fn progress(&self) -> (u64, u64) {
        self.pairs.progress()
    }
}

impl TableLayout {
    /// Whether the pages of objects and chunks, this many of so many, are gone through.
    fn go_through(&self, is_chunk: bool, report: &mut CheckReport, mut progress: impl FnMut(u64, u64)) {
        let mut pairs = if is_chunk { self.chunks.pairs() } else { self.objects.pairs() };
        while let Some(pair) = pairs.next() {
            let checked = pair.map_err(of_table).and_then(|(key, value)| {
                let header = self.verified(&value, &key, is_chunk)?;
                report.orphans += u64::from(is_chunk && !self.has_owner(&key)?);
                Ok(header)
            });
            match checked {
                Ok(header) => {
                    report.intact += 1;
                    report.intact_bytes += header.frame_len() as u64;
                }
                Err(why) => report.note(&why),
            }
            let (done, all) = pairs.progress();
            progress(done, all);
        }
        if self.tables.wants_mending() {
            report.unsettled += pairs.lost();
        } else {
            report.entries += pairs.lost();
        }
    }

    /// Verifies every entry.
    pub(super) fn audit(&self, report: &mut CheckReport, progress: &mut dyn FnMut(u64, u64)) {
        let pages = [self.objects.pages(), self.chunks.pages()];
        self.go_through(false, report, |done, _| progress(done, pages[0] + pages[1]));
        self.go_through(true, report, |done, _| progress(pages[0] + done, pages[0] + pages[1]));
        if self.tables.wants_mending() {
            // Where a version stands that was replaced, the crash cut the newer one short, or it is damaged since.
            report.unsettled += self.tables.stats().restored;
        }
        report.entries += report.intact + (report.damaged.len() + report.refused.len()) as u64;
    }

    /// Whether the large object of this chunk is there.
    fn has_owner(&self, chunk: &[u8]) -> Result<bool> {
        let Ok(key) = ChunkKey::decode(chunk) else { return Ok(false) };
        match self.large.get(&large_key(key.id)).map_err(of_table)? {
            Some(parent) => self.has_manifest(&parent, key.id),
            None => Ok(false),
        }
    }
}
