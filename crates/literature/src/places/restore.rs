//! Opening: the checkpoint's table and the log make the table of now; hardly a frame is read.
//!
//! Steps: the log is gone through in its order, and each object placed takes its slots from what the table or the log
//! had there before → of each key the largest generation counts that the log does not say is deleted → what was told
//! by the last commit of a run is read, for the crash may have kept the page and not the frame; what does not verify
//! gives way to the version before.
//!
//! Invariants: rows of the checkpoint have no generation, and are older than all that the log tells of their key.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasherDefault, DefaultHasher},
    io,
};

use picaflor::{
    Error, Mode, Result, VolumeReceipt,
    layout::{EPOCH_SHIFT, VolumeEnv},
};
use picaflor_format::{
    BLOCK,
    checkpoint::PlaceRow,
    frame::{self, ChunkKey, Header, Kind, Manifest},
    journal::{Page, Record},
    zone::SLOT,
};

use super::{files::Files, place::InPlace, space::Place};
use crate::piece::longest_ever;

/// An object that may lie somewhere.
#[derive(Clone, Copy)]
struct Claim {
    row: PlaceRow,
    /// 0: from the checkpoint.
    generation: u64,
    /// Whether a sync vouches for its bytes.
    vouched: bool,
}

impl Claim {
    fn place(&self) -> Place {
        Place { hash: self.row.hash, slot: self.row.slot, slots: self.row.slots }
    }
}

/// By a key's hash, in an order that does not change from one run to the next.
type ByKey<V> = HashMap<u128, V, BuildHasherDefault<DefaultHasher>>;

/// Deletes since the checkpoint: the largest generation of each key's hash.
type Deletes = BTreeMap<u128, u64>;

/// What one claim turned out to be.
enum Found {
    /// An object's bytes, whole; with its key's hash and how it is cut if it is the head of a large object.
    Whole(Option<(u128, Manifest)>),
    Nothing,
    /// Not known: the device does not give it.
    Unread,
}

impl InPlace {
    /// Fills table and index, from a checkpoint's rows and cursor and the log behind it, or from a listing of files.
    /// Returns whether the last run left something untold.
    pub(super) fn restore_all(
        &self,
        volume: &dyn VolumeEnv,
        (image, cursor): (Vec<u64>, u32),
        pages: &[Page],
        receipt: &mut VolumeReceipt,
    ) -> Result<bool> {
        match self.all_files() {
            Some(files) => self.list_files(volume, files, receipt),
            None if !self.env.has_checkpoints() => self.scan(volume, receipt),
            None => {
                let rows = image.as_chunks().0.iter().map(|words| PlaceRow::from_words(*words)).collect();
                self.replay(volume, (rows, cursor), pages, receipt)
            }
        }
    }

    /// Fills table and index. `rows` are the checkpoint's, `cursor` where it stood. Returns whether the log told
    /// anything.
    fn replay(
        &self,
        volume: &dyn VolumeEnv,
        (rows, cursor): (Vec<PlaceRow>, u32),
        pages: &[Page],
        receipt: &mut VolumeReceipt,
    ) -> Result<bool> {
        let mut used = rows.iter().map(|row| row.used).max().unwrap_or(0);
        receipt.from_checkpoint = rows.len() as u64;
        let claim = |row: PlaceRow| (row.slot, Claim { row, generation: 0, vouched: true });
        let mut claims: BTreeMap<u32, Claim> = rows.into_iter().map(claim).collect();
        let mut deletes = Deletes::new();
        let mut cursor = cursor;
        let doubtful = last_batches(pages);
        let mut told = false;
        for (page, record) in pages.iter().flat_map(|page| page.records.iter().map(move |record| (page, *record))) {
            match record {
                Record::Placed(placed) => {
                    told = true;
                    used += 1;
                    self.env.see_generation(placed.generation);
                    let end = self.end_of(placed.slot, placed.slots);
                    let gone: Vec<u32> = self.overlapping(&claims, placed.slot, end).collect();
                    for slot in gone {
                        receipt.dropped.overwritten += u64::from(slot != placed.slot);
                        claims.remove(&slot);
                    }
                    let row = PlaceRow { hash: placed.hash, slot: placed.slot, slots: placed.slots, used };
                    let vouched = !doubtful.contains(&(page.seq - u64::from(page.batch)));
                    claims.insert(placed.slot, Claim { row, generation: placed.generation, vouched });
                    cursor = end;
                }
                Record::Delete { hash, generation, .. } => {
                    told = true;
                    self.env.see_generation(generation);
                    let known = deletes.entry(hash).or_default();
                    *known = generation.max(*known);
                }
                Record::Group(group) => self.env.restore_group(group),
                // Nothing is pinned in place.
                Record::Reserve { .. } | Record::Pinned(_) | Record::PinnedBytes(_) => {}
            }
        }
        receipt.deletes = deletes.len() as u64;
        let kept = self.resolve(volume, claims, &deletes, receipt)?;
        receipt.from_scan = kept.values().filter(|claim| claim.generation > 0).count() as u64;
        let there = self.long_files().map(Files::numbers).transpose();
        let failed = |error| Error::io(format!("{}: listing files", self.medium.place), error);
        let there: Option<BTreeSet<u32>> = there.map_err(failed)?.map(|numbers| numbers.into_iter().collect());
        self.fill(volume, &kept, cursor, |slot| {
            self.file_of(slot).is_some() && there.as_ref().is_some_and(|there| !there.contains(&slot))
        });
        self.remove_other_files(there, &kept)?;
        Ok(told)
    }

    /// Removes the files of long objects that do not stand; once those that do are durable, and what the log was read
    /// to tell of them, for the last run may have written both and no sync followed.
    fn remove_other_files(&self, there: Option<BTreeSet<u32>>, kept: &ByKey<Claim>) -> Result<()> {
        let (Some(files), Some(all)) = (self.long_files(), there) else { return Ok(()) };
        let failed = |error| Error::io(format!("{}: removing files that are not in its log", self.medium.place), error);
        let sync = || files.sync().and_then(|()| self.medium.sync());
        self.remove_others(all, kept, sync, |number| files.remove(number)).map_err(failed)
    }

    /// Where objects have files the folder is the table. What the last run wrote is read unless it closed the store,
    /// and so is everything of which there are two versions; what gives way is removed. Returns whether it was not
    /// closed.
    fn list_files(&self, volume: &dyn VolumeEnv, files: &Files, receipt: &mut VolumeReceipt) -> Result<bool> {
        let listed = |error| Error::io(format!("{}: listing", self.medium.place), error);
        let (all, clean) = files.list().map_err(listed)?;
        let epoch = self.log.epoch();
        let mut versions: HashMap<u128, u32> = HashMap::new();
        all.iter().for_each(|(_, name, _)| *versions.entry(name.hash).or_default() += 1);
        let mut claims = BTreeMap::new();
        for (number, name, len) in &all {
            self.env.see_generation(name.generation);
            let slots = len.div_ceil(SLOT).max(1) as u32;
            let row = PlaceRow { hash: name.hash, slot: *number, slots, used: u64::from(*number) };
            // Not equal to it only: a superblock that was lost may have known later runs.
            let vouched = (clean || name.generation >> EPOCH_SHIFT < epoch) && versions[&name.hash] == 1;
            claims.insert(*number, Claim { row, generation: name.generation, vouched });
        }
        let kept = self.resolve(volume, claims, &Deletes::new(), receipt)?;
        receipt.from_scan = kept.len() as u64;
        self.fill(volume, &kept, 0, |_| false);
        let gone = all.iter().map(|(number, ..)| *number).collect();
        self.remove_others(gone, &kept, || files.sync(), |number| files.remove(number)).map_err(listed)?;
        Ok(!clean)
    }

    /// Where slots say by themselves whose they are, all of them are read, and the newest of each key stands. What
    /// gives way is wiped, or it would come back when the newer one is deleted. Nothing is left untold.
    fn scan(&self, volume: &dyn VolumeEnv, receipt: &mut VolumeReceipt) -> Result<bool> {
        const STEP: usize = 256 << 10;
        let zone = self.medium.map().in_place().1;
        let longest = longest_ever(zone.len) as usize;
        let mut buf = self.medium.pool.take((self.payload_max + frame::HEADER).next_multiple_of(BLOCK) + STEP);
        let mut claims = BTreeMap::new();
        let mut at = zone.start;
        while at < zone.end() {
            let start = at / BLOCK as u64 * BLOCK as u64;
            let len = (buf.len() as u64).min(zone.end() - start) as usize;
            let read = self.medium.read(start, &mut buf[..len]);
            read.map_err(|error| self.medium.io(&format!("reading slots at {start}"), error))?;
            let end = start + len as u64;
            let mut begun_len = 0;
            while at < end {
                let slot = (at / SLOT) as u32;
                let frame = &buf[(at - start) as usize..len];
                let is_its = |header: &Header| header.mark == self.medium.hasher.mark(u64::from(slot));
                let begun = Header::decode(frame).ok().filter(is_its);
                // What goes on behind the end is looked at again from its own beginning.
                let goes_on = |header: &Header| (frame.len() + 1..=longest).contains(&header.frame_len());
                if let Some(header) = begun.filter(goes_on).filter(|_| end < zone.end()) {
                    begun_len = header.frame_len();
                    break;
                }
                let Some(header) = begun.and_then(|_| Header::verify(frame).ok()) else {
                    at += SLOT;
                    continue;
                };
                self.env.see_generation(header.generation);
                let hash = self.medium.hasher.frame(header.kind, header.key(frame)).0;
                let slots = header.frame_len().div_ceil(SLOT as usize) as u32;
                let row = PlaceRow { hash, slot, slots, used: header.generation };
                // How it is cut, if it is, is still to be seen.
                let vouched = header.kind != Kind::Manifest;
                claims.insert(slot, Claim { row, generation: header.generation, vouched });
                at += u64::from(slots) * SLOT;
            }
            if begun_len + BLOCK > buf.len() {
                buf = self.medium.pool.take(begun_len.next_multiple_of(BLOCK) + BLOCK);
            }
        }
        let gone = claims.keys().copied().collect();
        let kept = self.resolve(volume, claims, &Deletes::new(), receipt)?;
        receipt.from_scan = kept.len() as u64;
        self.fill(volume, &kept, 0, |_| false);
        self.remove_others(gone, &kept, || self.medium.device.sync(), |slot| self.wipe(slot))
            .map_err(|error| Error::io(format!("{}: wiping slots", self.medium.place), error))?;
        Ok(false)
    }

    /// Removes what does not stand, once those that do are durable: they may be what the last run wrote and no sync
    /// covered.
    fn remove_others(
        &self,
        mut all: BTreeSet<u32>,
        kept: &ByKey<Claim>,
        sync: impl FnOnce() -> io::Result<()>,
        remove: impl Fn(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        for claim in kept.values() {
            all.remove(&claim.row.slot);
        }
        if self.env.read_only() {
            return Ok(());
        }
        sync()?;
        all.into_iter().try_for_each(remove)
    }

    /// Fills table and index.
    /// What is `gone` comes after all others. It may be a piece of an object that was replaced, of which no record says
    /// that it left, and others have its room since.
    fn fill(&self, volume: &dyn VolumeEnv, kept: &ByKey<Claim>, cursor: u32, gone: impl Fn(u32) -> bool) {
        for row in self.extents.restore(kept.values().map(|claim| claim.row).collect(), cursor, gone) {
            let place = Place { hash: row.hash, slot: row.slot, slots: row.slots };
            volume.enter(row.hash as u64, place.grain(), place.grains(), None);
        }
        self.account();
    }

    /// First slots of the claims that have a slot in this range.
    fn overlapping(&self, claims: &BTreeMap<u32, Claim>, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let reaches = |(slot, claim): &(&u32, &Claim)| self.end_of(**slot, claim.row.slots) > start;
        let before = claims.range(..start).next_back().filter(reaches);
        before.into_iter().chain(claims.range(start..end.max(start))).map(|(slot, _)| *slot)
    }

    /// Which version of each key stands.
    fn resolve(
        &self,
        volume: &dyn VolumeEnv,
        claims: BTreeMap<u32, Claim>,
        deletes: &Deletes,
        receipt: &mut VolumeReceipt,
    ) -> Result<ByKey<Claim>> {
        let mut of_key: ByKey<Vec<Claim>> = ByKey::default();
        for claim in claims.into_values() {
            if deletes.get(&claim.row.hash).is_some_and(|deleted| *deleted >= claim.generation) {
                receipt.dropped.deleted += 1;
                continue;
            }
            of_key.entry(claim.row.hash).or_default().push(claim);
        }
        let mut kept = ByKey::with_capacity_and_hasher(of_key.len(), BuildHasherDefault::new());
        let mut heads = Vec::new();
        for (hash, mut rivals) in of_key {
            rivals.sort_unstable_by_key(|claim| claim.generation);
            if let Some(head) = self.newest(volume, &mut rivals, receipt, &mut kept)? {
                heads.push((hash, head, rivals));
            }
        }
        // A store must not give up the version before for one that the crash left incomplete; in a cache pieces may
        // have left, and then no older version may show.
        for (hash, (parent, manifest), mut rivals) in heads {
            let mut head = Some((parent, manifest));
            while let Some((parent, manifest)) = head.take() {
                let piece = |number| self.medium.hasher.chunk(&ChunkKey { parent, id: manifest.id, number }.encode()).0;
                if self.env.mode() == Mode::Cache || (0..manifest.chunks()).all(|n| kept.contains_key(&piece(n))) {
                    continue;
                }
                receipt.dropped.torn += 1;
                kept.remove(&hash);
                head = self.newest(volume, &mut rivals, receipt, &mut kept)?;
            }
        }
        Ok(kept)
    }

    /// Enters the newest claim that holds; `rivals` keeps the older ones. Returns how it is cut, if no sync vouches.
    fn newest(
        &self,
        volume: &dyn VolumeEnv,
        rivals: &mut Vec<Claim>,
        receipt: &mut VolumeReceipt,
        kept: &mut ByKey<Claim>,
    ) -> Result<Option<(u128, Manifest)>> {
        while let Some(claim) = rivals.pop() {
            let found = if claim.vouched { Found::Whole(None) } else { self.look(volume, &claim)? };
            match found {
                Found::Whole(head) => {
                    receipt.dropped.replaced += rivals.len() as u64;
                    kept.insert(claim.row.hash, claim);
                    return Ok(head);
                }
                Found::Nothing => receipt.dropped.torn += 1,
                // A get would take any intact frame of the key that lies there, and a torn write may have left an older
                // one; while this one, if it is whole, forbids all before it. The log must say so before its slots are
                // another's: then the next opening finds no trace of it, and may find an older one.
                Found::Unread => {
                    receipt.dropped.unread += 1 + rivals.len() as u64;
                    rivals.clear();
                    self.log.record(Record::Delete { hash: claim.row.hash, generation: claim.generation });
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn look(&self, volume: &dyn VolumeEnv, claim: &Claim) -> Result<Found> {
        let read = || self.read(volume, claim.place());
        // That may have been the cable.
        let again = |error| if matches!(error, Error::Io { .. }) { read() } else { Err(error) };
        let (header, frame) = match read().or_else(again) {
            Ok(found) => found,
            Err(Error::Damaged { .. }) => return Ok(Found::Nothing),
            Err(_) if self.env.mode() == Mode::Cache && self.env.has_checkpoints() => {
                return Ok(Found::Unread);
            }
            // It may be whole, and then no older version may show: a get of it verifies it. What gives way here
            // is removed, and a crash could take the newer one first.
            Err(_) if self.env.mode() == Mode::Cache => return Ok(Found::Whole(None)),
            Err(error) => return Err(error),
        };
        let hash = self.medium.hasher.frame(header.kind, header.key(&frame)).0;
        if hash != claim.row.hash || header.generation != claim.generation {
            return Ok(Found::Nothing);
        }
        Ok(Found::Whole(header.manifest(&frame).map(|manifest| (hash, manifest))))
    }
}

/// First pages of the batches whose frames no sync vouches for: the last of each run. What a later run synced says
/// nothing of what an earlier one left torn. The grants of a checkpoint's clusters are a batch of their run too, and so
/// vouch for all that was placed before them, whatever became of the checkpoint and of the superblock that names it. A
/// delete does not, for it may have the generation of what an earlier run put.
fn last_batches(pages: &[Page]) -> BTreeSet<u64> {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for page in pages {
        for record in &page.records {
            let number = match record {
                Record::Placed(placed) => placed.generation,
                Record::Reserve { seq, .. } => *seq,
                _ => continue,
            };
            last.insert(number >> EPOCH_SHIFT, page.seq - u64::from(page.batch));
        }
    }
    last.into_values().collect()
}
