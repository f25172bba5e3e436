//! SQLite with a write-ahead log. Puts that need not be durable share a transaction of 1,000; readers have a
//! connection each.

use std::path::PathBuf;

use anyhow::Result;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Config, Engine};

const BATCH: u32 = 1000;

struct Sqlite {
    path: PathBuf,
    memory: u64,
    durable: bool,
    /// The writer, and how many changes its open transaction holds.
    writer: Mutex<(Connection, u32)>,
    readers: Mutex<Vec<Connection>>,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let path = config.folder.join("sqlite");
    let writer = connect(&path, config.memory, config.durable)?;
    writer.execute_batch("CREATE TABLE IF NOT EXISTS objects(key BLOB PRIMARY KEY, body BLOB NOT NULL)")?;
    Ok(Box::new(Sqlite {
        path,
        memory: config.memory,
        durable: config.durable,
        writer: Mutex::new((writer, 0)),
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
        let (connection, count) = &mut *self.writer.lock();
        if !self.durable && *count == 0 {
            connection.execute_batch("BEGIN")?;
        }
        connection.prepare_cached(statement)?.execute(rusqlite::params_from_iter(values))?;
        if !self.durable {
            *count = (*count + 1) % BATCH;
            if *count == 0 {
                connection.execute_batch("COMMIT")?;
            }
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

    fn flush(&self) -> Result<()> {
        let (connection, count) = &mut *self.writer.lock();
        if std::mem::take(count) > 0 {
            connection.execute_batch("COMMIT")?;
        }
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
