//! The same program on sled: puts, gets, deletes, opens again. Each flush makes all before it durable.
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: sled FOLDER")?;
    let tree = sled::open(&folder)?;
    tree.insert("a", b"one")?;
    tree.insert("b", b"two")?;
    tree.remove("a")?;
    tree.flush()?;
    drop(tree);

    let tree = sled::open(&folder)?;
    assert!(tree.get("a")?.is_none());
    assert_eq!(tree.get("b")?.ok_or("it is gone")?, b"two");
    Ok(())
}
