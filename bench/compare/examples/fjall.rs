//! The same program on fjall: puts, gets, deletes, opens again. `persist` makes all before it durable.
use std::error::Error;

use fjall::{Database, KeyspaceCreateOptions, PersistMode};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: fjall FOLDER")?;
    let database = Database::builder(&folder).open()?;
    let objects = database.keyspace("objects", KeyspaceCreateOptions::default)?;
    objects.insert("a", b"one")?;
    objects.insert("b", b"two")?;
    objects.remove("a")?;
    database.persist(PersistMode::SyncAll)?;
    drop((objects, database));

    let database = Database::builder(&folder).open()?;
    let objects = database.keyspace("objects", KeyspaceCreateOptions::default)?;
    assert!(objects.get("a")?.is_none());
    assert_eq!(&*objects.get("b")?.ok_or("it is gone")?, b"two");
    Ok(())
}
