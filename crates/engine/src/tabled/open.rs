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
    superblock::Superblock,
    tabled::{CHUNKS, GROUPS, LARGE, OBJECTS, decode_group, encode_group},
    zone::BLOCKS_START,
};
use picaflor_table::{
    blocks::{BlockOptions, Method},
    htod::{Batch, Durable, HashTables, HtodOptions, HtodReceipt, Table},
};

use super::{Rest, Tabled, room::Room};
use crate::{
    Error, Options, Result,
    base::policy::Placement,
    in_place::place::payload_max,
    recovery::{VolumeReceipt, write_superblock},
    volume::{STRIPES, Shared},
};

/// The part of the memory that index pages may take.
const CACHE_SHARE: u64 = 4;

/// A place whose superblock was read, or is to be made.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// It is to be made.
    pub(crate) is_new: bool,
    /// Another superblock that is not intact may be newer: then both are written anew.
    pub(crate) doubtful: bool,
    /// The number of this opening.
    pub(crate) epoch: u64,
}

impl Tabled {
    /// Opens the place, or makes one.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if the tables are not there, or not intact.
    pub(crate) fn open(place: Place, method: Method, shared: &Arc<Shared>) -> Result<(Self, VolumeReceipt)> {
        let Place { name, device, mut superblock, is_new, doubtful, epoch } = place;
        let options = &shared.options;
        let had_tables = superblock.durable != 0;
        (superblock.epoch, superblock.preset) = (epoch, shared.preset.number());
        let write = |block: &mut Superblock| {
            block.seq += 1;
            write_superblock(&*device, block)
                .map_err(|error| Error::io(format!("{name}: writing the superblock"), error))
        };
        let section = Section::new(Arc::clone(&device), BLOCKS_START..superblock.capacity)
            .map_err(|error| Error::io(format!("{name}: the part of the blocks"), error))?;
        let room = section.capacity();
        if had_tables && !options.read_only {
            Tables::open(Arc::new(section.clone().read_only()), method, options, &superblock)?;
        }
        let section = if options.read_only {
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
        let opened = Tables::open(Arc::new(counted.clone()), method, options, &superblock)?;
        let Tables { tables, objects, chunks, large, groups, settings, receipt } = opened;
        settings.into_iter().for_each(|group| shared.groups.restore(group));
        let tabled = Self {
            objects,
            chunks,
            large,
            groups,
            hasher: Hasher::new(superblock.seed),
            payload_max: payload_max(options, room),
            put_room: Room::new(options.memory),
            stamps: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            under_way: Mutex::new(HashSet::new()),
            may_have_orphans: AtomicBool::new(!receipt.clean && !options.read_only),
            rest: Mutex::new(Rest::default()),
            stirred: Condvar::new(),
            shared: Arc::clone(shared),
            device: Arc::clone(&device),
            place: name.clone(),
            counted,
            room,
            tables,
        };
        if !had_tables && !options.read_only {
            superblock.durable = 1;
            // Both, before anything is acknowledged: whichever of them is read later, it says so.
            write(&mut superblock)?;
            write(&mut superblock)?;
        }
        tabled.account();
        let receipt = VolumeReceipt {
            place: name,
            created: is_new,
            clean: receipt.clean,
            checkpoint: "tables",
            objects: tabled.objects(),
            ..VolumeReceipt::default()
        };
        Ok((tabled, receipt))
    }

    /// Keeps the settings of a group, durably.
    ///
    /// # Errors
    /// As [`Tabled::put`].
    pub(crate) fn record_group(&self, group: &Group) -> Result<()> {
        let (key, value) = encode_group(group);
        Ok(self.groups.put(&key, &value)?)
    }
}

/// What is read of the blocks before the first verb.
struct Tables {
    tables: HashTables,
    objects: Table,
    chunks: Table,
    large: Table,
    groups: Table,
    settings: Vec<Group>,
    receipt: HtodReceipt,
}

impl Tables {
    fn open(device: Arc<dyn Device>, method: Method, options: &Options, block: &Superblock) -> Result<Self> {
        let mut blocks = BlockOptions::sparing();
        blocks.method = method;
        blocks.pool = (options.memory / 16).min(4 << 20) as usize;
        blocks.create = block.durable == 0;
        let cache = (options.memory / CACHE_SHARE) as usize;
        let batch = if options.preset.placement == Placement::Batch { Batch::BestFit } else { Batch::ByLists };
        let htod = HtodOptions { cache, durable: Durable::EachCall, seed: Some(block.seed), batch };
        let (tables, receipt) = HashTables::open(device, blocks, htod)?;
        let table = |name| if block.durable == 0 { tables.table(name) } else { tables.table_made(name) };
        let groups = table(GROUPS)?;
        let settings: Vec<_> = tables.with_rebuilt(|| groups.pairs().collect())?;
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
