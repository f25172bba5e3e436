//! Memory: a hard cap at every moment, and a tier that knows what will be asked for again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use picaflor::{Daemons, Mode, Store, TryGet, device::MemoryDevice};
use rand::Rng;

use crate::common::{MIB, Zipf, body, by_hand, bypass, counted, key, plain, rng, web_len};

fn within(store: &Store, what: &str) {
    let stats = store.stats();
    assert!(stats.memory_used <= stats.memory_limit, "{what}: {stats:?}");
}

#[test]
fn the_cap_holds_from_the_least_memory_to_more_than_the_device() {
    for (memory, device) in [(MIB, 8), (MIB, 256), (2 * MIB, 64), (8 * MIB, 64), (256 * MIB, 8)] {
        for mode in [Mode::Cache, Mode::Store] {
            let options = by_hand(Arc::new(MemoryDevice::new(device * MIB))).memory(memory).mode(mode);
            let store = Store::open(options).unwrap();
            let mut rng = rng(memory + device);
            for i in 0..6000u64 {
                let len = if i % 500 == 0 { 300_000 } else { web_len(&mut rng).min(60_000) };
                let options = plain().server(i as u32 % 40).bypass_memory(i % 4 == 0);
                let _ = store.put_with(&key(i % 3000), &body(i, len), &options);
                within(&store, "put");
                let _ = store.get(&key(rng.random_range(0..3000)));
                within(&store, "get");
                if i % 3 == 0 {
                    store.collocate(&key(i), &key(i / 2));
                    store.step().unwrap();
                    within(&store, "step");
                }
            }
            assert!(store.stats().counts.puts > 200, "{memory} {device} {mode:?} {:?}", store.stats());
            store.flush().unwrap();
            within(&store, "flush");
        }
    }
}

#[test]
fn the_cap_holds_at_every_moment_with_many_threads() {
    for memory in [MIB, 16 * MIB] {
        let options = by_hand(Arc::new(MemoryDevice::new(64 * MIB))).memory(memory);
        let store = Store::open(options.with(|options| options.daemons = Daemons::Threads)).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (store, stop) = (&store, &stop);
            let workers: Vec<_> = (0..8u64)
                .map(|id| {
                    scope.spawn(move || {
                        let mut rng = rng(id);
                        for i in 0..2500 {
                            let name = key(rng.random_range(0..5000));
                            if store.get(&name).unwrap().is_none() {
                                store.put(&name, &body(i, web_len(&mut rng).min(50_000))).unwrap();
                            }
                        }
                    })
                })
                .collect();
            let watcher = scope.spawn(move || {
                let mut most = 0;
                while !stop.load(Relaxed) {
                    let stats = store.stats();
                    most = stats.memory_used.max(most);
                    assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
                    thread::yield_now();
                }
                most
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            stop.store(true, Relaxed);
            let most = watcher.join().unwrap();
            assert!(most > memory / 2, "of {memory} bytes at most {most} were used");
        });
    }
}

#[test]
fn handles_are_their_holders_own() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options.memory(2 * MIB)).unwrap();
    let mut held = Vec::new();
    for i in 0..4000 {
        store.put(&key(i), &body(i, 4000)).unwrap();
        held.push(store.get(&key(i)).unwrap().unwrap());
        within(&store, "with handles held");
    }
    for (i, object) in held.iter().enumerate() {
        assert_eq!(object.body().unwrap(), body(i as u64, 4000));
    }
    drop(held);
    within(&store, "with none held");
}

/// S3-FIFO by the book, with objects of one size: the yardstick.
#[derive(Default)]
struct Yardstick {
    uses: HashMap<u64, (u8, bool)>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
}

impl Yardstick {
    fn ask(&mut self, i: u64, room: usize) -> bool {
        if let Some((uses, _)) = self.uses.get_mut(&i) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.uses.len() >= room {
            self.evict(room);
        }
        let is_ghost = self.ghosts.iter().any(|ghost| *ghost == i);
        self.uses.insert(i, (0, is_ghost));
        if is_ghost {
            self.main.push_back(i)
        } else {
            self.small.push_back(i)
        }
        false
    }

    fn evict(&mut self, room: usize) {
        if self.small.len() > room / 10 || self.main.is_empty() {
            if let Some(i) = self.small.pop_front() {
                if self.uses[&i].0 > 0 {
                    self.uses.insert(i, (0, true));
                    self.main.push_back(i);
                } else {
                    self.uses.remove(&i);
                    self.ghosts.push_back(i);
                    if self.ghosts.len() > room {
                        self.ghosts.pop_front();
                    }
                }
            }
        } else if let Some(i) = self.main.pop_front() {
            match self.uses[&i].0 {
                0 => drop(self.uses.remove(&i)),
                uses => {
                    self.uses.insert(i, (uses - 1, true));
                    self.main.push_back(i);
                }
            }
        }
    }
}

/// LRU with objects of one size.
fn lru_hits(asked: &[u64], room: usize) -> usize {
    let (mut last, mut order, mut hits) = (HashMap::new(), VecDeque::new(), 0);
    for (at, i) in asked.iter().enumerate() {
        hits += usize::from(last.insert(*i, at).is_some());
        order.push_back((*i, at));
        while last.len() > room {
            let Some((i, at)) = order.pop_front() else { break };
            if last.get(&i) == Some(&at) {
                last.remove(&i);
            }
        }
    }
    hits
}

#[test]
fn the_tier_beats_lru_where_many_are_asked_for_once() {
    const LEN: usize = 3000;
    let (zipf, mut rng) = (Zipf::new(4000, 0.9), rng(3));
    let mut once = 4000..;
    let asked: Vec<u64> = (0..60_000)
        .map(|_| if rng.random_range(0..10) < 4 { once.next().unwrap_or_default() } else { zipf.draw(&mut rng) })
        .collect();
    let last = once.next().unwrap_or_default();
    let (device, options) = counted(256 * MIB);
    let store = Store::open(options.clone().memory(16 * MIB)).unwrap();
    for i in 0..last {
        store.put_with(&key(i), &body(i, LEN), &bypass()).unwrap();
    }
    store.close().unwrap();
    // Less memory: cold, and no room for whole clusters, so that only single objects count.
    let store = Store::open(options.memory(2 * MIB)).unwrap();
    while store.step().unwrap() {}
    let before = device.counts();
    for i in &asked {
        assert!(store.get(&key(*i)).unwrap().is_some());
    }
    let reads = (device.counts() - before).reads;
    let hits = asked.len() as u64 - reads;
    let room = store.stats().memory_objects as usize;
    let mut yardstick = Yardstick::default();
    let best = asked.iter().filter(|i| yardstick.ask(**i, room)).count();
    let lru = lru_hits(&asked, room);
    let share = |hits: usize| hits as f64 / asked.len() as f64;
    println!("{room} objects: {:.3} hits, S3-FIFO {:.3}, LRU {:.3}", share(hits as usize), share(best), share(lru));
    assert!(room > 200, "{room}");
    assert!(share(hits as usize) > share(lru) + 0.02, "no better than LRU");
    assert!(share(hits as usize) > share(best) - 0.02, "worse than S3-FIFO by the book");
}

/// Objects that memory has, of so many that were put.
fn held(store: &Store, objects: u64) -> u64 {
    (0..objects).filter(|i| matches!(store.try_get(&key(*i)), TryGet::Hit(_))).count() as u64
}

#[test]
fn most_of_the_memory_is_objects() {
    // Read as 15 or 16 blocks, into a buffer of 16.
    const LEN: usize = 57_500;
    const MEMORY: u64 = 32 * MIB;
    let options = by_hand(Arc::new(MemoryDevice::new(256 * MIB))).memory(MEMORY);
    let store = Store::open(options).unwrap();
    for i in 0..2000 {
        store.put_with(&key(i), &body(i, LEN), &bypass()).unwrap();
    }
    store.flush().unwrap();
    (0..2000).for_each(|i| assert!(store.get(&key(i)).unwrap().is_some()));
    within(&store, "gets");
    let bytes = held(&store, 2000) * LEN as u64;
    println!("{bytes} bytes of objects");
    assert!(bytes > MEMORY * 4 / 5, "{bytes} of {MEMORY} bytes");
}

#[test]
fn what_is_put_anew_is_as_hot_as_it_was() {
    let options = by_hand(Arc::new(MemoryDevice::new(128 * MIB))).memory(4 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..4000 {
        store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
    }
    store.flush().unwrap();
    // Asked for, put anew, and asked for once since.
    for i in (0..50).chain(0..50) {
        store.get(&key(i)).unwrap();
        if store.stats().counts.gets > 50 {
            store.put_with(&key(i), &body(i + 9, 3000), &bypass()).unwrap();
            store.get(&key(i)).unwrap();
        }
    }
    for i in 50..4000 {
        store.get(&key(i)).unwrap();
    }
    let stay = held(&store, 50);
    assert!(stay > 45, "{stay} of 50 after many others that were asked for once");
}

#[test]
fn bypassing_puts_leave_memory_alone() {
    let (device, options) = counted(128 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..1000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
        store.get(&key(i)).unwrap();
    }
    store.step().unwrap();
    let before = store.stats().memory_objects;
    for i in 1000..20_000 {
        store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
        store.step().unwrap();
    }
    assert!(store.stats().memory_objects >= before * 9 / 10, "{} of {before}", store.stats().memory_objects);
    let reads = device.counts().reads;
    assert!((900..1000).all(|i| store.get(&key(i)).unwrap().is_some()));
    assert_eq!(device.counts().reads, reads, "the working set stayed");
    assert!((5000..5100).all(|i| store.get(&key(i)).unwrap().is_some()));
    assert!(device.counts().reads - reads > 50, "the others did not come in");
}

#[test]
fn an_index_that_has_its_share_makes_room_for_new_objects() {
    // Small objects on a large device: the index is what runs out first.
    for mode in [Mode::Cache, Mode::Store] {
        let options = by_hand(Arc::new(MemoryDevice::new(128 * MIB))).memory(2 * MIB).mode(mode);
        let store = Store::open(options).unwrap();
        let mut refused = 0;
        for i in 0..300_000u64 {
            if store.put_with(&i.to_le_bytes(), b"x", &bypass()).is_err() {
                refused += 1;
            }
            if i % 64 == 0 {
                store.step().unwrap();
                within(&store, "many small objects");
            }
        }
        let stats = store.stats();
        assert!(stats.objects > 30_000, "{mode:?} {refused} {stats:?}");
        match mode {
            Mode::Cache => {
                assert!(refused < 3_000, "{refused} of 300,000 refused {stats:?}");
                let recent = (290_000..300_000u64).filter(|i| store.contains(&i.to_le_bytes()).unwrap()).count();
                assert!(recent > 9_000, "{recent} of the last 10,000");
            }
            Mode::Store => {
                assert_eq!(stats.refusals["the index has used its memory"], refused);
                assert!(refused > 0);
                for i in 0..30_000u64 {
                    store.delete(&i.to_le_bytes()).unwrap();
                }
                (0..10_000u64).for_each(|i| store.put_with(&i.to_le_bytes(), b"y", &bypass()).unwrap());
            }
        }
    }
}
