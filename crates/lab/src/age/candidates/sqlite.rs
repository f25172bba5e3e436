//! A row for each object in a SQLite database with a write-ahead log; a safe write is a transaction.
//!
//! A value is bound whole: SQLite knows its length before it takes the first page for it. There are no requests, and
//! objects that are written at one time are rows of one transaction. The database is as large as it has to be: freed
//! pages are used again before it grows, and it may not grow beyond the volume.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::candidate::{Candidate, Located, Manner, Write, Wrote, force_and_forget};
use crate::{
    Error, Result,
    age::{load::Load, marks, spec::Case},
    run::Kept,
};

/// SQLite's default.
const PAGE: u64 = 4096;

pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    _kept: Kept,
}

fn failed(error: rusqlite::Error) -> Error {
    Error::experiment("sqlite", error.to_string())
}

impl Database {
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
        let kept = Kept::made_in(folder)?;
        let path = kept.path().join("objects.sqlite");
        let connection = Connection::open(&path).map_err(failed)?;
        let pages = case.volume / PAGE;
        let setup = format!(
            "PRAGMA page_size = {PAGE}; PRAGMA journal_mode = wal; PRAGMA synchronous = full; \
             PRAGMA max_page_count = {pages}; CREATE TABLE objects (id INTEGER PRIMARY KEY, body BLOB NOT NULL);"
        );
        connection.execute_batch(&setup).map_err(failed)?;
        Ok(Self { path, connection, _kept: kept })
    }

    fn try_write(&mut self, writes: &[Write<'_>]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("REPLACE INTO objects (id, body) VALUES (?1, ?2)")?;
            for write in writes {
                insert.execute(params![write.version.object, write.body])?;
            }
        }
        transaction.commit()
    }
}

impl Candidate for Database {
    fn write(&mut self, writes: &[Write<'_>], _: &Manner) -> Result<Wrote> {
        match self.try_write(writes) {
            Ok(()) => Ok(Wrote::Done),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => Ok(Wrote::Full(error.to_string())),
            Err(error) => Err(failed(error)),
        }
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.connection.execute("DELETE FROM objects WHERE id = ?1", [object]).map(drop).map_err(failed)
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        let mut select = self.connection.prepare_cached("SELECT body FROM objects WHERE id = ?1").map_err(failed)?;
        let copy = |row: &rusqlite::Row<'_>| {
            into.clear();
            into.extend_from_slice(row.get_ref(0)?.as_blob()?);
            Ok(())
        };
        Ok(select.query_row([object], copy).optional().map_err(failed)?.is_some())
    }

    fn settle(&mut self) -> Result<()> {
        self.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA shrink_memory;").map_err(failed)?;
        force_and_forget(&self.path)
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan(&self.path, load)?), told: None })
    }
}
