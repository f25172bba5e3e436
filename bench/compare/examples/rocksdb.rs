//! The same program on RocksDB: puts, gets, deletes, opens again. Every change is durable when it returns.
use std::error::Error;

use rocksdb::{DB, WriteOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: rocksdb FOLDER")?;
    let mut durable = WriteOptions::default();
    durable.set_sync(true);
    let database = DB::open_default(&folder)?;
    database.put_opt("a", b"one", &durable)?;
    database.put_opt("b", b"two", &durable)?;
    database.delete_opt("a", &durable)?;
    drop(database);

    let database = DB::open_default(&folder)?;
    assert!(database.get("a")?.is_none());
    assert_eq!(database.get("b")?.ok_or("it is gone")?, b"two");
    Ok(())
}
