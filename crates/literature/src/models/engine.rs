//! The whole engine on a device in memory: writers that replace and delete, a reader, and a thread that runs the steps
//! of the daemons. A get never returns what was replaced or deleted before it began, in this life and after a kill.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use parking_lot::{
    Mutex,
    models::{draw, finds, holds},
    shuttle::{future::block_on, thread},
};
use picaflor::{Daemons, Durability, Error, Mode, Options, PutOptions, Refusal, Store};
use picaflor_device::{Clock, MemoryDevice};

/// Keys of each writer: only it puts and deletes them. One more is shared by all.
const KEYS: usize = 3;
const WRITERS: usize = 2;
const ALL: usize = KEYS * WRITERS + 1;
const SHARED: usize = ALL - 1;
const OPERATIONS: u64 = 6;
/// Rows of the table that keep their objects in ways of their own.
const PRESETS: [&str; 6] = ["picaflor", "hummingbird", "damelo", "stream-pack", "buddy", "buddy-scan"];

type Front = Mutex<HashMap<String, Vec<u8>>>;

struct Run {
    store: Store,
    mode: Mode,
    /// Preset, mode and life: what a failure is told with.
    name: String,
    /// What is known of each key, of the shared one for each writer: twice the version whose put or delete returned
    /// last, and one more if it was deleted.
    told: [AtomicU64; ALL + 1],
    /// Operations that began, by key: no version is newer.
    begun: [AtomicU64; ALL],
    /// The fault: a cache before the store that takes in what a get brought, and does not ask whether it is current.
    front: Option<Front>,
}

fn key(at: usize) -> String {
    format!("http://host{}/{at}", at % WRITERS)
}

/// Says whose it is, and which version.
fn body(at: usize, version: u64) -> Vec<u8> {
    // Now and then one that is larger than a cluster.
    let len = if version % 8 == 7 { 90_000 } else { 300 + (at as u64 * 7919 + version * 104_729) % 9000 };
    let word = (at as u64) << 32 | version;
    word.to_le_bytes().repeat(len as usize / 8)
}

/// What is told of this version is told there.
fn slot(at: usize, version: u64) -> usize {
    if at == SHARED { SHARED + version as usize % WRITERS } else { at }
}

fn version_in(body: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes(body[..4].try_into().unwrap()))
}

impl Run {
    fn open(device: &MemoryDevice, preset: &str, mode: Mode, durability: Durability) -> Store {
        let options =
            crate::as_preset(Options::on(Arc::new(device.clone())), preset).unwrap().memory(2 << 20).mode(mode);
        let options = options.durability(durability).with(|options| {
            options.cluster = 64 << 10;
            options.seed = Some(7);
            options.daemons = Daemons::Manual;
            options.clock = Clock::virtual_at(1_000_000);
            options.delete_count = 1;
        });
        Store::open(options).unwrap()
    }

    /// The number of an operation of this writer; of the shared key it also says whose it is.
    fn begin(&self, writer: usize, at: usize) -> u64 {
        let step = if at == SHARED { WRITERS as u64 } else { 1 };
        let number = self.begun[at].fetch_add(step, SeqCst) + step;
        if at == SHARED { number + writer as u64 } else { number }
    }

    fn put(&self, writer: usize, at: usize, filler: bool) {
        let version = self.begin(writer, at);
        let name = key(at);
        // Named by some, it is waited for by others, where durability lets them.
        let neighbour = (!filler && draw(0..2) == 0).then(|| key(draw(0..ALL as u64) as usize).into_bytes().into());
        let options = PutOptions::new().bypass_memory(filler).maybe_neighbour(neighbour);
        let put = match draw(0..2) {
            0 => self.store.put_with(name.as_bytes(), &body(at, version), &options),
            _ => block_on(self.store.put_with_async(name.as_bytes(), &body(at, version), &options)),
        };
        match put {
            Ok(()) => self.told[slot(at, version)].store(2 * version, SeqCst),
            Err(Error::Full { .. } | Error::Refused(Refusal::NoCleanSpace | Refusal::Busy)) => {}
            Err(error) => panic!("{error}"),
        }
        self.front.iter().for_each(|front| drop(front.lock().remove(&name)));
    }

    fn delete(&self, writer: usize, at: usize) {
        let version = self.begin(writer, at);
        self.store.delete(key(at).as_bytes()).unwrap();
        self.told[slot(at, version)].store(2 * version + 1, SeqCst);
        self.front.iter().for_each(|front| drop(front.lock().remove(&key(at))));
    }

    fn find(&self, at: usize) -> Option<Vec<u8>> {
        let name = key(at);
        if let Some(found) = self.front.as_ref().and_then(|front| front.lock().get(&name).cloned()) {
            return Some(found);
        }
        let object = match draw(0..2) {
            0 => self.store.get(name.as_bytes()).unwrap(),
            _ => block_on(self.store.get_async(name.as_bytes())).unwrap(),
        };
        let found = object.map(|object| {
            let bytes = object.body();
            bytes.unwrap_or_else(|error| panic!("{}, key {at}: a handle does not pin: {error}", self.name)).to_vec()
        });
        if let (Some(front), Some(found)) = (&self.front, &found) {
            front.lock().insert(name, found.clone());
        }
        found
    }

    fn get(&self, at: usize) {
        let told = self.told.each_ref().map(|told| told.load(SeqCst));
        let found = self.find(at);
        let begun = self.begun[at].load(SeqCst) + if at == SHARED { WRITERS as u64 - 1 } else { 0 };
        let Some(found) = found else {
            let before = told[at];
            // It may have been deleted and put back meanwhile.
            let is_there = before != 0 && before.is_multiple_of(2) && begun == before / 2 && at != SHARED;
            assert!(
                self.mode == Mode::Cache || !is_there,
                "{}, key {at}: version {} is missing",
                self.name,
                before / 2
            );
            return;
        };
        let version = version_in(&found);
        let before = told[slot(at, version)];
        assert!(found == body(at, version), "{}, key {at}: foreign or torn bytes", self.name);
        assert!(version <= begun, "{}, key {at}: version {version} was never put", self.name);
        assert!(
            2 * version >= before,
            "{}, key {at}: an old version: {version}, and {} was {}",
            self.name,
            before / 2,
            if before.is_multiple_of(2) { "put" } else { "deleted" }
        );
    }

    fn write(&self, writer: usize) {
        for _ in 0..OPERATIONS {
            let own = writer + WRITERS * draw(0..KEYS as u64) as usize;
            let at = if draw(0..4) == 0 { SHARED } else { own };
            match draw(0..8) {
                0..4 => self.put(writer, at, false),
                4 => self.delete(writer, at),
                _ => self.get(at),
            }
        }
    }

    fn read(&self) {
        for _ in 0..OPERATIONS {
            self.get(draw(0..ALL as u64) as usize);
        }
    }

    fn step(&self) {
        for _ in 0..OPERATIONS {
            match draw(0..3) {
                0 => self.store.flush().unwrap(),
                _ => drop(self.store.step().unwrap()),
            }
        }
    }
}

fn model(fault: bool) {
    let device = MemoryDevice::new(3 << 20);
    let mode = [Mode::Cache, Mode::Store][draw(0..2) as usize];
    let preset = PRESETS[draw(0..PRESETS.len() as u64) as usize];
    let durability = [Durability::EveryPut, Durability::None][draw(0..2) as usize];
    let run = Arc::new(Run {
        store: Run::open(&device, preset, mode, durability),
        mode,
        name: format!("{preset}, {mode:?}, {durability:?}"),
        told: Default::default(),
        begun: Default::default(),
        front: fault.then(Front::default),
    });
    // So full, and of what was replaced so often, that room has to be made.
    for i in 0..draw(0..400) as usize {
        run.put(0, i % ALL, true);
    }
    let spawn = |act: fn(&Run)| {
        let run = Arc::clone(&run);
        thread::spawn(move || act(&run))
    };
    let threads = [spawn(|run| run.write(0)), spawn(|run| run.write(1)), spawn(Run::read), spawn(Run::step)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    (0..ALL).for_each(|at| run.get(at));
    let shown = run.find(SHARED);
    let report = run.store.check(|_, _| {});
    assert!(report.is_clean(), "{report:?}");
    // Killed: everything that returned is durable, on the device as it stands now.
    if durability != Durability::EveryPut {
        run.store.flush().unwrap();
    }
    let left = Run::open(&copy(&device), preset, mode, durability);
    let told = run.told.each_ref().map(|told| AtomicU64::new(told.load(SeqCst)));
    let begun = run.begun.each_ref().map(|begun| AtomicU64::new(begun.load(SeqCst)));
    let name = format!("{}, after a kill", run.name);
    let after = Run { store: left, mode, name, told, begun, front: None };
    (0..ALL).for_each(|at| after.get(at));
    // A cache may let go, and a crash may bring back what it let go; what was replaced or deleted is told of.
    let [again, shown] = [after.find(SHARED), shown].map(|found| found.map(|found| version_in(&found)));
    assert!(
        again == shown || mode == Mode::Cache && (again.is_none() || shown.is_none()),
        "{preset}, {mode:?}: version {shown:?} of the shared key, and in the next life {again:?}"
    );
}

/// What another life finds.
fn copy(device: &MemoryDevice) -> MemoryDevice {
    use picaflor_device::Device;
    let other = MemoryDevice::new(device.capacity());
    let mut bytes = vec![0; device.capacity() as usize];
    device.read(0, &mut bytes).unwrap();
    other.write(0, &bytes).unwrap();
    other
}

#[test]
fn engine() {
    holds("engine", || model(false));
}

#[test]
fn canary_engine() {
    finds("canary_engine", "an old version", || model(true));
}
