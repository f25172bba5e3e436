//! The least that a disk cache takes: open it, put, get, and let it evict.
//!
//!     cargo run --example cache -- cache.store

use picaflor::{Options, Store};

fn main() -> picaflor::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "cache.store".into());
    // Both are hard caps: of bytes in the file, and of bytes in memory.
    let store = Store::open(Options::new(path).capacity(32 << 20).memory(8 << 20))?;

    store.put(b"greeting", b"hello")?;
    if let Some(object) = store.get(b"greeting")? {
        println!("greeting: {}", String::from_utf8_lossy(&object.body()?));
    }
    store.delete(b"greeting")?;
    println!("after its delete: {}", if store.get(b"greeting")?.is_none() { "a miss" } else { "still there" });

    // Twice what the file has room for: a put is not refused, the oldest objects go.
    let body = vec![7; 64 << 10];
    for number in 0..1024 {
        store.put(format!("object {number}").as_bytes(), &body)?;
    }
    let (oldest, newest) = (store.get(b"object 0")?.is_some(), store.get(b"object 1023")?.is_some());
    println!("the oldest is there: {oldest}, the newest: {newest}");

    // Opened again, it has what it had.
    store.close()
}
