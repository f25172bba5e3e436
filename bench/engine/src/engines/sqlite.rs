//! SQLite with a write-ahead log. Puts that need not be durable share a transaction; readers have a connection each.

use std::path::PathBuf;

use anyhow::Result;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Config, Engine, Walk, transactions::Transactions};

struct Sqlite {
    path: PathBuf,
    memory: u64,
    /// The writer, and what changes share.
    writer: Mutex<(Connection, Transactions)>,
    readers: Mutex<Vec<Connection>>,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let path = config.folder.join("sqlite");
    let writer = connect(&path, config.memory, config.durable)?;
    writer.execute_batch("CREATE TABLE IF NOT EXISTS objects(key BLOB PRIMARY KEY, body BLOB NOT NULL)")?;
    Ok(Box::new(Sqlite {
        path,
        memory: config.memory,
        writer: Mutex::new((writer, Transactions::new(config.commit_every))),
        readers: Mutex::new(Vec::new()),
    }))
}

fn connect(path: &PathBuf, memory: u64, durable: bool) -> Result<Connection> {
    let connection = Connection::open(path)?;
    let synchronous = if durable { "FULL" } else { "NORMAL" };
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous}; PRAGMA cache_size=-{};",
        memory >> 10
    ))?;
    Ok(connection)
}

impl Sqlite {
    fn change(&self, statement: &str, values: &[&[u8]]) -> Result<()> {
        let (connection, open) = &mut *self.writer.lock();
        if open.begins() {
            connection.execute_batch("BEGIN")?;
        }
        connection.prepare_cached(statement)?.execute(rusqlite::params_from_iter(values))?;
        if open.ends() {
            connection.execute_batch("COMMIT")?;
        }
        Ok(())
    }
}

impl Engine for Sqlite {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.change("INSERT OR REPLACE INTO objects VALUES(?1, ?2)", &[key, body])
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let idle = self.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            // Together the readers get the memory that the engine was given.
            None => connect(&self.path, self.memory / 32, false)?,
        };
        let found = connection
            .prepare_cached("SELECT body FROM objects WHERE key=?1")?
            .query_row(params![key], |row| {
                seen(row.get_ref(0)?.as_blob()?);
                Ok(())
            })
            .optional()?;
        self.readers.lock().push(connection);
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.change("DELETE FROM objects WHERE key=?1", &[key])
    }

    fn commit(&self) -> Result<()> {
        let (connection, open) = &mut *self.writer.lock();
        if open.is_left() {
            connection.execute_batch("COMMIT")?;
        }
        Ok(())
    }

    fn walk(&self, what: Walk, seen: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (columns, count) = match what {
            Walk::Keys => ("key", 1),
            Walk::Values => ("body", 1),
            Walk::Pairs => ("key, body", 2),
        };
        let connection = connect(&self.path, self.memory / 32, false)?;
        let mut statement = connection.prepare(&format!("SELECT {columns} FROM objects"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..count {
                seen(row.get_ref(column)?.as_blob()?);
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.commit()?;
        let (connection, _) = &mut *self.writer.lock();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
