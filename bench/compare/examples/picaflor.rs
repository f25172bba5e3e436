//! The same program on picaflor: puts, gets, deletes, opens again. Every change is durable when it returns.
use std::error::Error;

use picaflor::{Durability, Options, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: picaflor FOLDER")? + "/store";
    let options = || Options::new(&path).capacity(64 << 20).memory(8 << 20).durability(Durability::EveryPut);
    let store = Store::open(options())?;
    store.put(b"a", b"one")?;
    store.put(b"b", b"two")?;
    store.delete(b"a")?;
    store.close()?;

    let store = Store::open(options())?;
    assert!(store.get(b"a")?.is_none());
    assert_eq!(store.get(b"b")?.ok_or("it is gone")?.body()?, "two");
    Ok(())
}
