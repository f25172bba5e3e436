//! Opening: superblock → a rehearsal → a new epoch in the superblock → the tables → settings of groups → ready. No
//! object is read.
//!
//! Invariants: a place that is refused is as it was: whatever could be refused is refused by the rehearsal, which opens
//! the tables on a section of the device that keeps what is written to it in memory; and so does who may not write. The
//! superblock is durable before the first byte of the blocks; it says that the tables are there only when they are, and
//! from then on blank homes are damage, not a new place.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::{Condvar, Mutex};
use picaflor_common::Hasher;
use picaflor_device::{AlignedBuf, CountedDevice, Device, Section};
use picaflor_format::{
    BLOCK,
    journal::Group,
    superblock::{Layout, Superblock},
    tabled::{CHUNKS, GROUPS, LARGE, OBJECTS, decode_group, encode_group},
    zone::BLOCKS_START,
};
use picaflor_table::{
    blocks::{BlockOptions, Method},
    htod::{Batch, Durable, HashTables, HtodOptions, HtodReceipt, Table},
};

use picaflor::{
    Error, Result, VolumeReceipt,
    layout::{Env, Layout as _, LayoutPlace, Placement, write_superblock},
};

use super::{Rest, TableLayout, error::of_table, room::Room};
use crate::piece::payload_max;

/// The part of the memory that index pages may take.
const CACHE_SHARE: u64 = 4;

impl TableLayout {
    /// Opens the place, or makes one.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if the tables are not there, or not intact.
    pub(super) fn open(place: LayoutPlace, env: Arc<dyn Env>) -> Result<(Self, VolumeReceipt)> {
        let LayoutPlace { name, device, mut superblock, is_new, doubtful, epoch } = place;
        let method = method_of(superblock.layout);
        let (had_tables, read_only) = (superblock.durable != 0, env.read_only());
        (superblock.epoch, superblock.preset) = (epoch, env.preset_number());
        let write = |block: &mut Superblock| {
            block.seq += 1;
            write_superblock(&*device, block)
                .map_err(|error| Error::io(format!("{name}: writing the superblock"), error))
        };
        let section = Section::new(Arc::clone(&device), BLOCKS_START..superblock.capacity)
            .map_err(|error| Error::io(format!("{name}: the part of the blocks"), error))?;
        let room = section.capacity();
        if had_tables && !read_only {
            Opened::open(Arc::new(section.clone().read_only()), method, &*env, &superblock)?;
        }
        let section = if read_only {
            section.read_only()
        } else {
            for _ in 0..=usize::from(doubtful) {
                write(&mut superblock)?;
            }
            if !had_tables {
                // What an opening left that was cut short may not be durable though it is seen: a failed sync does so.
                let wiped = section.write(0, &AlignedBuf::zeroed(2 * BLOCK)).and_then(|()| section.sync());
                wiped.map_err(|error| Error::io(format!("{name}: clearing the homes of the blocks"), error))?;
            }
            section
        };
        let counted = CountedDevice::new(Arc::new(section));
        let opened = Opened::open(Arc::new(counted.clone()), method, &*env, &superblock)?;
        let Opened { tables, objects, chunks, large, groups, settings, receipt } = opened;
        settings.into_iter().for_each(|group| env.restore_group(group));
        let layout = Self {
            objects,
            chunks,
            large,
            groups,
            hasher: Hasher::new(superblock.seed),
            payload_max: payload_max(&*env, room),
            put_room: Room::new(env.memory()),
            stamps: (0..env.stripes()).map(|_| AtomicU64::new(0)).collect(),
            under_way: Mutex::new(HashSet::new()),
            may_have_orphans: AtomicBool::new(!receipt.clean && !read_only),
            rest: Mutex::new(Rest::default()),
            stirred: Condvar::new(),
            device: Arc::clone(&device),
            place: name.clone(),
            counted,
            room,
            tables,
            env,
        };
        if !had_tables && !read_only {
            superblock.durable = 1;
            // Both, before anything is acknowledged: whichever of them is read later, it says so.
            write(&mut superblock)?;
            write(&mut superblock)?;
        }
        layout.account();
        let mut of_volume = VolumeReceipt::default();
        (of_volume.place, of_volume.created, of_volume.clean) = (name, is_new, receipt.clean);
        (of_volume.checkpoint, of_volume.objects) = ("tables", layout.objects());
        Ok((layout, of_volume))
    }

    /// Keeps the settings of a group, durably.
    ///
    /// # Errors
    /// As [`Layout::insert`](picaflor::layout::Layout::insert).
    pub(super) fn keep_group(&self, group: &Group) -> Result<()> {
        let (key, value) = encode_group(group);
        self.groups.put(&key, &value).map_err(of_table)
    }
}

/// What is read of the blocks before the first verb.
struct Opened {
    tables: HashTables,
    objects: Table,
    chunks: Table,
    large: Table,
    groups: Table,
    settings: Vec<Group>,
    receipt: HtodReceipt,
}

impl Opened {
    fn open(device: Arc<dyn Device>, method: Method, env: &dyn Env, block: &Superblock) -> Result<Self> {
        let mut blocks = if env.splits_first() { BlockOptions::sparing() } else { BlockOptions::default() };
        blocks.method = method;
        blocks.pool = (env.memory() / 16).min(4 << 20) as usize;
        blocks.create = block.durable == 0;
        let cache = (env.memory() / CACHE_SHARE) as usize;
        let batch = if env.placement() == Placement::Batch { Batch::BestFit } else { Batch::ByLists };
        let htod = HtodOptions { cache, durable: Durable::EachCall, seed: Some(block.seed), batch };
        let (tables, receipt) = HashTables::open(device, blocks, htod).map_err(of_table)?;
        let table = |name| {
            let table = if block.durable == 0 { tables.table(name) } else { tables.table_made(name) };
            table.map_err(of_table)
        };
        let groups = table(GROUPS)?;
        let settings: Vec<_> = tables.with_rebuilt(|| groups.pairs().collect()).map_err(of_table)?;
        Ok(Self {
            objects: table(OBJECTS)?,
            chunks: table(CHUNKS)?,
            large: table(LARGE)?,
            settings: decode_settings(&settings)?,
            groups,
            receipt,
            tables,
        })
    }
}

/// How blocks are found again after a crash.
fn method_of(layout: Layout) -> Method {
    match layout {
        Layout::BlocksTs => Method::Ts,
        Layout::BlocksPl => Method::Pl,
        _ => Method::Pfl,
    }
}

fn decode_settings(pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<Group>> {
    let read = pairs.iter().map(|(key, value)| {
        decode_group(key, value).map_err(|why| Error::Damaged {
            place: "settings of a group".into(),
            why: why.to_string(),
            mend: "restore a copy of the store".into(),
        })
    });
    read.collect()
}
