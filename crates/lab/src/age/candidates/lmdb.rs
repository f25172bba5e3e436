//! An entry for each object in an LMDB database; a safe write is a transaction.
//!
//! A value is given whole, and LMDB looks for as many free pages side by side as it takes: there are no requests, and
//! nothing to announce. Pages of what was replaced are free for the next transaction but one. The map is as large as
//! the volume, the file as it has to be; objects that are written at one time are entries of one transaction.

use std::path::{Path, PathBuf};

use lmdb::{Database, Environment, EnvironmentFlags, Error as LmdbError, Transaction, WriteFlags};

use super::candidate::{Candidate, Located, Manner, Write, Wrote, force_and_forget};
use crate::{
    Error, Result,
    age::{load::Load, marks, spec::Case},
    run::Kept,
};

pub(super) struct Lmdb {
    path: PathBuf,
    environment: Environment,
    database: Database,
    _kept: Kept,
}

fn failed(error: LmdbError) -> Error {
    Error::experiment("lmdb", error.to_string())
}

fn key(object: u32) -> [u8; 4] {
    object.to_be_bytes()
}

impl Lmdb {
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
        let kept = Kept::made_in(folder)?;
        let size = usize::try_from(case.volume / 4096 * 4096)
            .map_err(|_| Error::experiment("lmdb", "a map of this size is more than a process here can have"))?;
        // Reads are random. Each commit syncs: that is the default.
        let flags = EnvironmentFlags::NO_READAHEAD | EnvironmentFlags::NO_TLS;
        let environment = Environment::new().set_flags(flags).set_map_size(size).open(kept.path()).map_err(failed)?;
        let database = environment.open_db(None).map_err(failed)?;
        Ok(Self { path: kept.path().join("data.mdb"), environment, database, _kept: kept })
    }

    fn try_write(&self, writes: &[Write<'_>]) -> lmdb::Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        for write in writes {
            transaction.put(self.database, &key(write.version.object), &write.body, WriteFlags::empty())?;
        }
        transaction.commit()
    }

    fn try_delete(&self, object: u32) -> lmdb::Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        transaction.del(self.database, &key(object), None)?;
        transaction.commit()
    }
}

impl Candidate for Lmdb {
    fn write(&mut self, writes: &[Write<'_>], _: &Manner) -> Result<Wrote> {
        match self.try_write(writes) {
            Ok(()) => Ok(Wrote::Done),
            Err(error @ LmdbError::MapFull) => Ok(Wrote::Full(error.to_string())),
            Err(error) => Err(failed(error)),
        }
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.try_delete(object).map_err(failed)
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.environment.begin_ro_txn().map_err(failed)?;
        into.clear();
        match transaction.get(self.database, &key(object)) {
            Ok(body) => into.extend_from_slice(body),
            Err(LmdbError::NotFound) => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        self.environment.sync(true).map_err(failed)?;
        force_and_forget(&self.path)
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan(&self.path, load)?), told: None })
    }
}
