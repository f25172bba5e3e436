//! A volume is built: from the floor up, each part on those below it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64},
};

use picaflor_common::Hasher;
use picaflor_device::{Device, Folder};
use picaflor_format::{
    BLOCK,
    doubt::Doubt,
    frame::GRAIN,
    superblock::{Layout, Spread as OnDevice, Superblock},
    zone::Map,
};

use super::{
    folder,
    found::{EPOCH_SHIFT, Found, Identity},
    validate,
};
use crate::{
    Mode, Result,
    background::reclaim::Reclaimer,
    background::room::Room,
    background::scrub::{Scrub, Scrubber},
    base::column::Column,
    base::medium::Medium,
    base::options::THRESHOLD,
    base::places::PlacesGround,
    base::policy::Eviction,
    cache::buffers::Buffers,
    cache::catalog::Catalog,
    cache::cluster_contents::ClusterContents,
    cache::large::Large,
    cache::pages::{PAGE_MIN, Pages},
    cache::residents::{Residents, open_slots},
    index::{Index, SLOTS_MAX},
    log::checkpoint::{CheckpointState, Checkpointer},
    log::hot::HotLog,
    log::known::Known,
    log::recorder::{Log, SuperblockHome},
    read::batch::ReadBatch,
    read::parts::Parts,
    read::reading::Reader,
    read::tables::Tables,
    read::verify::Frames,
    recovery::superblock::write_superblock,
    shared::Shared,
    space::{LayoutKind, Space},
    volume::Volume,
    write::append::Appender,
    write::append::lanes,
    write::flush::Committer,
    write::packing::Packer,
    write::packing::lets_wait,
    write::placement::Placer,
};

pub(super) fn fresh(found: &Found, shared: &Shared, identity: &Identity, number: usize) -> Superblock {
    let each = shared.options.capacity / u64::from(identity.count);
    let limit = if each == 0 { found.device.capacity() } else { each.min(found.device.capacity()) };
    let layout = shared.preset.on_device();
    let capacity = validate::capacity_within(limit, shared.preset.layout);
    Superblock {
        seq: 0,
        store: identity.store,
        seed: identity.seed,
        capacity,
        made_with: 0,
        cluster: identity.cluster,
        segment_bits: Index::segment_bits(capacity, shared.options.memory / u64::from(identity.count)),
        volume: (number as u32, identity.count),
        spread: if identity.count == 1 { OnDevice::None } else { shared.options.spread.on_device() },
        epoch: 0,
        mode: shared.options.mode as u32,
        current: None,
        previous: None,
        lost: 0,
        durable: 0,
        sealed_below: 0,
        doubt: Doubt::default(),
        running: false,
        layout,
        preset: shared.preset.number(),
        threshold: if matches!(layout, Layout::Slots | Layout::SlotsScanned) { shared.options.threshold } else { 0 },
        long_files: found.long_files.is_some(),
    }
}

/// The clusters of a volume, all of them free, with what its preset notes of them.
fn space_of(shared: &Shared, map: &Map) -> Space {
    let options = &shared.options;
    let eviction = shared.preset.eviction(options.mode);
    let space = Space::new(
        if shared.preset.layout == LayoutKind::Ring { map.cluster_count() } else { map.in_place().0 },
        map.cluster / GRAIN as u32,
        (options.next_cluster, options.groups),
        eviction == Eviction::LruCluster,
    );
    let space = if eviction.has_queues() { space.with_queues() } else { space };
    let space = if shared.preset.has_places() { space.with_places() } else { space };
    if options.cluster_age.limit().is_some() { space.aging_from(shared.second()) } else { space }
}

/// The parts that all others stand on, and how many lanes there are.
pub(super) fn build(
    number: usize,
    found: Found,
    shared: &Arc<Shared>,
    identity: &Identity,
    superblock: Superblock,
) -> Result<(Parts, usize)> {
    let map = validate::map_of(&superblock)?;
    let options = &shared.options;
    let cluster = u64::from(map.cluster);
    let count = map.cluster_count();
    let threshold = if superblock.threshold == 0 { THRESHOLD } else { superblock.threshold };
    let notes_use = shared.preset.eviction(options.mode) == Eviction::LruCluster;
    let packs = lets_wait(shared.preset.placement, options.mode).then_some(options.pack_order);
    let divides = shared.preset.has_pages();
    validate::count_tables(options, &shared.index_bytes, &found.place, superblock.segment_bits, count)?;
    let space = Arc::new(space_of(shared, &map));
    let medium = Arc::new(Medium {
        number,
        place: found.place,
        device: found.device,
        room: found.room,
        map_at_opening: map,
        clusters: AtomicU32::new(count),
        hasher: Hasher::new(superblock.seed),
        store_id: superblock.store as u64,
        pool: shared.pool.clone(),
        counters: Arc::clone(&shared.counters),
    });
    let home = superblock_home(found.folder.as_ref(), &medium.device);
    let log = Arc::new(Log::new((&medium, shared), &space, (superblock, home), identity.epoch << EPOCH_SHIFT));
    let places = match shared.preset.layout {
        LayoutKind::Places(places) => Some((places.open)(PlacesGround {
            medium: Arc::clone(&medium),
            env: Arc::clone(shared) as _,
            log: Arc::clone(&log) as _,
            folder: found.folder.or(found.long_files),
            threshold,
        })),
        LayoutKind::Ring | LayoutKind::Other(_) => None,
    };
    // Open buffers, two to a lane, take at most a quarter of the device too.
    let lanes = match &places {
        Some(places) => places.lanes(),
        None => lanes(options).min(u64::from(count) / 8).max(1),
    } as usize;
    // A page takes a slot as a cluster does.
    let least = if divides { u64::from(PAGE_MIN) } else { cluster };
    let slots = ((options.memory / least) as usize + 2 * lanes + 32).min(SLOTS_MAX);
    let index = Index::new(superblock.segment_bits, Arc::clone(&shared.index_bytes));
    let (told_apart_by, counters) = (index.told_apart_by(), Arc::clone(&shared.counters));
    let placer = Placer::new(shared.preset.placement, lanes, shared.hints_max(), told_apart_by, counters);
    let goes_by_index = options.mode == Mode::Cache && places.is_none();
    let catalog = Arc::new(Catalog {
        medium: Arc::clone(&medium),
        shared: Arc::clone(shared),
        index,
        large: Large::new(if goes_by_index { count } else { 0 }, told_apart_by),
        space: Arc::clone(&space),
        buffers: Buffers::new(slots, shared.memory.retention.holds_clusters(), packs),
        placer,
        places,
        tight: AtomicU64::new(u64::MAX),
    });
    let residents = Arc::new(Residents {
        medium: Arc::clone(&medium),
        shared: Arc::clone(shared),
        catalog: Arc::clone(&catalog),
        space: Arc::clone(&space),
        reader: Reader::new(shared.preset.reading),
        // Elsewhere the keys of what leaves are wanted, which are in the cluster only.
        listed: (notes_use && options.eviction_listener.is_none())
            .then(|| ClusterContents::new(Arc::clone(&shared.index_bytes))),
        classes: Column::new(count, AtomicU16::default),
        pages: Pages::new(&medium, shared),
        open_slots: open_slots(lanes),
        checkpoint_held: AtomicU32::new(0),
    });
    let frames = Arc::new(Frames {
        medium: Arc::clone(&medium),
        shared: Arc::clone(shared),
        catalog: Arc::clone(&catalog),
        tables: Tables { catalog: Arc::clone(&catalog) },
        streams_open: AtomicU32::new(0),
    });
    let shared = Arc::clone(shared);
    Ok((Parts { medium, shared, log, space, catalog, residents, frames }, lanes))
}

/// Where the parts that work beside the verbs begin.
#[derive(Default)]
pub(super) struct Begin {
    pub(super) checkpointer: CheckpointState,
    /// Number of the newest hot log.
    pub(super) hot_seq: u64,
    pub(super) known: Known,
    /// Places to warm, and whether everything is then verified.
    pub(super) scrub: (Vec<u64>, bool),
}

/// The parts that write, and what works beside the verbs, on those that are there.
pub(super) fn assemble(parts: Parts, lanes: usize, begin: Begin) -> Volume {
    let Begin { checkpointer, hot_seq, known, scrub: (hot, verify) } = begin;
    let appender = Arc::new(Appender::new(&parts, lanes));
    let packer = Arc::new(Packer::new(&parts, &appender));
    let committer = Arc::new(Committer::new(&parts, &packer));
    let hot_log = HotLog::new(&parts, hot_seq);
    let checkpointer = Arc::new(Checkpointer::new(&parts, &committer, (checkpointer, hot_log)));
    let reclaimer = Reclaimer::new(&parts, &checkpointer);
    let room = Arc::new(Room::new(&parts, reclaimer));
    let (batch, scrubber) = (ReadBatch::new(&parts), Scrubber::new(&parts, known, Scrub::new(hot, verify)));
    let Parts { medium, shared, log, space, catalog, residents, frames } = parts;
    Volume {
        medium,
        log,
        catalog,
        residents,
        frames,
        appender,
        packer,
        committer,
        space,
        checkpointer,
        room,
        batch,
        scrubber,
        loss_noted: AtomicBool::new(false),
        shared,
    }
}

/// Where superblocks go: beside the objects where these are files, else to the device.
fn superblock_home(folder: Option<&Arc<dyn Folder>>, device: &Arc<dyn Device>) -> SuperblockHome {
    if let Some(folder) = folder.cloned() {
        return Box::new(move |block| {
            let mut buf = [0; BLOCK];
            block.encode(&mut buf);
            folder::write_superblock(&*folder, block.seq, &buf)
        });
    }
    let device = Arc::clone(device);
    Box::new(move |block| write_superblock(&*device, block))
}
