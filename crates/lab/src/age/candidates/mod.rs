//! What is aged: stores of today, each with its own idiom for a safe write, behind one seam.

mod candidate;
mod folder;
mod lmdb;
mod modelled;
mod mounted;
mod picaflor;
mod postgres;
mod rocksdb;
mod sqlite;
mod volume;

use std::path::Path;

pub use volume::{can_mount, unmount_all};

pub(super) use self::candidate::{Candidate, Located, Manner, Write, Wrote};
pub(super) use self::postgres::is_installed as postgres_is_installed;
pub(super) use self::rocksdb::is_installed as rocksdb_is_installed;
pub(super) use self::volume::{Volume, check_zram};
use super::{
    kind::Kind,
    spec::{Case, Medium},
};
use crate::Result;

/// Makes the store of a case in a folder. What it makes there is gone when the store is dropped, and then the volume
/// that was made for it on compressed memory.
pub(super) fn open(case: &Case, folder: &Path) -> Result<(Box<dyn Candidate>, Option<Volume>)> {
    if case.on == Medium::Folder || case.candidate.needs_root() {
        return Ok((open_in(case, folder)?, None));
    }
    // Logs and what a database writes anew before it is full are beside what it may keep.
    let volume = Volume::new(case.on, case.volume / 8 * 9 + (1 << 30), folder, volume::FEW_FILES)?;
    Ok((open_in(case, &volume.mount())?, Some(volume)))
}

fn open_in(case: &Case, folder: &Path) -> Result<Box<dyn Candidate>> {
    Ok(match case.candidate {
        Kind::Folder => Box::new(folder::Files::in_folder(folder)?),
        Kind::Ext4 | Kind::Xfs | Kind::Btrfs => Box::new(mounted::Mounted::new(case, folder)?),
        Kind::Lmdb => Box::new(lmdb::Lmdb::new(case, folder)?),
        Kind::Postgres | Kind::PostgresLarge => Box::new(postgres::Postgres::new(case, folder)?),
        Kind::ModelUfs | Kind::ModelNtfs => Box::new(modelled::Modelled::new(case)?),
        Kind::RocksDb => Box::new(rocksdb::RocksDb::new(case, folder)?),
        Kind::Sqlite => Box::new(sqlite::Database::new(case, folder)?),
        _ => Box::new(picaflor::Engine::new(case, folder)?),
    })
}
