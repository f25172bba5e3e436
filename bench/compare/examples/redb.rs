//! The same program on redb: puts, gets, deletes, opens again. Each commit is durable.
use std::error::Error;

use redb::{Database, ReadableDatabase, TableDefinition};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: redb FOLDER")? + "/redb";
    let database = Database::create(&path)?;
    let write = database.begin_write()?;
    {
        let mut objects = write.open_table(OBJECTS)?;
        objects.insert("a", b"one".as_slice())?;
        objects.insert("b", b"two".as_slice())?;
        objects.remove("a")?;
    }
    write.commit()?;
    drop(database);

    let objects = Database::create(&path)?.begin_read()?.open_table(OBJECTS)?;
    assert!(objects.get("a")?.is_none());
    assert_eq!(objects.get("b")?.ok_or("it is gone")?.value(), b"two");
    Ok(())
}
