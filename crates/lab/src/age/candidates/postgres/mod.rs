//! PostgreSQL, as Debian packages it; a safe write is a transaction that is durable when it commits. An object is a row
//! with a `bytea`, which PostgreSQL cuts into rows of 2 KB in a table of its own (TOAST), or a large object, whose
//! rows of 2 KB are in one table with those of all others. Pages fill from their end.
//!
//! A `bytea` is bound whole, so there are no requests; of a large object each is a call. Objects that are written at
//! one time are of one transaction. What was replaced is free after a vacuum. The server's own comes by the clock, so
//! it is off, and one is run when it would be due: at a fifth of the objects. The tables grow as they have to; beyond
//! the volume they are full.

mod server;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use ::postgres::{Client, error::SqlState};

pub(in crate::age) use self::server::is_installed;
use self::server::{Server, refused};
use super::candidate::{Candidate, Located, Manner, Write, Wrote, force_and_forget};
use crate::{
    Result,
    age::{kind::Kind, load::Load, marks, spec::Case},
};

/// Bytes of a page.
const PAGE: u64 = 8192;
/// Dead objects for each 100 that live at which the server would vacuum.
const DEAD: u64 = 20;
/// Times that the size of the tables is asked for, while as much is written as the volume has.
const ASKED: u64 = 64;
/// `INV_WRITE`.
const FOR_WRITING: i32 = 0x20000;

pub(super) struct Postgres {
    client: Client,
    /// Whether objects are large objects.
    is_large: bool,
    volume: u64,
    written: u64,
    live: HashSet<u32>,
    /// Rows that are dead since the last vacuum.
    dead: u64,
    // After the client it goes.
    server: Server,
}

impl Postgres {
    /// With a column for each object's bytes, or large objects.
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
        let mut server = Server::start(folder)?;
        let mut client = server.connect()?;
        let is_large = case.candidate == Kind::PostgresLarge;
        let column = if is_large { "oid" } else { "bytea" };
        let mut table = format!("CREATE TABLE objects (id bigint PRIMARY KEY, body {column} NOT NULL);");
        if !is_large {
            table.push_str("ALTER TABLE objects ALTER body SET STORAGE EXTERNAL;");
        }
        client.batch_execute(&table).map_err(refused)?;
        let (volume, live) = (case.volume, HashSet::new());
        Ok(Self { client, is_large, volume, written: 0, live, dead: 0, server })
    }

    fn try_write(&mut self, writes: &[Write<'_>], manner: &Manner) -> std::result::Result<(), ::postgres::Error> {
        if self.is_large {
            return self.try_write_large(writes, manner);
        }
        let mut transaction = self.client.transaction()?;
        let insert = "INSERT INTO objects VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body";
        for write in writes {
            transaction.execute(insert, &[&i64::from(write.version.object), &write.body])?;
        }
        transaction.commit()
    }

    /// New large objects, of which a request each is written in turn; then their rows, and the old ones go.
    fn try_write_large(&mut self, writes: &[Write<'_>], manner: &Manner) -> std::result::Result<(), ::postgres::Error> {
        let mut transaction = self.client.transaction()?;
        let mut open = Vec::with_capacity(writes.len());
        for write in writes {
            let made: u32 = transaction.query_one("SELECT lo_create(0)", &[])?.get(0);
            let handle: i32 = transaction.query_one("SELECT lo_open($1, $2)", &[&made, &FOR_WRITING])?.get(0);
            open.push((made, handle, write.requests(manner)));
        }
        let put = transaction.prepare("SELECT lowrite($1, $2)")?;
        let mut wrote = true;
        while std::mem::take(&mut wrote) {
            for (_, handle, requests) in &mut open {
                let Some(request) = requests.next() else { continue };
                transaction.query_one(&put, &[handle, &request])?;
                wrote = true;
            }
        }
        for ((made, ..), write) in open.iter().zip(writes) {
            let id = i64::from(write.version.object);
            transaction.execute("SELECT lo_unlink(body) FROM objects WHERE id = $1", &[&id])?;
            let insert = "INSERT INTO objects VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body";
            transaction.execute(insert, &[&id, made])?;
        }
        transaction.commit()
    }

    /// The tables that objects are in.
    fn tables(&self) -> &'static [&'static str] {
        if self.is_large { &["objects", "pg_largeobject", "pg_largeobject_metadata"] } else { &["objects"] }
    }

    /// Frees what is dead, when that is due.
    fn vacuum(&mut self) -> Result<()> {
        if self.dead * 100 > self.live.len() as u64 * DEAD {
            self.dead = 0;
            let vacuum = format!("VACUUM {}", self.tables().join(", "));
            self.client.batch_execute(&vacuum).map_err(refused)?;
        }
        Ok(())
    }

    /// Why there is no room, if the tables are larger than the volume.
    fn is_full(&mut self) -> Result<Option<String>> {
        let sizes = self.tables().iter().map(|table| format!("pg_total_relation_size('{table}')"));
        let query = format!("SELECT {}", sizes.collect::<Vec<_>>().join(" + "));
        let bytes: i64 = self.client.query_one(&query, &[]).map_err(refused)?.get(0);
        Ok((bytes as u64 > self.volume).then(|| format!("its tables have {bytes} bytes")))
    }

    /// The files of the table and of what it keeps elsewhere.
    fn files(&mut self) -> Result<Vec<PathBuf>> {
        let query = match self.is_large {
            true => "SELECT pg_relation_filepath('pg_largeobject')",
            false => {
                "SELECT unnest(ARRAY[pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid)]) FROM pg_class \
                 WHERE oid = 'objects'::regclass"
            }
        };
        let rows = self.client.query(query, &[]).map_err(refused)?;
        let mut files = Vec::new();
        for table in rows.iter().map(|row| row.get::<_, String>(0)) {
            let data = self.server.data();
            let part = |number: u32| match number {
                0 => data.join(&table),
                // Of 1 GB each.
                _ => data.join(format!("{table}.{number}")),
            };
            files.extend((0..).map(part).take_while(|path| path.exists()));
        }
        Ok(files)
    }
}

impl Candidate for Postgres {
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote> {
        match self.try_write(writes, manner) {
            Ok(()) => {}
            Err(error) if error.code() == Some(&SqlState::DISK_FULL) => return Ok(Wrote::Full(error.to_string())),
            Err(error) => return Err(refused(error)),
        }
        self.dead += writes.iter().map(|write| u64::from(!self.live.insert(write.version.object))).sum::<u64>();
        self.vacuum()?;
        let before = self.written * ASKED / self.volume;
        self.written += writes.iter().map(Write::len).sum::<u64>();
        if self.written * ASKED / self.volume == before {
            return Ok(Wrote::Done);
        }
        Ok(self.is_full()?.map_or(Wrote::Done, Wrote::Full))
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        // One statement, so one transaction.
        let delete = match self.is_large {
            true => "WITH gone AS (DELETE FROM objects WHERE id = $1 RETURNING body) SELECT lo_unlink(body) FROM gone",
            false => "DELETE FROM objects WHERE id = $1",
        };
        self.client.execute(delete, &[&i64::from(object)]).map_err(refused)?;
        self.dead += u64::from(self.live.remove(&object));
        self.vacuum()
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        let read = match self.is_large {
            true => "SELECT lo_get(body) FROM objects WHERE id = $1",
            false => "SELECT body FROM objects WHERE id = $1",
        };
        let row = self.client.query_opt(read, &[&i64::from(object)]).map_err(refused)?;
        row.iter().for_each(|row| into.extend_from_slice(row.get(0)));
        Ok(row.is_some())
    }

    fn settle(&mut self) -> Result<()> {
        self.client.batch_execute("CHECKPOINT").map_err(refused)?;
        self.files()?.iter().try_for_each(|path| force_and_forget(path))
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan_files(&self.files()?, Some(PAGE), load)?), told: None })
    }
}
