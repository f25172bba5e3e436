//! What may be shared by threads and what may be sent to one, as the compiler sees it: servers build on it.

use std::{any::Any, future::Future, ops::Range};

use bytes::Bytes;
use picaflor::{
    CheckReport, ChunkStream, Chunks, Entry, Error, FetchError, Fetched, Group, Inspection, Keys, Object, Options, Put,
    PutOptions, PutStream, Receipt, Stats, Store, TryGet,
};

fn shared<T: Send + Sync>() {}

/// A future that an executor of many threads takes.
fn spawned<T: Send>(future: impl Future<Output = T> + Send) {
    drop(future);
}

#[test]
fn stores_and_handles_are_shared_and_sent() {
    shared::<Store>();
    shared::<Group>();
    shared::<Object>();
    shared::<Fetched>();
    shared::<FetchError<std::io::Error>>();
    shared::<(Options, PutOptions, Put<'_>)>();
    shared::<(Error, Entry, Receipt, Stats, CheckReport, Inspection)>();
    // As a boxed error wants it.
    fn boxed<T: std::error::Error + Any + Send + Sync>() {}
    boxed::<Error>();
    boxed::<FetchError<std::io::Error>>();
    // Bodies of a server ask for both, though these go on only where they are owned.
    shared::<Chunks>();
    shared::<ChunkStream>();
    shared::<Keys>();
    shared::<PutStream>();
    shared::<TryGet>();
}

/// Never run: that it compiles is the test.
#[allow(dead_code)]
fn futures_are_sent(store: &Store, mut stream: PutStream, mut chunks: Chunks, mut keys: Keys, range: Range<u64>) {
    spawned(store.get_async(b"key"));
    spawned(store.get_range_async(b"key", range));
    spawned(store.put_async(b"key", b"body"));
    spawned(store.put_with_async(b"key", b"body", &PutOptions::new()));
    spawned(store.begin_put(b"key", b"body", &PutOptions::new()));
    spawned(store.put_many_async(&[]));
    spawned(store.delete_many_async(&[]));
    spawned(store.clone().close_async());
    spawned(Store::open_async(Options::new("path")));
    spawned(store.check_async(|_, _| ()));
    spawned(store.delete_async(b"key"));
    spawned(store.contains_async(b"key"));
    spawned(store.get_or_fetch_async(b"key", async { Ok::<_, Error>(Fetched::new("")) }));
    spawned(store.flush_async());
    spawned(stream.write_async(Bytes::new()));
    spawned(stream.finish_async());
    spawned(chunks.next_async());
    spawned(keys.next_async());
}
