//! The sequence of purges, the notes of them, and the fetches that a purge may meet.
//!
//! Invariants: a purge is noted before its number is the last, so a reader of the number sees the note; a fetch is
//! registered with the number that was the last, under the lock by which a purge asks for the fetches of a URL, so
//! either the purge finds the fetch or the fetch has the purge's number. A note goes only when nothing that it selects
//! can be in the store any more: what is stored of the URL was deleted, durably, after the last older fetch of it
//! ended; or all that is stored was gone through since then (`sweep`). It stays pinned until no crash can bring
//! anything older back. A lookup notes [`Purges::ends`] before: if that has changed when it is judged,
//! the note that selects it may be gone, with what was found.
//!
//! Numbers begin anew with each opening of the store, above all before: by the opening's own number.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use parking_lot::{Mutex, RwLock};
use picaflor::{Error, Store};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    marks::{Marks, Validity},
    record::Record,
    selector::{self, Kind, Selector},
};
use crate::clock::unix_millis;

/// Notes at one time: the first number is of all but URLs.
const MOST: usize = 4096;
/// Each of these is compared with every URL that is asked for.
const PATTERNS: usize = 128;
/// Notes, or pinned ones, from which on they have to go.
const PRESSED: usize = 1024;
/// Of URLs, before all of them become one note of everything.
const URLS: usize = 64 << 10;

/// Of an opening's number, the first of its sequence.
const OPENING: u32 = 40;

/// Locks of the indexes of variants.
const INDEXES: usize = 256;

const SHARDS: usize = 64;

/// No more can be noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("as many purges are noted as there is room for; a purge of all takes the place of all of them")]
    Records,
    #[error("{PATTERNS} patterns are noted, and each hit is compared with all of them; purge by prefix, host or tag")]
    Patterns,
}

/// A purge is not durable.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotPinned {
    /// It does not count.
    #[error(transparent)]
    Full(#[from] Full),
    /// It counts in this life.
    #[error(transparent)]
    Store(#[from] Error),
}

/// See the head of this file.
pub(crate) struct Purges {
    store: Store,
    seed: u64,
    last: AtomicU64,
    /// The largest number that is noted; 0: none is.
    newest: AtomicU64,
    noted: RwLock<Noted>,
    /// Of a URL's hash, its fetches that are under way.
    begun: Vec<Mutex<HashMap<u64, Vec<Fetch>>>>,
    /// What began before this number may not be stored any more.
    horizon: AtomicU64,
    /// How often notes have ended.
    ends: AtomicU64,
    /// Purges of URLs that met older fetches, and the keys of these URLs.
    left: Mutex<Vec<(Record, Vec<Vec<u8>>)>>,
    /// Invalidations that are under way, and requests that may end in one.
    invalidating: AtomicUsize,
    indexes: Vec<tokio::sync::Mutex<()>>,
    counts: [AtomicU64; Kind::ALL.len()],
    refused: AtomicU64,
    pub(super) swept: Swept,
}

/// What sweeping did.
#[derive(Default)]
pub(super) struct Swept {
    pub(super) deleted: AtomicU64,
    pub(super) made_stale: AtomicU64,
    pub(super) passes: AtomicU64,
}

/// A fetch that is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fetch {
    seq: u64,
    /// It is being stored.
    stores: bool,
}

/// Whether it is one of the many that come and go: what it selects is deleted at once.
fn is_url(record: &Record) -> bool {
    record.selector.kind == Kind::Url && !record.soft
}

#[derive(Default)]
struct Noted {
    records: HashMap<u128, Record>,
    /// Those of notes that ended too, until no crash can bring back what they select.
    pinned: BTreeSet<u128>,
    urls: usize,
    patterns: usize,
    marks: Marks,
}

impl Noted {
    fn insert(&mut self, record: Record) {
        self.marks.add(&record);
        let (is_url, is_pattern) = (is_url(&record), record.selector.kind == Kind::Pattern);
        if self.records.insert(record.name(), record).is_none() {
            self.urls += usize::from(is_url);
            self.patterns += usize::from(is_pattern);
        }
    }

    /// Takes notes out of which there was no newer purge of the same; returns the names of those that were pinned.
    fn remove(&mut self, records: &[Record]) -> Vec<u128> {
        let (mut unpinned, mut is_marked) = (Vec::new(), false);
        for record in records {
            is_marked |= self.take(record, &mut unpinned);
        }
        if is_marked {
            self.marks = Marks::of(self.records.values());
        }
        unpinned
    }

    /// The same of one. Returns whether its mark is still there.
    fn take(&mut self, record: &Record, unpinned: &mut Vec<u128>) -> bool {
        let name = record.name();
        if self.records.get(&name).is_none_or(|found| found.seq != record.seq) {
            return false;
        }
        self.records.remove(&name);
        unpinned.extend(self.pinned.take(&name));
        if is_url(record) {
            self.urls -= 1;
            // An older note of the URL has nothing left to select either.
            self.marks.remove_urls(record);
            let soft = Record { soft: true, ..record.clone() };
            let soft = self.records.get(&soft.name()).filter(|soft| soft.seq < record.seq).cloned();
            soft.is_some_and(|soft| self.take(&soft, unpinned))
        } else {
            self.patterns -= usize::from(record.selector.kind == Kind::Pattern);
            true
        }
    }

    fn newest(&self) -> u64 {
        self.records.values().map(|record| record.seq).max().unwrap_or(0)
    }
}

impl Purges {
    /// With what the store has pinned.
    pub(crate) fn new(store: &Store) -> Self {
        let mut noted = Noted::default();
        let mut last = store.opening() << OPENING;
        for (name, bytes) in store.pinned() {
            let everything = || Record { selector: Selector::all(), seq: last, at: unix_millis(), soft: false };
            let record = Record::decode(&bytes).unwrap_or_else(everything);
            last = last.max(record.seq);
            noted.pinned.insert(name);
            noted.insert(record);
        }
        // No fetch of an earlier life is under way.
        let of_text = |record: &Record| Selector::url(&record.selector.text).ok().map(|(_, keys)| keys.to_vec());
        let urls = noted.records.values().filter(|record| is_url(record));
        let left = urls.filter_map(|record| Some((record.clone(), of_text(record)?))).collect();
        Self {
            store: store.clone(),
            seed: rand::random(),
            last: AtomicU64::new(last),
            newest: AtomicU64::new(noted.newest()),
            noted: RwLock::new(noted),
            begun: (0..SHARDS).map(|_| Mutex::default()).collect(),
            horizon: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            left: Mutex::new(left),
            invalidating: AtomicUsize::new(0),
            indexes: (0..INDEXES).map(|_| tokio::sync::Mutex::new(())).collect(),
            counts: Default::default(),
            refused: AtomicU64::new(0),
            swept: Swept::default(),
        }
    }

    /// A fetch of this URL begins. Until what this returns is dropped, it may yet be stored.
    pub(crate) fn begin(self: &Arc<Self>, url_key: &[u8]) -> Begun {
        let url = selector::of_url_key(url_key);
        let mut begun = self.shard(url).lock();
        let seq = self.last.load(Acquire);
        begun.entry(url).or_default().push(Fetch { seq, stores: false });
        Begun { purges: self.clone(), url, seq, stores: AtomicBool::new(false) }
    }

    fn shard(&self, url: u64) -> &Mutex<HashMap<u64, Vec<Fetch>>> {
        &self.begun[url as usize % SHARDS]
    }

    /// Whether a fetch of one of these URLs is under way that began before this number.
    pub(crate) fn meets(&self, record: &Record) -> bool {
        record.selector.hashes.iter().any(|(_, url)| {
            self.shard(*url).lock().get(url).is_some_and(|begun| begun.iter().any(|fetch| fetch.seq < record.seq))
        })
    }

    /// What became of a stored response of this URL whose fetch began with this number.
    #[inline]
    pub(crate) fn check(&self, url_key: &[u8], seq: u64, tags: impl Iterator<Item = u64>) -> Validity {
        if seq >= self.newest.load(Acquire) {
            return Validity::Valid;
        }
        self.noted.read().marks.check(url_key, seq, tags)
    }

    /// The purge that selects a stored response, a hard one before a soft one, and the newest of these.
    pub(crate) fn taker(&self, url_key: &[u8], seq: u64, tags: &[u64]) -> Option<Record> {
        let noted = self.noted.read();
        let is_it = |record: &&Record| {
            let alone = Marks::of(std::iter::once(*record));
            record.seq > seq && alone.check(url_key, seq, tags.iter().copied()) != Validity::Valid
        };
        noted.records.values().filter(is_it).max_by_key(|record| (!record.soft, record.seq)).cloned()
    }

    /// How often notes have ended: see the head of this file.
    #[inline]
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Acquire)
    }

    /// Takes the next number for a purge of this, which counts from now on, in this life of the proxy.
    ///
    /// # Errors
    /// [`Full`]; never for all, and for URLs that are to be gone.
    pub(crate) fn note(&self, selector: Selector, soft: bool) -> Result<Record, Full> {
        let mut noted = self.noted.write();
        let seq = self.last.load(Relaxed) + 1;
        let kind = selector.kind;
        let mut record = Record { selector, seq, at: unix_millis(), soft };
        if !noted.records.contains_key(&record.name()) {
            let full = match kind {
                Kind::Url if !soft => {
                    if noted.urls >= URLS {
                        record.selector = Selector::all();
                    }
                    None
                }
                Kind::All => None,
                Kind::Pattern if noted.patterns >= PATTERNS => Some(Full::Patterns),
                _ => (noted.records.len() - noted.urls >= MOST).then_some(Full::Records),
            };
            if let Some(full) = full {
                return Err(full);
            }
        }
        self.counts[kind as usize - 1].fetch_add(1, Relaxed);
        noted.insert(record.clone());
        self.newest.store(seq, Release);
        self.last.store(seq, Release);
        Ok(record)
    }

    /// Makes a purge durable; [`Purges::pinned`] is to be told what came of it.
    pub(crate) fn begin_pin(
        &self,
        record: &Record,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let name = record.name();
        let pinned = self.store.begin_pin(name, &record.encode());
        self.noted.write().pinned.insert(name);
        pinned
    }

    /// A purge is durable, or else it counts in this life, and a crash may undo it.
    pub(crate) fn pinned(&self, record: &Record, result: Result<(), Error>) -> Result<(), NotPinned> {
        if let Err(Error::Limit { .. }) = result {
            // One that took the place of another has that one's room.
            self.noted.write().pinned.remove(&record.name());
            self.forget(std::slice::from_ref(record));
            self.counts[record.selector.kind as usize - 1].fetch_sub(1, Relaxed);
            return Err(Full::Records.into());
        }
        result?;
        if record.selector.kind == Kind::All && !record.soft {
            // What they select, this selects.
            let noted = self.noted.read();
            let before: Vec<Record> = noted.records.values().filter(|other| other.seq < record.seq).cloned().collect();
            drop(noted);
            self.forget(&before);
        }
        Ok(())
    }

    /// Nothing that these select is in the store any more, or another selects it too.
    pub(crate) fn forget(&self, records: &[Record]) {
        let mut noted = self.noted.write();
        self.ends.fetch_add(1, AcqRel);
        let unpinned = noted.remove(records);
        self.newest.store(noted.newest(), Release);
        // Under the lock: a new purge of the same is pinned after this.
        unpinned.into_iter().for_each(|name| drop(self.store.begin_unpin(name)));
    }

    /// A purge was refused for want of room.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Whether there are so many notes that they have to go before others find no room.
    pub(super) fn is_pressed(&self) -> bool {
        let noted = self.noted.read();
        (noted.records.len() - noted.urls).max(noted.pinned.len()) > PRESSED || noted.patterns > PATTERNS / 2
    }

    /// Up to which number a pass that begins now ends notes: whatever they select is stored already, or never will be.
    /// With `hurry` no fetch that began before is stored any more, however long it takes.
    pub(super) fn sweepable(&self, hurry: bool) -> u64 {
        let last = self.last.load(Acquire);
        if hurry {
            self.horizon.fetch_max(last, AcqRel);
        }
        let horizon = self.horizon.load(Acquire);
        let oldest = |shard: &Mutex<HashMap<u64, Vec<Fetch>>>| {
            let shard = shard.lock();
            let may_come = shard.values().flatten().filter(|fetch| fetch.stores || fetch.seq >= horizon);
            may_come.map(|fetch| fetch.seq).min()
        };
        self.begun.iter().filter_map(oldest).min().map_or(last, |oldest| oldest.min(last))
    }

    /// Whether notes up to this number wait for a pass; not soft ones up to `held`.
    pub(super) fn waits(&self, limit: u64, held: u64) -> bool {
        let waits = |record: &Record| record.seq <= limit && !is_url(record) && !(record.soft && record.seq <= held);
        self.noted.read().records.values().any(waits)
    }

    /// Nothing that notes up to this number select is in the store any more, but for what soft ones do if these are
    /// `held`. They do not count from now on, and are pinned still. Returns their names.
    pub(super) fn end(&self, limit: u64, held: bool) -> Vec<u128> {
        let mut noted = self.noted.write();
        let ends = |record: &&Record| record.seq <= limit && !(record.soft && held);
        let ended: Vec<Record> = noted.records.values().filter(ends).cloned().collect();
        self.ends.fetch_add(1, AcqRel);
        let names = noted.remove(&ended);
        noted.pinned.extend(&names);
        self.newest.store(noted.newest(), Release);
        names
    }

    /// No crash can bring back what these selected.
    pub(super) fn unpin(&self, names: &[u128]) {
        let mut noted = self.noted.write();
        for name in names {
            if !noted.records.contains_key(name) && noted.pinned.remove(name) {
                drop(self.store.begin_unpin(*name));
            }
        }
    }

    /// What this selects, these URLs, is looked for once more when no older fetch of it is under way.
    pub(crate) fn leave(&self, record: Record, url_keys: Vec<Vec<u8>>) {
        self.left.lock().push((record, url_keys));
    }

    /// What was left, and is a note still.
    pub(crate) fn left(&self) -> Vec<(Record, Vec<Vec<u8>>)> {
        let noted = self.noted.read();
        let mut left = self.left.lock();
        left.retain(|(record, _)| noted.records.get(&record.name()).is_some_and(|found| found.seq == record.seq));
        left.clone()
    }

    /// Whether purges can be pinned.
    pub(crate) fn are_pinned(&self) -> bool {
        self.store.has_pins()
    }

    /// The nonce of a new index of variants: the same for all fetches of a URL that began with one number, so that two
    /// that run at one time mostly agree, and never one of an earlier life.
    pub(crate) fn nonce(&self, url_key: &[u8], seq: u64, names: &[String]) -> u64 {
        let text = [url_key, b"\n", names.join(",").as_bytes(), b"\n", &seq.to_le_bytes()].concat();
        xxh3_64_with_seed(&text, self.seed)
    }

    /// The lock of the index of a URL's variants.
    pub(crate) fn index_of(&self, url_key: &[u8]) -> &tokio::sync::Mutex<()> {
        &self.indexes[xxh3_64(url_key) as usize % INDEXES]
    }

    /// Whether something is being taken out that is not to be left half done.
    pub(crate) fn invalidating(&self) -> bool {
        self.invalidating.load(Relaxed) > 0
    }

    /// Something that ends in an invalidation is under way until this is dropped.
    pub(crate) fn begin_invalidating(self: &Arc<Self>) -> Invalidating {
        self.invalidating.fetch_add(1, Relaxed);
        Invalidating(self.clone())
    }

    /// For `/stats` and `/metrics`.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let kinds = Kind::ALL.map(|kind| (kind.name().to_owned(), self.counts[kind as usize - 1].load(Relaxed).into()));
        let noted = self.noted.read();
        serde_json::json!({
            "by_kind": serde_json::Map::from_iter(kinds),
            "refused": self.refused.load(Relaxed),
            "noted": noted.records.len(),
            "pinned": noted.pinned.len(),
            "room": MOST,
            "swept": self.swept.deleted.load(Relaxed),
            "made_stale": self.swept.made_stale.load(Relaxed),
            "passes": self.swept.passes.load(Relaxed),
        })
    }
}

/// See [`Purges::begin`].
pub(crate) struct Begun {
    purges: Arc<Purges>,
    url: u64,
    pub(crate) seq: u64,
    stores: AtomicBool,
}

impl Begun {
    /// Whether what it brought may be stored, which is about to be done. Not if notes that may select it have ended.
    pub(crate) fn may_store(&self) -> bool {
        let mut shard = self.purges.shard(self.url).lock();
        let own = |fetch: &&mut Fetch| **fetch == Fetch { seq: self.seq, stores: false };
        let may = self.seq >= self.purges.horizon.load(Acquire);
        if let (true, Some(fetch)) = (may, shard.get_mut(&self.url).and_then(|begun| begun.iter_mut().find(own))) {
            fetch.stores = true;
            self.stores.store(true, Relaxed);
        }
        may
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut shard = self.purges.shard(self.url).lock();
        if let Some(begun) = shard.get_mut(&self.url) {
            let own = Fetch { seq: self.seq, stores: self.stores.load(Relaxed) };
            if let Some(at) = begun.iter().position(|fetch| *fetch == own) {
                begun.swap_remove(at);
            }
            if begun.is_empty() {
                shard.remove(&self.url);
            }
        }
    }
}

/// See [`Purges::begin_invalidating`].
pub(crate) struct Invalidating(Arc<Purges>);

impl Drop for Invalidating {
    fn drop(&mut self) {
        self.0.invalidating.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use picaflor::{Options, device::MemoryDevice};

    use super::*;

    #[test]
    fn notes_have_their_bounds() {
        let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)).unwrap();
        let purges = Arc::new(Purges::new(&store));
        let pattern = |n: usize| Selector::parse(Kind::Pattern, &format!("a{n}.example/*"), None).unwrap();
        (0..PATTERNS).for_each(|n| drop(purges.note(pattern(n), false).unwrap()));
        assert_eq!(purges.note(pattern(PATTERNS), false), Err(Full::Patterns));
        assert!(purges.note(pattern(5), false).is_ok(), "it takes the place of the older one");
        let tag = |n: usize| Selector::parse(Kind::Tag, &format!("t{n}"), None).unwrap();
        (PATTERNS..MOST).for_each(|n| drop(purges.note(tag(n), false).unwrap()));
        assert_eq!(purges.note(tag(0), false), Err(Full::Records));
        let all = purges.note(Selector::all(), false).unwrap();
        purges.pinned(&all, Ok(())).unwrap();
        assert_eq!(purges.stats()["noted"], 1, "a purge of all takes the place of all");
        assert!(purges.note(pattern(PATTERNS), false).is_ok());
    }

    #[test]
    fn a_fetch_is_waited_for_or_not_stored() {
        let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)).unwrap();
        let purges = Arc::new(Purges::new(&store));
        let [slow, storing, second] = [(); 3].map(|()| purges.begin(b"http://a/"));
        let seq = purges.note(Selector::all(), false).unwrap().seq;
        assert_eq!(purges.sweepable(false), seq - 1);
        assert!(storing.may_store());
        assert_eq!(purges.sweepable(true), seq - 1, "one is being stored");
        // Of two alike the right one ends.
        drop(second);
        assert_eq!(purges.sweepable(true), seq - 1);
        drop(storing);
        assert_eq!(purges.sweepable(false), seq, "the other one will not be");
        assert!(!slow.may_store() && purges.begin(b"http://a/").may_store());
    }
}
