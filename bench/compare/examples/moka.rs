//! The same program on moka: puts, gets, deletes. There is nothing to open again.
use std::error::Error;

use moka::sync::Cache;

fn main() -> Result<(), Box<dyn Error>> {
    let cache = Cache::builder()
        .weigher(|key: &&str, body: &Vec<u8>| (key.len() + body.len()) as u32)
        .max_capacity(8 << 20)
        .build();
    cache.insert("a", b"one".to_vec());
    cache.insert("b", b"two".to_vec());
    cache.invalidate("a");

    assert!(cache.get("a").is_none());
    assert_eq!(cache.get("b").ok_or("it is gone")?, b"two");
    Ok(())
}
