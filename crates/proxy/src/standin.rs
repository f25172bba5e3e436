//! A stand-in for the store, in memory only, until the engine lands: the same calls, no device.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    future::{Future, ready},
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use serde::Serialize;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
#[allow(dead_code)]
pub(crate) enum Error {
    #[error("the store is full")]
    Full { needed: u64, free: u64 },
    #[error("put refused")]
    Refused(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Durability {
    None,
    #[default]
    Default,
    Bounded {
        time: Duration,
        puts: u64,
    },
    EveryPut,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) capacity: u64,
    pub(crate) memory: u64,
    pub(crate) durability: Durability,
}

impl Options {
    pub(crate) fn new(_path: impl Into<PathBuf>) -> Self {
        Self { capacity: 0, memory: 0, durability: Durability::Default }
    }
}

#[derive(Debug, Clone, Copy, Default)]
#[allow(dead_code)]
pub(crate) enum Expiry {
    #[default]
    Default,
    Never,
    At(u64),
    After(Duration),
}

#[derive(Debug, Clone, Default)]
#[allow(dead_code)]
pub(crate) struct PutOptions {
    pub(crate) metadata: Bytes,
    pub(crate) expiry: Expiry,
    pub(crate) group: u32,
    pub(crate) server: u32,
    pub(crate) neighbour: Option<Bytes>,
    pub(crate) bypass_memory: bool,
    pub(crate) no_wait: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Miss {
    Absent,
}

#[allow(dead_code)]
pub(crate) enum TryGet {
    Hit(Object),
    Absent(Miss),
    OnDevice,
}

struct Inner {
    #[allow(dead_code)]
    key: Box<[u8]>,
    metadata: Bytes,
    chunks: Vec<Bytes>,
    len: u64,
    generation: u64,
    decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
}

#[derive(Clone)]
pub(crate) struct Object(Arc<Inner>);

const CHUNK: usize = 256 << 10;

#[allow(dead_code)]
impl Object {
    pub(crate) fn key(&self) -> &[u8] {
        &self.0.key
    }
    pub(crate) fn metadata(&self) -> &[u8] {
        &self.0.metadata
    }
    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }
    pub(crate) fn body(&self) -> Option<Bytes> {
        match self.0.chunks.as_slice() {
            [] => Some(Bytes::new()),
            [one] => Some(one.clone()),
            _ => None,
        }
    }
    pub(crate) fn chunks(&self, range: Range<u64>) -> Chunks {
        Chunks { object: self.clone(), at: range.start, end: range.end.min(self.0.len) }
    }
    pub(crate) fn decoded<T: Any + Send + Sync>(&self, decode: impl FnOnce(&[u8]) -> T) -> Arc<T> {
        let any = self.0.decoded.get_or_init(|| Arc::new(decode(&self.0.metadata)));
        Arc::downcast(any.clone()).unwrap_or_else(|_| unreachable!("one type"))
    }
}

pub(crate) struct Chunks {
    object: Object,
    at: u64,
    end: u64,
}

impl Chunks {
    pub(crate) async fn next_async(&mut self) -> Option<Result<Bytes>> {
        if self.at >= self.end {
            return None;
        }
        let within = self.at as usize % CHUNK;
        let chunk = &self.object.0.chunks[self.at as usize / CHUNK];
        let n = (chunk.len() - within).min((self.end - self.at) as usize);
        self.at += n as u64;
        Some(Ok(chunk.slice(within..within + n)))
    }
}

#[derive(Default)]
struct Shared {
    map: RwLock<HashMap<Box<[u8]>, Object>>,
    generation: AtomicU64,
    capacity: u64,
    used: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct Store(Arc<Shared>);

impl Store {
    pub(crate) fn open(options: Options) -> Result<Store> {
        Ok(Self(Arc::new(Shared { capacity: options.capacity, ..Shared::default() })))
    }
    pub(crate) fn try_get(&self, key: &[u8]) -> TryGet {
        match self.0.map.read().get(key) {
            Some(object) => TryGet::Hit(object.clone()),
            None => TryGet::Absent(Miss::Absent),
        }
    }
    pub(crate) fn get_async(
        &self,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Object>>> + Send + 'static + use<> {
        ready(Ok(self.0.map.read().get(key).cloned()))
    }
    pub(crate) fn put(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        let mut stream = self.put_stream(key, Some(body.len() as u64), options.clone())?;
        stream.write(body)?;
        stream.finish()
    }
    pub(crate) fn put_stream(&self, key: &[u8], len: Option<u64>, options: PutOptions) -> Result<PutStream> {
        if len.unwrap_or(0) + self.0.used.load(Ordering::Relaxed) > self.0.capacity {
            return Err(Error::Full { needed: len.unwrap_or(0), free: 0 });
        }
        Ok(PutStream {
            store: self.clone(),
            key: key.into(),
            options,
            chunks: Vec::new(),
            tail: BytesMut::new(),
            len: 0,
        })
    }
    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.map.write().remove(key).is_some())
    }
    pub(crate) fn collocate(&self, _a: &[u8], _b: &[u8]) {}
    pub(crate) fn close(self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            objects: self.0.map.read().len() as u64,
            memory: MemoryStats { used: self.0.used.load(Ordering::Relaxed) },
        }
    }
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt { kept: 0 }
    }
}

pub(crate) struct PutStream {
    store: Store,
    key: Box<[u8]>,
    options: PutOptions,
    chunks: Vec<Bytes>,
    tail: BytesMut,
    len: u64,
}

impl PutStream {
    pub(crate) fn write(&mut self, mut data: &[u8]) -> Result<()> {
        self.len += data.len() as u64;
        while !data.is_empty() {
            let n = data.len().min(CHUNK - self.tail.len());
            self.tail.extend_from_slice(&data[..n]);
            data = &data[n..];
            if self.tail.len() == CHUNK {
                self.chunks.push(std::mem::take(&mut self.tail).freeze());
            }
        }
        Ok(())
    }
    pub(crate) fn write_async(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send + '_ {
        ready(self.write(&data))
    }
    pub(crate) fn finish(mut self) -> Result<()> {
        if !self.tail.is_empty() {
            self.chunks.push(std::mem::take(&mut self.tail).freeze());
        }
        let generation = self.store.0.generation.fetch_add(1, Ordering::Relaxed);
        let object = Object(Arc::new(Inner {
            key: self.key.clone(),
            metadata: self.options.metadata.clone(),
            chunks: self.chunks,
            len: self.len,
            generation,
            decoded: OnceLock::new(),
        }));
        self.store.0.used.fetch_add(self.len, Ordering::Relaxed);
        if let Some(old) = self.store.0.map.write().insert(self.key, object) {
            self.store.0.used.fetch_sub(old.len(), Ordering::Relaxed);
        }
        Ok(())
    }
}

#[derive(Serialize)]
pub(crate) struct Stats {
    objects: u64,
    memory: MemoryStats,
}

#[derive(Serialize)]
struct MemoryStats {
    used: u64,
}

#[derive(Serialize)]
pub(crate) struct Receipt {
    kept: u64,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in memory, nothing recovered")
    }
}

pub(crate) fn is_damage(_: &Error) -> bool {
    false
}
