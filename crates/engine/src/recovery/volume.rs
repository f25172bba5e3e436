//! Opening one volume: superblock → checkpoint → journal → scan → a new epoch.
//!
//! Invariants: nothing is written before everything of all volumes was read ([`read`]), and then the superblock
//! first, with a new epoch ([`begin`]); what cannot be trusted is refused in a store and dropped in a cache, by name.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use picaflor_format::{
    BLOCK,
    checkpoint::Begun,
    doubt::Doubt,
    hot,
    journal::{Page, Record},
    superblock::Superblock,
    zone::{HOT_SLOT, Map},
};

use super::{
    found::{EPOCH_SHIFT, Found, Identity},
    image::{Loaded, Unfit, load_directory, load_newest, own_clusters, previous_checkpoint},
    merge::Merge,
    ring::Ring,
    scan,
    since::Deletes,
};
use crate::{
    Error, Mode, Result,
    base::layout::LayoutPlace,
    base::medium::read_twice,
    base::pinned::Reader,
    base::receipt::VolumeReceipt,
    index::IndexEntry,
    log::checkpoint::CheckpointState,
    log::journal::Journal,
    log::known::Known,
    read::parts::Parts,
    recovery::build::{Begin, assemble, build, fresh},
    shared::Shared,
    space::State,
    volume::Volume,
};

/// A volume of which everything was read and nothing was written yet.
pub(super) struct Unopened {
    volume: Arc<Volume>,
    receipt: VolumeReceipt,
    /// What a cache can open without.
    merge: Option<Merge>,
    /// The journal's ring, and whether nothing on it is trusted; none where the volume is new.
    ring: Option<(Ring, bool)>,
}

/// Makes one volume, as it is on its device.
pub(super) fn read(number: usize, found: Found, shared: &Arc<Shared>, identity: &Identity) -> Result<Unopened> {
    let created = found.superblock.is_none();
    let superblock = found.superblock.unwrap_or_else(|| fresh(&found, shared, identity, number));
    let (parts, lanes) = build(number, found, shared, identity, superblock)?;
    let place = parts.medium.place.clone();
    let mut receipt = VolumeReceipt { place, created, checkpoint: "none", ..VolumeReceipt::default() };
    if created {
        let volume = Arc::new(assemble(parts, lanes, Begin::default()));
        return Ok(Unopened { volume, receipt, merge: None, ring: None });
    }
    let ring = Ring::read(&parts);
    let (hot_seq, hot) = read_hot_log(&parts);
    receipt.hot = hot.len();
    // Whether it failed while the others of its store went on.
    let lost = identity.lost >> number & 1 == 1;
    let Recovered { journal, ring, checkpointer, merge, known, clean, cold } =
        recover(&parts, ring, lost, &mut receipt)?;
    receipt.clean = clean;
    parts.log.go_on_with(journal);
    // An opening that may not write learns of damage by the gets that find it, and drops nothing beforehand.
    let verify = (!clean || known.may_mislead()) && !shared.options.read_only;
    let begin = Begin { checkpointer, hot_seq, known, scrub: (hot, verify) };
    Ok(Unopened { volume: Arc::new(assemble(parts, lanes, begin)), receipt, merge, ring: Some((ring, cold)) })
}

/// Writes the superblock again as it was read. The run that made the volume may have been killed before it was durable,
/// or its device have failed: then no sync of another run says that it is.
pub(super) fn rewrite(unopened: &Unopened) -> Result<()> {
    unopened.volume.log.write_superblock(|_| ())
}

/// Starts the new epoch: from here on, numbers are above all that earlier runs gave out.
pub(super) fn begin(unopened: Unopened, identity: &Identity) -> Result<(Arc<Volume>, VolumeReceipt, Option<Merge>)> {
    let Unopened { volume, receipt, merge, ring } = unopened;
    if volume.shared.options.read_only {
        return Ok((volume, receipt, merge));
    }
    let preset = volume.shared.preset.number();
    let doubt = volume.scrubber.known.doubt;
    // Objects in place have a word of their own for a close, which a superblock that is written behind it takes back.
    let tells_close = volume.catalog.places.is_none();
    volume.log.write_superblock(|block| {
        (block.epoch, block.preset, block.doubt, block.running) = (identity.epoch, preset, doubt, tells_close);
    })?;
    if identity.writes_both {
        volume.log.write_superblock(|_| ())?;
    }
    if let Some((ring, cold)) = ring {
        let next = volume.log.journal.lock().next_page();
        ring.clear_from(volume.parts(), next)?;
        if receipt.checkpoint == "previous" {
            // Or the next checkpoint would keep the damaged one beside itself, and free this.
            volume.log.write_superblock(|block| (block.current, block.previous) = (block.previous, None))?;
        }
        if cold {
            // The journal goes on after pages that mean nothing now: only a checkpoint can say where. An opening that
            // finds none must not begin with the first page. The last one stays until then, for the pins in it.
            let own = 1 << volume.medium.number;
            volume.log.write_superblock(|block| block.lost |= own)?;
            volume.room.checkpoint_now()?;
            volume.log.write_superblock(|block| (block.previous, block.lost) = (None, block.lost & !own))?;
        }
    }
    Ok((volume, receipt, merge))
}

/// The place of a layout that is not ours.
pub(super) fn to_place(found: Found, shared: &Shared, identity: &Identity) -> LayoutPlace {
    let superblock = found.superblock.unwrap_or_else(|| fresh(&found, shared, identity, 0));
    LayoutPlace {
        is_new: found.superblock.is_none(),
        name: found.place,
        device: found.device,
        superblock,
        doubtful: identity.writes_both,
        epoch: identity.epoch,
    }
}

struct Recovered {
    journal: Journal,
    ring: Ring,
    checkpointer: CheckpointState,
    merge: Option<Merge>,
    known: Known,
    clean: bool,
    cold: bool,
}

/// Why a volume's own superblock, or another's, says that nothing on it counts.
fn why_lost(number: usize, block: &Superblock) -> &'static str {
    match block.lost >> number & 1 {
        1 => "the opening that emptied it was cut short",
        _ => "it failed while the others went on: what was deleted or replaced since then, it does not know",
    }
}

fn recover(volume: &Parts, ring: Ring, lost: bool, receipt: &mut VolumeReceipt) -> Result<Recovered> {
    let block = volume.log.superblock();
    if lost {
        if block.lost >> volume.medium.number & 1 == 1 {
            restore_pins(volume, &block, &ring);
        }
        let why = why_lost(volume.medium.number, &block).to_owned();
        return cold_start(volume, why.into(), ring, receipt);
    }
    let loaded = match load_newest(volume, &block, receipt) {
        Ok(loaded) => loaded,
        Err(why) => return cold_start(volume, why, ring, receipt),
    };
    receipt.from_checkpoint = volume.catalog.index.objects();
    let (start, checkpoint) = loaded.as_ref().map_or((1, 0), |(reference, _)| (reference.journal_start, reference.seq));
    // Pages of the older checkpoint too: its clusters are still too young to be reclaimed.
    let older = block.previous.map_or(start, |previous| previous.journal_start).min(start);
    // If only those are gone, as behind a superblock that is not the newest, every cluster counts as young.
    let (older, all_young) = if ring.log(older).is_ok() { (older, false) } else { (start, true) };
    let pages: Vec<Page> = match ring.log(older) {
        Ok(pages) => pages.into_iter().cloned().collect(),
        Err(why) => return cold_start(volume, why, ring, receipt),
    };
    let next_page = pages.last().map_or(older, |page| page.seq + 1).max(start);
    let (Loaded { directory, begun, of_places }, parts) =
        loaded.map_or_else(Default::default, |(reference, loaded)| {
            let mut parts: Vec<u32> = loaded.directory.parts.iter().map(|part| part.0).collect();
            parts.push(reference.directory);
            (loaded, parts)
        });
    directory.groups.iter().for_each(|group| volume.shared.groups.restore(*group));
    let (open, previous) = match (receipt.checkpoint, block.previous) {
        ("current", Some(reference)) => previous_checkpoint(volume, reference, &pages).unwrap_or_default(),
        _ => Default::default(),
    };
    for id in parts.iter().chain(&previous) {
        volume.space.set(*id, State::Checkpoint);
    }
    volume.residents.checkpoint_held.store((parts.len() + previous.len()) as u32, Relaxed);
    let journal = Journal::new(volume.medium.map(), block.store as u64, next_page, start, older);
    if let Some(places) = &volume.catalog.places {
        let since = pages.iter().position(|page| page.seq >= start).unwrap_or(pages.len());
        let image = (of_places, directory.cursor);
        let told = places.restore(volume, image, &pages[since..], receipt)?;
        let checkpointer = CheckpointState::restored(parts, previous, 0);
        let known = Known { crashed: told, ..Known::default() };
        return Ok(Recovered { journal, ring, checkpointer, merge: None, known, clean: !told, cold: false });
    }
    let Told { deletes, mut clusters, young, deleted } = told(volume, &pages, start, &begun);
    for id in directory.open.iter().filter(|id| **id < volume.space.count()) {
        clusters.entry(*id).or_insert(None);
    }
    clusters.retain(|id, _| !parts.contains(id) && !previous.contains(id));
    if let ("previous", Some(reference)) = (receipt.checkpoint, block.current) {
        // They hold no objects, and what the device refused of them it would refuse again.
        let unfit = own_clusters(reference, load_directory(volume, reference).ok().as_ref());
        clusters.retain(|id, seq| seq.is_none() || unfit.get(id) != seq.as_ref());
    }
    scan::drop_overwritten(volume, clusters.keys().chain(&parts).chain(&previous), receipt);
    let merge = match gather(volume, &clusters, &deletes, (checkpoint, &begun), receipt) {
        Err(why) => return cold_start(volume, why, ring, receipt),
        Ok(merge) => merge,
    };
    let all = if all_young { 0..volume.space.count() } else { 0..0 };
    let scanned = young.into_iter().chain(clusters.keys().copied()).chain(open).chain(all);
    scanned.filter(|id| *id < volume.space.count()).for_each(|id| volume.space.told(id, next_page));
    volume.space.set_floor(older);
    volume.space.set_cursor(directory.cursor);
    // A run that was killed before its first commit left no word, but no checkpoint either. One that was killed soon
    // after a checkpoint may have written over clusters of a cache, and left no word of that.
    let closed = !block.running && block.current.is_none_or(|current| current.seq >> EPOCH_SHIFT == block.epoch);
    let clean = closed && clusters.is_empty() && !deleted;
    let checkpointer = CheckpointState::restored(parts, previous, clusters.len() as u64);
    let first = block.previous.filter(|_| !all_young).map_or(checkpoint, |older| older.seq.min(checkpoint));
    let known = Known { doubt: doubt(&block, &pages, first, clean), page: next_page, crashed: !clean };
    Ok(Recovered { journal, ring, checkpointer, merge, known, clean, cold: false })
}

/// The uses of clusters of which crashes may have taken the note, by the log since the checkpoint numbered `first`.
fn doubt(block: &Superblock, pages: &[Page], first: u64, clean: bool) -> Doubt {
    if clean {
        return block.doubt;
    }
    let seq = |record: &Record| if let Record::Reserve { seq, .. } = record { Some(*seq) } else { None };
    let told: BTreeSet<u64> = pages.iter().flat_map(|page| page.records.iter().filter_map(seq)).collect();
    block.doubt.and(&Doubt::not_told(first + 1..(block.epoch + 1) << EPOCH_SHIFT, told))
}

/// What is in these clusters, to be merged by a cache when it is open. A store merges it here: until then it may be
/// refused, and large objects of which chunks are missing do not count.
fn gather(
    volume: &Parts,
    clusters: &scan::Clusters,
    deletes: &Deletes,
    checkpoint: (u64, &Begun),
    receipt: &mut VolumeReceipt,
) -> Result<Option<Merge>, Unfit> {
    let merge = scan::gather(volume, clusters, deletes, checkpoint, receipt)?;
    if volume.shared.options.mode == Mode::Cache {
        return Ok(Some(merge).filter(|merge| !merge.is_empty()));
    }
    merge.all(volume)?.add_to(receipt);
    Ok(None)
}

/// What the journal tells.
struct Told {
    deletes: Deletes,
    /// Clusters that may have been written since the checkpoint.
    clusters: scan::Clusters,
    /// Those that may have been written since the one before it.
    young: BTreeSet<u32>,
    /// Whether something was deleted since the checkpoint.
    deleted: bool,
}

/// Reads the records; `start` is the checkpoint's first page, and `begun` what was so when it began.
fn told(volume: &Parts, pages: &[Page], start: u64, begun: &Begun) -> Told {
    let mut deletes = Deletes::default();
    let mut clusters = scan::Clusters::new();
    let mut young = BTreeSet::new();
    let mut deleted = false;
    let mut pinned = Reader::default();
    for (since, record) in pages.iter().flat_map(|page| page.records.iter().map(|record| (page.seq >= start, *record)))
    {
        if since {
            pinned.next(&record, &volume.shared.pins);
        }
        match record {
            Record::Reserve { cluster, seq } if cluster < volume.space.count() => {
                young.insert(cluster);
                if since && !begun.covers(seq) {
                    clusters.insert(cluster, Some(seq));
                }
            }
            // The earlier ones too: a slow buffer of this time may hold what was deleted before. Generations
            // keep them from taking more.
            Record::Delete { hash, generation, .. } => {
                deleted |= since;
                deletes.note(hash, generation);
            }
            Record::Group(group) if since => volume.shared.groups.restore(group),
            _ => {}
        }
    }
    Told { deletes, clusters, young, deleted }
}

/// What was pinned when an opening began to empty the volume and was cut short, as far as it can be read.
fn restore_pins(volume: &Parts, block: &Superblock, ring: &Ring) {
    let Ok(Some((reference, _))) = load_newest(volume, block, &mut VolumeReceipt::default()) else { return };
    let mut pinned = Reader::default();
    let records = ring.run(reference.journal_start).flat_map(|page| &page.records);
    records.for_each(|record| pinned.next(record, &volume.shared.pins));
}

/// Nothing can be trusted: a cache starts empty, a store is refused. So is a cache whose device reads nothing at all,
/// not even the superblock that was read a moment ago: that is a cable or a controller, what is on the device is as
/// good as ever, and to start empty would write over it. One bad place is no such reason, for it does not heal, and the
/// cache would never open again.
fn cold_start(volume: &Parts, why: Unfit, ring: Ring, receipt: &mut VolumeReceipt) -> Result<Recovered> {
    let why = match (why, volume.shared.options.mode) {
        (Unfit::Damaged(why), Mode::Store) => {
            let mend = "what was deleted or replaced could come back, so it is not opened; restore it from a copy, or remove it to start empty";
            return Err(Error::Damaged { place: volume.medium.place.clone(), why, mend: mend.into() });
        }
        (Unfit::Refused(error), Mode::Store) => return Err(error),
        (Unfit::Refused(error), Mode::Cache) if is_gone(volume) => return Err(error),
        (why, Mode::Cache) => why,
    };
    volume.catalog.index.update_all(|_| IndexEntry::EMPTY);
    receipt.dropped.cold_start = true;
    receipt.checkpoint = "none";
    receipt.note("", &why);
    // Its checkpoints stay until there is another.
    let block = volume.log.superblock();
    let own = |reference| own_clusters(reference, load_directory(volume, reference).ok().as_ref()).into_keys();
    let mut old: Vec<u32> = block.current.into_iter().chain(block.previous).flat_map(own).collect();
    old.retain(|id| *id < volume.space.count());
    old.iter().for_each(|id| volume.space.set(*id, State::Checkpoint));
    // A later page number than any on the device, so that none of them is taken for new.
    let next = ring.beyond();
    let journal = Journal::new(volume.medium.map(), volume.medium.store_id, next, next, next);
    let checkpointer = CheckpointState::restored(Vec::new(), old, 0);
    Ok(Recovered { journal, ring, checkpointer, merge: None, known: Known::default(), clean: false, cold: true })
}

/// Whether the device does not even read what it has just read.
fn is_gone(volume: &Parts) -> bool {
    let mut block = volume.shared.pool.take(BLOCK);
    (0..2).all(|slot| read_twice(&*volume.medium.device, Map::superblock(slot), &mut block).is_err())
}

/// The newer intact hot log: its number, and the places it names.
fn read_hot_log(volume: &Parts) -> (u64, Vec<u64>) {
    let read = |slot| {
        let mut buf = volume.shared.pool.take(HOT_SLOT as usize);
        volume.medium.device.read(Map::hot(slot), &mut buf).ok()?;
        hot::decode(&buf).ok().filter(|(_, store, _)| *store == volume.medium.store_id)
    };
    (0..2).filter_map(read).max_by_key(|(seq, _, _)| *seq).map_or((0, Vec::new()), |(seq, _, words)| (seq, words))
}
