//! Leases: the chunks of a large object stay as long as there is a handle on it.
//!
//! Steps: a get finds the manifest → takes a lease → looks whether all chunks are there → reads. A drop of the object
//! leaves leased chunks to the last handle, and reclaim moves them as if they had been asked for. When the last handle
//! goes, a daemon drops what was left to it.
//!
//! Invariants: an object's chunks are dropped, or leased, never both: a lease that comes while they are being dropped
//! is refused, and the caller looks again. What is kept for the sake of leases alone is at most an eighth of its
//! device; beyond that chunks leave, and a handle's next read says so. Leases are of one opening: after a crash the
//! chunks of an object that was dropped belong to none, and reclaim takes them.
//!
//! Locks: evicting → a key's lock → the state. A new lease waits for evictions; dropping an object and giving a lease
//! back, which may be done under a key's lock that an eviction waits for, do not.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use picaflor_common::{
    KeyHash,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use picaflor_format::frame::{ChunkKey, Manifest};

/// Part of a device that chunks may take which nothing but leases keeps.
pub(crate) const KEPT: u64 = 8;

/// A large object's manifest: hash of its key, and its number.
type Id = (u128, u64);

/// The leases of a store.
#[derive(Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
    /// Read by evictions that rely on there being no lease, written by the taker of one.
    evicting: RwLock<()>,
    /// Whether [`State::over`] has any.
    is_over: AtomicBool,
    refused: AtomicU64,
}

#[derive(Default)]
struct State {
    held: HashMap<Id, Held>,
    dropping: HashSet<Id>,
    /// Bytes that are there for the sake of leases alone.
    kept: u64,
    /// Objects that were dropped, and whose last handle went.
    over: Vec<Left>,
}

#[derive(Default)]
struct Held {
    handles: u64,
    /// Bytes of the object.
    total: u64,
    /// Whether nothing but handles keeps it: its bytes are counted, all of them and once.
    is_kept: bool,
    left: Option<Left>,
}

/// Chunks that were left to the last handle.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub(crate) parent: KeyHash,
    pub(crate) manifest: Manifest,
    /// Number of their volume; 0 where they are entries of tables.
    pub(crate) home: usize,
}

/// Keeps the chunks of one large object.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    id: Id,
}

impl Leases {
    /// A lease on a large object; none if its chunks are being dropped. What its last handle left is its again.
    pub(crate) fn take(self: &Arc<Self>, parent: KeyHash, manifest: Manifest) -> Option<Lease> {
        let id = (parent.0, manifest.id);
        let _no_eviction = self.evicting.write();
        let mut state = self.state.lock();
        if state.dropping.contains(&id) {
            return None;
        }
        let State { held, kept, over, .. } = &mut *state;
        let held = held.entry(id).or_default();
        (held.handles, held.total) = (held.handles + 1, manifest.total);
        if let Some(at) = over.iter().position(|left| left.id() == id) {
            (held.left, held.is_kept) = (Some(over.swap_remove(at)), true);
            *kept += manifest.total;
            self.is_over.store(!over.is_empty(), Relaxed);
        }
        Some(Lease { leases: Arc::clone(self), id })
    }

    /// Drops the chunks of a large object with `drop`, or leaves them to its last handle.
    pub(crate) fn drop_or_leave(&self, left: Left, most: u64, drop: impl FnOnce()) {
        let id = left.id();
        {
            let mut state = self.state.lock();
            if let Some(held) = self.kept(&mut state, id, most) {
                held.left = Some(left);
                return;
            }
            state.dropping.insert(id);
        }
        drop();
        self.state.lock().dropping.remove(&id);
    }

    /// Whether a chunk is to stay though it was to be evicted; its object counts as kept from then on. If it may go, as
    /// long as what is returned is held no lease is taken that relies on it.
    pub(crate) fn keep(&self, chunk_key: &[u8], most: u64) -> Option<NoNewLeases<'_>> {
        let evicting = self.evicting.read();
        let id = ChunkKey::decode(chunk_key).ok().map(|key| (key.parent, key.id));
        let keeps = id.is_some_and(|id| self.kept(&mut self.state.lock(), id, most).is_some());
        (!keeps).then_some(NoNewLeases { _evicting: evicting })
    }

    /// Keeps an object for its handles, if it has any and its bytes are within the bound.
    fn kept<'a>(&self, state: &'a mut State, id: Id, most: u64) -> Option<&'a mut Held> {
        let held = state.held.get_mut(&id)?;
        if !held.is_kept {
            if state.kept + held.total > most {
                self.refused.fetch_add(1, Relaxed);
                return None;
            }
            held.is_kept = true;
            state.kept += held.total;
        }
        Some(held)
    }

    /// A chunk leaves for want of room, whether or not there is a handle on its object.
    pub(crate) fn let_go(&self, chunk_key: &[u8]) {
        if ChunkKey::decode(chunk_key).is_ok_and(|key| self.is_leased(&key)) {
            self.refused.fetch_add(1, Relaxed);
        }
    }

    /// How often something left of an object that had a handle.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whether there is a handle on the object of this chunk.
    pub(crate) fn is_leased(&self, key: &ChunkKey) -> bool {
        self.state.lock().held.contains_key(&(key.parent, key.id))
    }

    /// If there are no leases: as long as this is held there will be none.
    pub(crate) fn none(&self) -> Option<NoNewLeases<'_>> {
        let evicting = self.evicting.read();
        let none = self.state.lock().held.is_empty();
        none.then_some(NoNewLeases { _evicting: evicting })
    }

    /// Drops with `drop` what of this volume was left to handles that are gone. Returns whether there was anything.
    pub(crate) fn drop_over(&self, home: usize, drop: impl Fn(&Left)) -> bool {
        if !self.is_over.load(Relaxed) {
            return false;
        }
        let gone: Vec<Left> = {
            let mut state = self.state.lock();
            let State { dropping, over, .. } = &mut *state;
            let gone = over.extract_if(.., |left| left.home == home).collect::<Vec<_>>();
            dropping.extend(gone.iter().map(Left::id));
            self.is_over.store(!over.is_empty(), Relaxed);
            gone
        };
        for left in &gone {
            drop(left);
            self.state.lock().dropping.remove(&left.id());
        }
        !gone.is_empty()
    }
}

impl Left {
    fn id(&self) -> Id {
        (self.parent.0, self.manifest.id)
    }
}

/// No lease is taken as long as this is held.
pub(crate) struct NoNewLeases<'a> {
    _evicting: RwLockReadGuard<'a, ()>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        let State { held, kept, over, .. } = &mut *state;
        let Some(entry) = held.get_mut(&self.id) else { return };
        entry.handles -= 1;
        if entry.handles == 0 {
            if entry.is_kept {
                *kept -= entry.total;
            }
            over.extend(entry.left);
            held.remove(&self.id);
            self.leases.is_over.store(!over.is_empty(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: KeyHash = KeyHash(9);

    fn manifest(id: u64) -> Manifest {
        Manifest { id, total: 1000, chunk: 100, tail: 0 }
    }

    fn drops(leases: &Leases, id: u64, most: u64) -> bool {
        let mut dropped = false;
        leases.drop_or_leave(Left { parent: PARENT, manifest: manifest(id), home: 1 }, most, || dropped = true);
        dropped
    }

    #[test]
    fn chunks_are_left_to_the_last_handle_within_the_bound() {
        let leases = Arc::new(Leases::default());
        assert!(drops(&leases, 1, 1500), "nobody reads it");
        let (Some(one), Some(same), Some(two)) =
            (leases.take(PARENT, manifest(1)), leases.take(PARENT, manifest(1)), leases.take(PARENT, manifest(2)))
        else {
            panic!("nothing is being dropped")
        };
        assert!(!drops(&leases, 1, 1500));
        assert_eq!(leases.refused(), 0);
        assert!(drops(&leases, 2, 1500), "more than may be kept");
        assert_eq!(leases.refused(), 1);
        drop(one);
        assert!(!is_over(&leases, 1));
        drop(same);
        assert!(!is_over(&leases, 0) && is_over(&leases, 1) && !is_over(&leases, 1));
        assert!(!drops(&leases, 2, 1500), "there is room again");
        drop(two);
        assert!(is_over(&leases, 1));
        assert_eq!(leases.state.lock().kept, 0);
    }

    fn is_over(leases: &Leases, home: usize) -> bool {
        leases.drop_over(home, |_| {})
    }

    /// A get that found the manifest before it was replaced may take its lease when the last of the others has gone.
    #[test]
    fn what_the_last_handle_left_is_the_next_ones() {
        let leases = Arc::new(Leases::default());
        let lease = leases.take(PARENT, manifest(1));
        assert!(!drops(&leases, 1, 1500));
        drop(lease);
        let late = leases.take(PARENT, manifest(1));
        assert!(late.is_some() && !is_over(&leases, 1), "its chunks stay");
        drop(late);
        assert!(leases.drop_over(1, |_| assert!(leases.take(PARENT, manifest(1)).is_none())));
        assert!(leases.state.lock().kept == 0 && leases.take(PARENT, manifest(1)).is_some());
    }

    #[test]
    fn what_is_being_dropped_is_not_leased() {
        let leases = Arc::new(Leases::default());
        let left = Left { parent: PARENT, manifest: manifest(1), home: 0 };
        leases.drop_or_leave(left, 5000, || assert!(leases.take(PARENT, manifest(1)).is_none()));
        assert!(leases.take(PARENT, manifest(1)).is_some());
    }

    /// An eviction may wait for a key's lock under which an object is dropped or a lease given back.
    #[test]
    fn neither_dropping_nor_giving_back_waits_for_an_eviction() {
        let leases = Arc::new(Leases::default());
        let lease = leases.take(PARENT, manifest(1));
        let other = ChunkKey { parent: PARENT.0, id: 2, number: 0 }.encode();
        let _evicting = leases.keep(&other, 1500).expect("it is not leased");
        assert!(drops(&leases, 2, 1500) && !drops(&leases, 1, 1500));
        drop(lease);
        assert!(is_over(&leases, 1));
    }

    #[test]
    fn eviction_keeps_what_is_leased_within_the_bound() {
        let leases = Arc::new(Leases::default());
        let key = |id| ChunkKey { parent: PARENT.0, id, number: 0 }.encode();
        let keeps = |id| leases.keep(&key(id), 1500).is_none();
        assert!(!keeps(1) && leases.none().is_some());
        let lease = leases.take(PARENT, manifest(1));
        let other = leases.take(PARENT, manifest(2));
        assert!(leases.none().is_none());
        assert!(keeps(1) && !keeps(2));
        // The same chunk again, or a drop after that: it takes no more room.
        assert!(keeps(1) && keeps(1) && !drops(&leases, 1, 1500));
        drop(lease);
        assert!(keeps(2));
        drop(other);
        assert!(leases.none().is_some() && leases.state.lock().kept == 0);
    }
}
