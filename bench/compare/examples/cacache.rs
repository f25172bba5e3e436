//! The same program on cacache: puts, gets, deletes; a folder is never open.
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: cacache FOLDER")?;
    cacache::write_sync(&folder, "a", b"one")?;
    cacache::write_sync(&folder, "b", b"two")?;
    cacache::remove_sync(&folder, "a")?;

    assert!(cacache::metadata_sync(&folder, "a")?.is_none());
    assert_eq!(cacache::read_sync(&folder, "b")?, b"two");
    Ok(())
}
