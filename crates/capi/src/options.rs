//! The option structs of the header: all zeros are the defaults, and what is not one of the header's values is refused.

use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

use bytes::Bytes;
use picaflor::{
    ClusterAge, Daemons, Durability, Expiry, Mode, NextCluster, Options, PackOrder, Place, PutOptions, Reopening,
};

use crate::{
    code::Failure,
    raw::{self, Growing},
};

/// `picaflor_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct COptions {
    /// Bytes of the struct.
    pub size: usize,
    /// Name of a preset; null is the default one.
    pub preset: *const c_char,
    /// Device bytes; 0 is the file's own size, 1 GiB for a new one.
    pub capacity: u64,
    /// Bytes of memory; 0 is 256 MiB.
    pub memory: u64,
    /// 0 cache, 1 store.
    pub mode: u32,
    /// 0 bounded, 1 every put, 2 none.
    pub durability: u32,
    /// Milliseconds of the bound; 0 is 1,000.
    pub bound_time: u64,
    /// Puts of the bound; 0 is any number.
    pub bound_puts: u64,
    /// Milliseconds that a delete may be volatile; 0 is 1,000.
    pub delete_time: u64,
    /// Deletes that may be volatile; 0 is 1,000.
    pub delete_count: u64,
    /// Milliseconds until an object expires that was put without an expiry; 0 is never.
    pub default_ttl: u64,
    /// Bytes of a cluster; 0 is 256 KiB.
    pub cluster: u32,
    /// Open buffers; 0 is the preset's own number.
    pub open_buffers: u32,
    /// Not 0: not a byte is written.
    pub read_only: u32,
    /// How many more places there are.
    pub more_count: u32,
    /// The other devices of a store on several.
    pub more_places: *const *const c_char,
    /// 0 as the preset has it, 1 at once, 2 in steps.
    pub reopening: u32,
    /// Padding in interfaces before: not looked at.
    pub reserved: u32,
    /// Bytes of objects that may wait to be packed; 0 is as the preset says.
    pub unpacked: u64,
    /// 0 least recently used first, 1 most recently used, 2 greedy dual size.
    pub pack_order: u32,
    /// 0 as the preset has it, 1 overwrite, 2 closest to the last write, 3 to the last access, 4 in the group's region.
    pub next_cluster: u32,
    /// 0 never, 1 since it was written, 2 since it was used.
    pub cluster_age: u32,
    /// 0 threads of the library, 1 calls of `picaflor_run_daemon`.
    pub daemons: u32,
    /// Milliseconds of the age.
    pub cluster_age_time: u64,
}

// SAFETY: numbers and pointers are values whatever their bits are, and `size` comes first.
unsafe impl Growing for COptions {
    const ZERO: Self = Self {
        size: 0,
        preset: std::ptr::null(),
        capacity: 0,
        memory: 0,
        mode: 0,
        durability: 0,
        bound_time: 0,
        bound_puts: 0,
        delete_time: 0,
        delete_count: 0,
        default_ttl: 0,
        cluster: 0,
        open_buffers: 0,
        read_only: 0,
        more_count: 0,
        more_places: std::ptr::null(),
        reopening: 0,
        reserved: 0,
        unpacked: 0,
        pack_order: 0,
        next_cluster: 0,
        cluster_age: 0,
        daemons: 0,
        cluster_age_time: 0,
    };
}

/// `picaflor_write_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CWriteOptions {
    /// Bytes of the struct.
    pub size: usize,
    /// The group; 0 is none.
    pub group: u32,
    /// Hash of the origin server's name; 0 is unknown.
    pub server: u32,
    /// Milliseconds from now until it expires; 0 is as the store says.
    pub ttl: u64,
    /// Bytes kept beside the object.
    pub metadata: *const c_void,
    /// How many.
    pub metadata_len: usize,
    /// Key of an object to lie beside.
    pub neighbour: *const c_void,
    /// Its length; 0 is none.
    pub neighbour_len: usize,
    /// Not 0: `PICAFLOR_BUSY` rather than wait.
    pub no_wait: u32,
    /// Padding in interfaces before: not looked at.
    pub reserved: u32,
}

// SAFETY: numbers and pointers are values whatever their bits are, and `size` comes first.
unsafe impl Growing for CWriteOptions {
    const ZERO: Self = Self {
        size: 0,
        group: 0,
        server: 0,
        ttl: 0,
        metadata: std::ptr::null(),
        metadata_len: 0,
        neighbour: std::ptr::null(),
        neighbour_len: 0,
        no_wait: 0,
        reserved: 0,
    };
}

/// The engine's options for what the caller asks.
///
/// # Safety
/// As the header says of `picaflor_open`'s parameters.
pub(crate) unsafe fn opening(path: *const c_char, options: *const COptions) -> Result<Options, Failure> {
    // SAFETY: the caller of this function answers for its pointers, and each is read as the header says it may be:
    // texts to their zero byte, options to their size, `more_places` to `more_count`.
    unsafe {
        let given = raw::options("options", options)?;
        let preset = raw::text("options.preset", given.preset)?.unwrap_or("picaflor");
        let mut made = picaflor_literature::preset(preset)?.place(raw::path("path", path)?);
        let count = given.more_count as usize;
        if count > 0 && (given.more_places.is_null() || !given.more_places.is_aligned()) {
            return Err(Failure::invalid("options.more_places is a null pointer, or not aligned"));
        }
        for at in 0..count {
            let more = raw::path("options.more_places", given.more_places.add(at).read())?;
            made.places.push(Place::Path(more.into()));
        }
        fill(&mut made, &given)?;
        Ok(made)
    }
}

/// A number that the header does not have where it lists all there are.
pub(crate) fn unknown(what: &str, value: u32) -> Failure {
    Failure::invalid(format!("{what} is {value}, which the header does not have"))
}

fn or(given: u64, default: u64) -> u64 {
    if given == 0 { default } else { given }
}

fn fill(made: &mut Options, given: &COptions) -> Result<(), Failure> {
    made.capacity = given.capacity;
    made.memory = or(given.memory, made.memory);
    made.mode = match given.mode {
        0 => Mode::Cache,
        1 => Mode::Store,
        other => return Err(unknown("options.mode", other)),
    };
    made.durability = match given.durability {
        0 => Durability::Bounded {
            time: Duration::from_millis(or(given.bound_time, 1000)),
            puts: or(given.bound_puts, u64::MAX),
        },
        1 => Durability::EveryPut,
        2 => Durability::None,
        other => return Err(unknown("options.durability", other)),
    };
    made.delete_time = Duration::from_millis(or(given.delete_time, made.delete_time.as_millis() as u64));
    made.delete_count = or(given.delete_count, made.delete_count);
    made.default_ttl = (given.default_ttl != 0).then(|| Duration::from_millis(given.default_ttl));
    made.reopening = match given.reopening {
        0 => made.reopening,
        1 => Reopening::AtOnce,
        2 => Reopening::InSteps,
        other => return Err(unknown("options.reopening", other)),
    };
    if given.cluster != 0 {
        made.cluster = given.cluster;
    }
    if given.open_buffers != 0 {
        made.open_buffers = given.open_buffers as usize;
    }
    fill_layout(made, given)?;
    made.read_only = given.read_only != 0;
    if made.read_only {
        // A reader needs no daemons that tidy up.
        made.daemons = Daemons::Manual;
    }
    Ok(())
}

/// Where objects lie, when they leave, and which threads run the daemons.
fn fill_layout(made: &mut Options, given: &COptions) -> Result<(), Failure> {
    made.unpacked = or(given.unpacked, made.unpacked);
    made.pack_order = match given.pack_order {
        0 => made.pack_order,
        1 => PackOrder::LruHead,
        2 => PackOrder::GreedyDualSize,
        other => return Err(unknown("options.pack_order", other)),
    };
    made.next_cluster = match given.next_cluster {
        0 => made.next_cluster,
        1 => NextCluster::Overwrite,
        2 => NextCluster::ClosestToWrite,
        3 => NextCluster::ClosestToAccess,
        4 => NextCluster::InRegion,
        other => return Err(unknown("options.next_cluster", other)),
    };
    let age = Duration::from_millis(given.cluster_age_time);
    made.cluster_age = match given.cluster_age {
        0 => ClusterAge::Unlimited,
        1 => ClusterAge::Written(age),
        2 => ClusterAge::Unused(age),
        other => return Err(unknown("options.cluster_age", other)),
    };
    made.daemons = match given.daemons {
        0 => Daemons::Threads,
        1 => Daemons::Manual,
        other => return Err(unknown("options.daemons", other)),
    };
    Ok(())
}

/// The engine's options for a write.
///
/// # Safety
/// As the header says of `picaflor_write_options`.
pub(crate) unsafe fn writing(options: *const CWriteOptions) -> Result<PutOptions, Failure> {
    // SAFETY: the caller of this function answers for its pointers; each is read to the length beside it.
    unsafe {
        let given = raw::options("options", options)?;
        let metadata = raw::bytes("options.metadata", given.metadata, given.metadata_len)?;
        let neighbour = raw::bytes("options.neighbour", given.neighbour, given.neighbour_len)?;
        Ok(PutOptions::new()
            .metadata(Bytes::copy_from_slice(metadata))
            .expiry(if given.ttl == 0 { Expiry::Default } else { Expiry::After(Duration::from_millis(given.ttl)) })
            .group(given.group)
            .server(given.server)
            .maybe_neighbour((!neighbour.is_empty()).then(|| Bytes::copy_from_slice(neighbour)))
            .bypass_memory(false)
            .no_wait(given.no_wait != 0))
    }
}
