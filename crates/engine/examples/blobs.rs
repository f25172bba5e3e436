//! A durable store of blobs, which cannot be fetched again: nothing leaves by itself, each put and delete is durable
//! when it returns, and a store that is full says how many bytes to delete.
//!
//!     cargo run --example blobs -- blobs.store

use picaflor::{Durability, Error, Mode, Options, PutOptions, Store};

const MIB: u64 = 1 << 20;
const LARGE: u64 = 8 * MIB;

fn main() -> picaflor::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "blobs.store".into());
    let options = || {
        let options = Options::new(&path).capacity(64 * MIB).memory(16 * MIB).mode(Mode::Store);
        // Of puts and of deletes: each waits for its sync, and those of several threads share one.
        options.durability(Durability::EveryPut).with(|options| options.delete_count = 1)
    };
    let store = Store::open(options())?;

    // A body that is not in memory at once goes in by pieces. Gets find it once it is finished.
    let mut stream = store.put_stream(b"video", Some(LARGE), PutOptions::default())?;
    for second in 0..LARGE / MIB {
        stream.write(&vec![second as u8; MIB as usize])?;
    }
    assert!(store.get(b"video")?.is_none());
    stream.finish()?;

    // A part of it comes out without the rest.
    let part = store.get_range(b"video", 5 * MIB..5 * MIB + 1000)?.into_iter().flatten();
    let part = part.collect::<picaflor::Result<Vec<_>>>()?.concat();
    println!("video: {} bytes of second {}", part.len(), part[0]);

    // Until no more fit. What was taken is kept.
    let photo = vec![7; MIB as usize];
    let mut photos = 0;
    let delete = loop {
        match store.put(format!("photo-{photos}").as_bytes(), &photo) {
            Ok(()) => photos += 1,
            Err(Error::Full { delete, .. }) => break delete,
            Err(error) => return Err(error),
        }
    };
    println!("full: yes, and nothing was lost: {}", (0..photos).all(|i| found(&store, i)));
    // As many as it says, and the next one fits.
    for i in 0..delete.div_ceil(MIB) {
        store.delete(format!("photo-{i}").as_bytes())?;
    }
    store.put(b"one more", &photo)?;

    // Opened again, it has the same objects.
    let count = store.keys().count();
    store.close()?;
    let store = Store::open(options())?;
    println!("after a restart, as before: {}", store.keys().count() == count && store.get(b"one more")?.is_some());
    store.close()
}

fn found(store: &Store, photo: u64) -> bool {
    store.contains(format!("photo-{photo}").as_bytes()).unwrap_or(false)
}
