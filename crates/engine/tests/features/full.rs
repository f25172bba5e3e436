//! How full a store gets: 90% of its capacity with objects of any length, and there everything can be replaced; behind
//! that it says what would help.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use futures_executor::block_on;
use picaflor::{
    Daemons, Durability, Error, Mode, Options, Stats, Store,
    device::{Clock, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};
use rand::{Rng, rngs::SmallRng, seq::SliceRandom};

use crate::common::{KIB, MIB, body, by_hand, rng};

/// Lengths of objects, drawn or all the same.
#[derive(Clone, Copy, Debug)]
enum Mix {
    All(usize),
    /// From 100 bytes to this, each order of magnitude as likely as another.
    Upto(usize),
    /// From an eighth of a cluster to a cluster: what packs worst.
    Middling,
}

impl Mix {
    fn len(self, cluster: u64, rng: &mut SmallRng) -> usize {
        match self {
            Self::All(len) => len,
            Self::Upto(most) => (100.0 * (most as f64 / 100.0).powf(rng.random::<f64>())) as usize,
            Self::Middling => rng.random_range(cluster / 8..cluster) as usize,
        }
    }
}

fn key(i: usize) -> Vec<u8> {
    format!("key {i:08}").into_bytes()
}

/// Bytes that an object takes, as `docs/CAPACITY.md` says.
fn takes(key: &[u8], len: usize) -> u64 {
    (64 + key.len() + len).next_multiple_of(64) as u64 + 64
}

/// What is in a store, and what is to be.
struct Filled {
    store: Store,
    options: Options,
    cluster: u64,
    capacity: u64,
    rng: SmallRng,
    mix: Mix,
    /// Length and version of each object; none of those that were deleted.
    held: Vec<Option<(usize, u64)>>,
    taken: u64,
}

impl Filled {
    fn new(mix: Mix, cluster: u64, clusters: u64, change: impl FnOnce(&mut Options)) -> Self {
        let device = Arc::new(MemoryDevice::new((clusters + 1) * cluster + MIB));
        let options = by_hand(device).mode(Mode::Store).memory(8 * MIB + 32 * cluster);
        let options = options.with(|options| options.cluster = cluster as u32).with(change);
        let store = Store::open(options.clone()).unwrap();
        let capacity = store.stats().volumes[0].room_bytes;
        Self { store, options, cluster, capacity, rng: rng(5), mix, held: Vec::new(), taken: 0 }
    }

    fn open_again(mut self) -> Self {
        self.store.close().unwrap();
        self.store = Store::open(self.options.clone()).unwrap();
        self
    }

    fn put(&self, at: usize) -> Result<(), Error> {
        let (len, version) = self.held[at].expect("it is held");
        self.store.put(&key(at), &body(at as u64 ^ version << 32, len))
    }

    fn written(&self) -> u64 {
        self.store.stats().counts.device_written
    }

    /// Puts new objects until they take so many percent.
    fn fill(&mut self, percent: u64) {
        loop {
            let len = self.mix.len(self.cluster, &mut self.rng);
            let takes = takes(&key(self.held.len()), len);
            if (self.taken + takes) * 100 > self.capacity * percent {
                break;
            }
            self.held.push(Some((len, 0)));
            let put = self.put(self.held.len() - 1);
            put.unwrap_or_else(|error| panic!("{:?}: {}: {error}", self.mix, self.said()));
            self.taken += takes;
        }
    }

    /// Replaces each object `times`, in any order; returns the bytes written for each byte put.
    fn replace(&mut self, times: u64) -> f64 {
        let mut order: Vec<usize> = (0..self.held.len()).cycle().take(self.held.len() * times as usize).collect();
        order.shuffle(&mut self.rng);
        let before = self.written();
        let mut put = 0;
        for (done, at) in order.into_iter().enumerate() {
            let (len, version) = self.held[at].as_mut().expect("none was deleted");
            *version += 1;
            put += *len;
            let replaced = self.put(at);
            replaced.unwrap_or_else(|error| panic!("{:?}: replacement {done}, {}: {error}", self.mix, self.said()));
        }
        (self.written() - before) as f64 / put as f64
    }

    /// Puts new objects until the store is full; returns what it said, and the clusters that were emptied for that put.
    fn fill_up(&mut self) -> (Error, u64) {
        loop {
            let len = self.mix.len(self.cluster, &mut self.rng);
            self.held.push(Some((len, 0)));
            let before = self.store.stats().counts.reclaimed_clusters;
            if let Err(error) = self.put(self.held.len() - 1) {
                return (error, self.store.stats().counts.reclaimed_clusters - before);
            }
            self.taken += takes(&key(self.held.len() - 1), len);
        }
    }

    /// Deletes any objects of so many bytes, but for the last, which is not there.
    fn delete(&mut self, bytes: u64) {
        let mut left = bytes as i64;
        let mut order: Vec<usize> = (0..self.held.len() - 1).collect();
        order.shuffle(&mut self.rng);
        for at in order {
            if left <= 0 {
                break;
            }
            assert!(self.store.delete(&key(at)).unwrap());
            let (len, _) = self.held[at].take().expect("none was deleted before");
            left -= takes(&key(at), len) as i64;
            self.taken -= takes(&key(at), len);
        }
    }

    fn said(&self) -> String {
        let Stats { volumes, counts, .. } = self.store.stats();
        format!(
            "{} objects take {:.1}% of {}, {} clusters free, {} checkpoints, {} moved",
            self.held.len(),
            self.taken as f64 / self.capacity as f64 * 100.0,
            self.capacity,
            volumes[0].clusters_free,
            counts.checkpoints,
            counts.reinserted
        )
    }

    fn check(&self) {
        for (at, held) in self.held.iter().enumerate() {
            let Some((len, version)) = held else {
                assert!(self.store.get(&key(at)).unwrap().is_none(), "{:?}: {at} was deleted", self.mix);
                continue;
            };
            let found = self.store.get(&key(at)).unwrap().unwrap_or_else(|| panic!("{:?}: {at} is gone", self.mix));
            let whole = len + key(at).len() + 300 < self.cluster as usize;
            assert!(!whole || found.body_in_memory().is_some(), "{:?}: {at} fits in a cluster", self.mix);
            assert!(found.body().unwrap() == body(at as u64 ^ version << 32, *len), "{:?}: {at}", self.mix);
        }
    }
}

/// All that is promised of one mix: 90% of the capacity, there each object can be replaced, also behind an opening; and
/// a put that is refused later learns how much to delete, after no more than a little was moved.
fn holds(mix: Mix, cluster: u64, change: impl FnOnce(&mut Options)) {
    let mut filled = Filled::new(mix, cluster, 512, change);
    filled.fill(90);
    filled.replace(1);
    let mut filled = filled.open_again();
    let amplified = filled.replace(1);
    assert!(amplified < 12.0, "{mix:?}: {amplified} bytes written for each byte: {}", filled.said());
    filled.check();
    let replaced = filled.said();
    let (error, emptied) = filled.fill_up();
    // Shown where a test fails.
    println!(
        "{mix:?} in {cluster}: {replaced}, {amplified:.2} bytes a byte; then {}, {emptied} emptied",
        filled.said()
    );
    let Error::Full { needed, delete, .. } = error else { panic!("{mix:?}: {error}") };
    let last = filled.held.len() - 1;
    let (len, _) = filled.held[last].expect("it was to be put");
    assert!(needed as usize >= len, "{mix:?}: {error}");
    // No more than 64 for each cluster that it needs.
    assert!(emptied <= 64 * (2 + len as u64 / cluster), "{mix:?}: {emptied} emptied: {error}");
    filled.delete(delete);
    filled.put(last).unwrap_or_else(|error| panic!("{mix:?}: what it said does not help: {error}"));
    filled.taken += takes(&key(last), len);
    filled.check();
}

#[test]
fn objects_of_a_hundred_bytes_fill_a_store() {
    holds(Mix::All(100), 64 * KIB, |_| ());
}

#[test]
fn objects_of_a_few_kilobytes_fill_a_store() {
    holds(Mix::All(4000), 64 * KIB, |_| ());
    holds(Mix::All(8500), 64 * KIB, |_| ());
    holds(Mix::All(8500), 256 * KIB, |_| ());
}

#[test]
fn objects_of_which_three_fit_in_a_cluster_and_hardly_four_fill_a_store() {
    holds(Mix::All(16 << 10), 64 * KIB, |_| ());
    holds(Mix::All(64 << 10), 256 * KIB, |_| ());
    holds(Mix::All(65 << 10), 256 * KIB, |_| ());
}

#[test]
fn objects_that_leave_a_fifth_of_their_cluster_empty_fill_a_store() {
    holds(Mix::All(200 << 10), 256 * KIB, |_| ());
}

#[test]
fn objects_just_longer_than_half_a_cluster_fill_a_store() {
    holds(Mix::All(8500), 16 * KIB, |_| ());
    holds(Mix::All(34 << 10), 64 * KIB, |_| ());
}

#[test]
fn objects_larger_than_a_cluster_fill_a_store() {
    holds(Mix::All(64 << 10), 64 * KIB, |_| ());
    holds(Mix::All(100 << 10), 64 * KIB, |_| ());
    holds(Mix::All(2 << 20), 64 * KIB, |_| ());
}

#[test]
fn objects_of_all_lengths_fill_a_store() {
    holds(Mix::Upto(2 << 20), 64 * KIB, |_| ());
    holds(Mix::Upto(200 << 10), 64 * KIB, |_| ());
    holds(Mix::Middling, 64 * KIB, |_| ());
}

#[test]
fn objects_that_are_each_durable_fill_a_store() {
    holds(Mix::All(8500), 256 * KIB, |options| options.durability = Durability::EveryPut);
}

/// Four threads replace each object twice, at 90%.
fn replaces_side_by_side(put: impl Fn(&Store, &[u8], &[u8]) -> Result<(), Error> + Sync) {
    let change = |options: &mut Options| (options.daemons, options.clock) = (Daemons::Threads, Clock::real());
    let mut filled = Filled::new(Mix::Upto(200 << 10), 64 * KIB, 512, change);
    filled.fill(90);
    thread::scope(|scope| {
        for own in 0..4 {
            let (filled, put) = (&filled, &put);
            scope.spawn(move || {
                let own = || (own..filled.held.len()).step_by(4);
                for at in own().chain(own()) {
                    let (len, version) = filled.held[at].unwrap();
                    put(&filled.store, &key(at), &body(at as u64 ^ version << 32, len))
                        .unwrap_or_else(|error| panic!("{at}: {}: {error}", filled.said()));
                    // A reader sees it whole meanwhile.
                    let found = filled.store.get(&key(at)).unwrap().unwrap();
                    assert_eq!(found.len() as usize, len);
                }
            });
        }
    });
    filled.check();
}

#[test]
fn threads_that_replace_side_by_side_are_not_refused() {
    replaces_side_by_side(|store, key, body| store.put(key, body));
}

#[test]
fn tasks_that_replace_side_by_side_are_not_refused() {
    replaces_side_by_side(|store, key, body| block_on(store.put_async(key, body)));
}

/// While two threads replace them, a third reads: each read is of one version, all of it.
#[test]
fn an_object_that_was_cut_is_read_whole_while_it_is_replaced() {
    let change = |options: &mut Options| (options.daemons, options.clock) = (Daemons::Threads, Clock::real());
    let mut filled = Filled::new(Mix::All(16 << 10), 64 * KIB, 256, change);
    filled.fill(85);
    let (store, done) = (&filled.store, &AtomicBool::new(false));
    let bodies: Vec<_> = (0..4).map(|version| body(version, 16 << 10)).collect();
    for at in 0..8 {
        store.put(&key(at), &bodies[0]).unwrap();
    }
    thread::scope(|scope| {
        let bodies = &bodies;
        scope.spawn(move || {
            for round in 0..2000 {
                store.put(&key(round % 8), &bodies[round / 8 % 4]).unwrap();
            }
            done.store(true, Relaxed);
        });
        let mut reads = 0;
        while !done.load(Relaxed) {
            let found = store.get(&key(reads % 8)).unwrap().expect("it is replaced, never deleted");
            assert!(bodies.contains(&found.body_in_memory().expect("it fits in a cluster").to_vec()));
            reads += 1;
        }
        assert!(reads > 0);
    });
}

/// Objects that were put whole are cut when the store becomes full, and the power fails in the middle of it.
#[test]
fn what_was_cut_anew_survives_a_crash() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(8 * MIB)), 3);
    let options = by_hand(Arc::new(disk.clone())).mode(Mode::Store).durability(Durability::EveryPut);
    let (mut rng, mut cut) = (rng(11), 0);
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let name = |at: u64| key(at as usize);
    let mut store = Store::open(options.clone()).unwrap();
    for crash in 0..40 {
        disk.add(Rule::nth(Fault::Crash(On::Write), rng.random_range(1..400)));
        // What the crash interrupted may be there or not.
        let (at, version, is_put) = loop {
            let at = rng.random_range(0..400);
            let version = rng.random_range(0..1 << 40);
            let is_put = held.len() < 360 || held.contains_key(&at);
            let done = match is_put {
                true => store.put(&name(at), &body(version, 16 << 10)),
                false => store.delete(&name(at)).map(drop),
            };
            match done {
                Ok(()) if is_put => drop(held.insert(at, version)),
                Ok(()) => drop(held.remove(&at)),
                Err(Error::Full { .. }) => {
                    let victim = *held.keys().nth(rng.random_range(0..held.len())).unwrap();
                    if store.delete(&name(victim)).is_ok() {
                        held.remove(&victim);
                    }
                }
                Err(_) => break (at, version, is_put),
            }
        };
        cut += u64::from(store.stats().objects > held.len() as u64 + 1);
        drop(store);
        disk.clear_rules();
        disk.revive().unwrap();
        store = Store::open(options.clone()).unwrap();
        for (held, was) in &held {
            let found = store.get(&name(*held)).unwrap().map(|object| object.body().unwrap().to_vec());
            let is_it = found.as_ref() == Some(&body(*was, 16 << 10));
            let is_new =
                *held == at && (is_put && found == Some(body(version, 16 << 10)) || !is_put && found.is_none());
            assert!(is_it || is_new, "crash {crash}: {held} is not what it was");
        }
        let found = store.get(&name(at)).unwrap().map(|object| object.body().unwrap().to_vec());
        match found {
            Some(found) if found == body(version, 16 << 10) => drop(held.insert(at, version)),
            None => drop(held.remove(&at)),
            Some(_) => {}
        }
    }
    assert!(cut > 10, "{cut} of 40 crashes found objects that were cut");
}

/// The canary of these tests: a store that gives a quarter less room than it says is noticed.
#[test]
#[should_panic(expected = "full")]
fn a_store_that_is_full_too_early_is_noticed() {
    let mut filled = Filled::new(Mix::All(3000), 64 * KIB, 128, |_| ());
    filled.capacity += filled.capacity / 3;
    filled.fill(90);
}

/// What three checkpoints, reclaim and four open buffers need is a large part of a small store; the rest is filled.
#[test]
fn a_small_store_fills_what_is_not_kept_and_takes_again_what_was_deleted() {
    for clusters in [16, 32, 64, 128] {
        for mix in [Mix::All(3000), Mix::Upto(60 << 10), Mix::All(16 << 10)] {
            let mut filled = Filled::new(mix, 64 * KIB, clusters, |_| ());
            let (error, _) = filled.fill_up();
            assert!(matches!(error, Error::Full { .. }), "{clusters} {mix:?}: {error}");
            filled.held.pop();
            let count = filled.capacity / filled.cluster;
            assert!(filled.taken * 32 > 31 * (count - 13) * filled.cluster, "{clusters} {mix:?}: {}", filled.said());
            for at in (0..filled.held.len()).step_by(5) {
                assert!(filled.store.delete(&key(at)).unwrap());
                filled.held[at] = None;
            }
            for _ in 0..3 {
                let left = (0..filled.held.len()).filter(|at| filled.held[*at].is_some());
                left.for_each(|at| filled.put(at).unwrap_or_else(|error| panic!("{clusters} {mix:?}: {at}: {error}")));
            }
            filled.check();
        }
    }
}

#[test]
fn a_victim_of_a_store_is_one_read() {
    let mut filled = Filled::new(Mix::All(3000), 64 * KIB, 2048, |_| {});
    filled.fill(85);
    filled.held.push(None);
    filled.delete(filled.capacity / 4);
    filled.store.flush().unwrap();
    let mut before = filled.store.stats().counts;
    let (mut reclaimed, mut reads) = (0, 0);
    while reclaimed < 400 {
        filled.held.push(Some((3000, 0)));
        filled.put(filled.held.len() - 1).unwrap();
        let now = filled.store.stats().counts;
        reads += now.device_reads - before.device_reads;
        reclaimed += now.reclaimed_clusters - before.reclaimed_clusters;
        before = now;
    }
    assert!(reads <= reclaimed + 8, "{reads} reads for {reclaimed} clusters");
    filled.check();
}
