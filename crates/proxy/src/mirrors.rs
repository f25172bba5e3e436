//! Copies of large bodies that are asked for again and again, in files of memory: from there the kernel sends without
//! copying (`sendfile`), and a body that the store keeps in chunks is at hand as a whole.
//!
//! * A file is written once, before it can be seen, and never again: what the kernel still has of it in a socket stays
//!   what it was, also when the file has gone.
//! * One is of a key and a generation of the store, so of one body.
//! * All together hold no more than a part of the store's memory, and count in its account. The one that was not asked
//!   for the longest makes room.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use picaflor::{Object, Reserved, Store};
use rustix::fs::{MemfdFlags, memfd_create};
use xxhash_rust::xxh3::xxh3_64;

/// What costs less to copy than to have sent from a file has none.
pub(crate) const SHORTEST: u64 = 32 << 10;
/// A body is copied when it is asked for so often while it is known.
const OFTEN: u32 = 16;
/// So many bodies are known at one time, and so many of them have files.
const MOST: usize = 4096;
const MOST_FILES: usize = 512;

/// Of a body: its key's hash and its generation.
type Name = (u64, u64);

/// See the head of this file.
pub(crate) struct Mirrors {
    /// Bytes that all may have, and one.
    max: u64,
    store: Store,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    bodies: HashMap<Name, Body>,
    bytes: u64,
    files: usize,
    /// Counts what is asked for.
    now: u64,
}

struct Body {
    asked: u32,
    latest: u64,
    file: Option<Kept>,
}

struct Kept {
    file: Arc<File>,
    len: u64,
    /// Of the store's memory.
    _reserved: Reserved,
}

impl Mirrors {
    /// With so many bytes of the store's memory.
    pub(crate) fn new(max: u64, store: Store) -> Self {
        Self { max, store, known: Mutex::default() }
    }

    /// The file that has the body of an object which is asked for, if there is one. It may be made now, or, where the
    /// body has to be read, by and by.
    pub(crate) fn of(self: &Arc<Self>, object: &Object) -> Option<Arc<File>> {
        if !(SHORTEST..=self.max / 4).contains(&object.len()) {
            return None;
        }
        let name = (xxh3_64(object.key()), object.generation());
        {
            let mut known = self.known.lock();
            known.now += 1;
            let now = known.now;
            if known.bodies.len() >= MOST {
                known.bodies.retain(|_, body| body.file.is_some());
            }
            let body = known.bodies.entry(name).or_insert(Body { asked: 0, latest: 0, file: None });
            (body.asked, body.latest) = (body.asked.saturating_add(1), now);
            if let Some(kept) = &body.file {
                return Some(kept.file.clone());
            }
            if body.asked != OFTEN {
                return None;
            }
        }
        // What fails now is tried no more while the body is known.
        if let Some(body) = object.body_slice() {
            let file = Arc::new(written(body).ok()?);
            self.keep(name, object.len(), &file);
            return Some(file);
        }
        let (mirrors, object) = (self.clone(), object.clone());
        tokio::spawn(async move {
            let (mut file, mut chunks) = (empty()?, object.chunks(0..object.len()));
            while let Some(piece) = chunks.next_async().await {
                file.write_all(&piece.map_err(io::Error::other)?)?;
            }
            if file.metadata()?.len() == object.len() {
                mirrors.keep(name, object.len(), &Arc::new(file));
            }
            Ok::<_, io::Error>(())
        });
        None
    }

    fn keep(&self, name: Name, len: u64, file: &Arc<File>) {
        let mut guard = self.known.lock();
        let known = &mut *guard;
        while known.bytes + len > self.max || known.files >= MOST_FILES {
            let with_file = known.bodies.iter().filter(|(_, body)| body.file.is_some());
            let Some(oldest) = with_file.min_by_key(|(_, body)| body.latest).map(|(name, _)| *name) else { return };
            if let Some(file) = known.bodies.remove(&oldest).and_then(|body| body.file) {
                known.bytes -= file.len;
                known.files -= 1;
            }
        }
        // It may have been forgotten meanwhile.
        let Some(body) = known.bodies.get_mut(&name) else { return };
        let mut reserved = self.store.reserve();
        reserved.set(len);
        body.file = Some(Kept { file: file.clone(), len, _reserved: reserved });
        known.bytes += len;
        known.files += 1;
    }
}

fn empty() -> io::Result<File> {
    Ok(memfd_create("picaflor-body", MemfdFlags::CLOEXEC)?.into())
}

fn written(body: &[u8]) -> io::Result<File> {
    let mut file = empty()?;
    file.write_all(body)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use picaflor::{Options, PutOptions};

    use super::*;

    #[test]
    fn what_is_asked_for_often_has_a_file_and_the_stillest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("store")).capacity(64 << 20).memory(16 << 20);
        let store = Store::open(options).unwrap();
        let mirrors = Arc::new(Mirrors::new(4 * 70_000, store.clone()));
        let object = |n: u8, len: usize| {
            store.put_with(&[n], &vec![n; len], &PutOptions::new()).unwrap();
            store.get(&[n]).unwrap().unwrap()
        };
        let often = |object: &Object| (0..OFTEN).fold(None, |_, _| mirrors.of(object));
        let short = object(0, SHORTEST as usize - 1);
        assert!(often(&short).is_none() && often(&short).is_none());
        let bodies: Vec<_> = (1..6).map(|n| object(n, 70_000)).collect();
        for body in &bodies {
            let file = often(body).expect("a file");
            let mut read = vec![0; 70_000];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(read == body.body().unwrap() && file.metadata().unwrap().len() == 70_000);
            mirrors.of(&bodies[0]).expect("it is asked for all the time");
        }
        assert!(mirrors.of(&bodies[1]).is_none(), "it was the stillest");
        let known = mirrors.known.lock();
        assert_eq!((known.bytes, known.files), (4 * 70_000, 4));
    }
}
