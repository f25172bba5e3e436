//! What a crash costs (Shriver et al. 2001, §4.2): how long until gets are answered again, and what they take while the
//! rest is gone over.
//!
//! 1. A store is asked for two thirds of the log; then so many objects are deleted, and the delete log is written.
//! 2. The power fails. What the disk was given is on its platter: the machine's drives do not cache writes.
//! 3. The store opens again, in its preset's way, and is asked for the rest of the log, and for what would follow it,
//!    until it takes puts.
//! 4. A second one, whose power did not fail, is asked for the same.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};

use picaflor::{Place, Store};
use picaflor_device::{Clock, Device};
use picaflor_sim::{FaultyDevice, SimulatedDisk};
use serde::Serialize;

use super::{
    Load, Measured, System,
    store::{Daemon, disks, failed, options, play},
};
use crate::{Error, Result, trace::Request};

/// Logs, one behind the other, that a store has to take puts again.
const LOGS: u64 = 4;

/// What a crash cost.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Recovered {
    /// Clusters that the hot log named.
    pub hot: u64,
    /// Deletes that the delete log had.
    pub deletes: u64,
    /// Clusters that were written since the last checkpoint, and looked at for that.
    pub scanned: u64,
    /// MiB that the opening read.
    pub read_mib: f64,
    /// Seconds until gets were answered.
    pub seconds: f64,
    /// Events from then until puts were taken.
    pub events: u64,
    /// Seconds of these.
    pub rebuilding_s: f64,
    /// Puts that were refused meanwhile.
    pub refused: u64,
    /// Milliseconds of a read meanwhile.
    pub read_ms: f64,
    /// The same, of the same events, where the power did not fail.
    pub read_ms_otherwise: f64,
}

/// Crashes a store after two thirds of a load and so many deletes.
///
/// # Errors
/// If the load is not a store's, or that fails.
pub fn crash(load: &Load, deletes: u64, progress: Arc<dyn Fn(u64) + Send + Sync>) -> Result<Recovered> {
    let System::Store { preset, cluster } = &load.system else {
        return Err(Error::experiment("recovery", "only stores are crashed"));
    };
    let open = |clock: &Clock, device: Arc<dyn Device>| {
        let mut options = options(load, preset, *cluster, clock, vec![Place::Device(device)]).map_err(failed)?;
        options.delete_count = deletes;
        Store::open(options).map_err(failed)
    };
    let first = load.part_events() / 3 * 2;
    let mut crashed = Life::begin(load)?;
    let faulty = FaultyDevice::new(Arc::new(crashed.disk.clone()), load.seed);
    let store = open(&crashed.clock, Arc::new(faulty.clone()))?;
    crashed.run(load, &store, first, &progress)?;
    crashed.delete(&store, deletes)?;
    let power = |error: std::io::Error| Error::experiment("recovery", error.to_string());
    // All that the disk was given is on its platter.
    faulty.sync().and_then(|()| faulty.crash()).map_err(power)?;
    drop(store);
    faulty.revive().map_err(power)?;

    let begin = crashed.clock.now_nanos();
    let store = open(&crashed.clock, Arc::new(crashed.disk.clone()))?;
    let seconds = (crashed.clock.now_nanos() - begin) as f64 / 1e9;
    let read_mib = store.stats().counts.device_read as f64 / f64::from(1 << 20);
    let receipt = store.receipt().volumes.first().cloned().unwrap_or_default();
    let done = Rc::new(Cell::new(false));
    let rebuilding = crashed.until(load, &store, Rc::clone(&done), &progress)?;
    if !done.get() {
        return Err(Error::experiment("recovery", "the log ended before all clusters were gone over"));
    }

    let mut spared = Life::begin(load)?;
    let store = open(&spared.clock, Arc::new(spared.disk.clone()))?;
    spared.run(load, &store, first, &progress)?;
    spared.delete(&store, deletes)?;
    let otherwise = spared.run(load, &store, rebuilding.events, &progress)?;
    Ok(Recovered {
        hot: receipt.hot as u64,
        deletes: receipt.deletes,
        scanned: u64::from(receipt.scanned_clusters),
        read_mib,
        seconds,
        events: rebuilding.events,
        rebuilding_s: rebuilding.seconds,
        refused: rebuilding.refused,
        read_ms: rebuilding.read_ms,
        read_ms_otherwise: otherwise.read_ms,
    })
}

type Log = Rc<RefCell<dyn Iterator<Item = Request>>>;

/// A disk and the log that its stores are asked for.
struct Life {
    clock: Clock,
    disk: SimulatedDisk,
    log: Log,
    /// Objects asked for last.
    last: Rc<RefCell<VecDeque<u64>>>,
}

impl Life {
    fn begin(load: &Load) -> Result<Self> {
        let clock = Clock::virtual_at(1_700_000_000_000);
        let mut disks = disks(load, &clock)?;
        let disk = disks.pop().filter(|_| disks.is_empty());
        let disk = disk.ok_or_else(|| Error::experiment("recovery", "one disk is crashed"))?;
        Ok(Self { clock, disk, log: Rc::new(RefCell::new(load.log(LOGS))), last: Rc::default() })
    }

    /// So many events.
    fn run(
        &mut self,
        load: &Load,
        store: &Store,
        events: u64,
        progress: &Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Measured> {
        let (log, last, most) = (Rc::clone(&self.log), Rc::clone(&self.last), load.part_events() as usize);
        let requests = (0..events).map_while(move |_| {
            let request = log.borrow_mut().next()?;
            let mut last = last.borrow_mut();
            last.push_front(request.versioned_key());
            last.truncate(most);
            Some(request)
        });
        self.play(load, store, (Box::new(requests), Daemon::Called), progress)
    }

    /// Events until puts are taken.
    fn until(
        &mut self,
        load: &Load,
        store: &Store,
        done: Rc<Cell<bool>>,
        progress: &Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Measured> {
        let (log, is_done) = (Rc::clone(&self.log), Rc::clone(&done));
        let requests = std::iter::from_fn(move || if is_done.get() { None } else { log.borrow_mut().next() });
        self.play(load, store, (Box::new(requests), Daemon::Rebuilding(done)), progress)
    }

    fn play(
        &self,
        load: &Load,
        store: &Store,
        asked: (Box<dyn Iterator<Item = Request>>, Daemon),
        progress: &Arc<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Measured> {
        play(load, store, (&self.clock, std::slice::from_ref(&self.disk)), asked, Arc::clone(progress))
    }

    /// Deletes so many of the objects that were asked for last and are there. With the last of them the log is full.
    fn delete(&self, store: &Store, count: u64) -> Result<()> {
        let mut left = count;
        for key in self.last.borrow().iter() {
            if left == 0 {
                break;
            }
            left -= u64::from(store.delete(&key.to_le_bytes()).map_err(failed)?);
        }
        while store.step().map_err(failed)? {}
        Ok(())
    }
}
