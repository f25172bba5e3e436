//! One seeded life of an allocator on a device that may crash at any write or sync, judged by an oracle that knows what
//! was acknowledged: what every crash test runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use picaflor_device::MemoryDevice;
use picaflor_sim::{Fault, FaultyDevice, Rule};
use picaflor_table::blocks::{Address, Block, BlockError, BlockOptions, BlockResult, FreeLists};
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// How a life is to go.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) options: BlockOptions,
    pub(crate) operations: usize,
    pub(crate) bytes: u64,
    /// The crash, counted from the first opening on; none lives to the end.
    pub(crate) crash: Option<Rule>,
    /// A device that says that it syncs and does not: a life on it must be found wanting.
    pub(crate) lies: bool,
}

/// What is known of a block.
#[derive(Clone)]
struct Known {
    block: Block,
    bytes: Vec<u8>,
    /// Put before the last sync.
    durable: bool,
    /// Freed, and not synced since.
    freed: bool,
}

struct Life {
    plan: Plan,
    random: SmallRng,
    device: FaultyDevice,
    known: BTreeMap<u64, Known>,
    /// Blocks freed before the last sync, and not reused: they must not come back.
    gone: BTreeMap<u64, (Address, Vec<u8>)>,
    /// The durable ones, then those that were set since.
    roots: Vec<[u64; 8]>,
    stamp: u64,
}

type Verdict<T = ()> = Result<T, String>;

/// Lives the plan, crashes included; the number of device writes and syncs of a life without a crash.
pub(crate) fn live(plan: &Plan) -> Verdict<(u64, u64)> {
    let inner = Arc::new(MemoryDevice::with_block_size(plan.bytes, 512));
    let device = FaultyDevice::new(inner, plan.seed);
    let counted = picaflor_device::CountedDevice::new(Arc::new(device.clone()));
    let mut life = Life {
        plan: plan.clone(),
        random: SmallRng::seed_from_u64(plan.seed),
        device,
        known: BTreeMap::new(),
        gone: BTreeMap::new(),
        roots: vec![[0; 8]],
        stamp: 0,
    };
    if let Some(rule) = &plan.crash {
        life.device.add(rule.clone());
    }
    if plan.lies {
        life.device.add(Rule::rate(Fault::LostSync, 1.0));
    }
    let mut crashes = 0;
    let mut left = plan.operations;
    loop {
        let ended = life.run(&counted, &mut left);
        if ended.is_ok() {
            break;
        }
        if !life.device.is_crashed() {
            return Err(format!("an error without a crash: {:?}", ended.err()));
        }
        crashes += 1;
        life.device.revive().map_err(|error| error.to_string())?;
        life.after_a_crash(&counted)?;
        if crashes == 1 && plan.crash.is_some() {
            // A second crash, soon: what recovery wrote is put to the test as well.
            let n = life.random.random_range(1..60);
            life.device.add(Rule::nth(Fault::Crash(picaflor_sim::On::Write), n));
        }
    }
    let counts = counted.counts();
    Ok((counts.writes, counts.syncs))
}

impl Life {
    fn open(&self, counted: &picaflor_device::CountedDevice) -> BlockResult<FreeLists> {
        FreeLists::open(Arc::new(counted.clone()), self.plan.options.clone()).map(|(lists, _)| lists)
    }

    /// Until the plan is done or the device crashes.
    fn run(&mut self, counted: &picaflor_device::CountedDevice, left: &mut usize) -> BlockResult<()> {
        let mut lists = self.open(counted)?;
        while *left > 0 {
            *left -= 1;
            match self.random.random_range(0..100) {
                0..45 => self.put(&lists)?,
                45..55 => self.put_batch(&lists)?,
                55..75 => self.free(&lists)?,
                75..77 => self.set_roots(&lists)?,
                77..90 => self.sync(&lists)?,
                90..97 => drop(lists.step()?),
                97..99 => {
                    self.random.random_bool(0.5).then(|| self.sync(&lists)).transpose()?;
                    lists = self.open(counted)?;
                }
                _ => {
                    lists.close()?;
                    self.settle();
                    lists = self.open(counted)?;
                }
            }
        }
        Ok(())
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.stamp += 1;
        let len = match self.random.random_range(0..10) {
            0..6 => self.random.random_range(8..2000),
            6..9 => self.random.random_range(8..8000),
            _ => self.random.random_range(8..60_000),
        };
        let mut bytes = vec![(self.stamp % 251) as u8; len];
        bytes.iter_mut().zip(self.stamp.to_le_bytes()).for_each(|(to, from)| *to = from);
        bytes
    }

    fn note(&mut self, block: Block, bytes: Vec<u8>) {
        let at = block.address().grain();
        let end = at + block_grains(&block);
        let under =
            |(&begin, known): (&u64, &Known)| (begin + block_grains(&known.block) > at).then_some((begin, known.freed));
        let over: Vec<(u64, bool)> = self.known.range(..end).filter_map(under).collect();
        for (begin, freed) in over {
            // Freed: to make room the allocator has synced by itself.
            assert!(freed, "handed out twice: grain {at}, over a block at {begin}");
            self.known.remove(&begin);
        }
        self.gone.remove(&at);
        self.known.insert(at, Known { block, bytes, durable: false, freed: false });
    }

    fn put(&mut self, lists: &FreeLists) -> BlockResult<()> {
        let bytes = self.bytes();
        match lists.put(&bytes) {
            Ok(block) => self.note(block, bytes),
            Err(BlockError::Full { .. }) => self.settle(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn put_batch(&mut self, lists: &FreeLists) -> BlockResult<()> {
        let bodies: Vec<Vec<u8>> = (0..self.random.random_range(1..7)).map(|_| self.bytes()).collect();
        let slices: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
        match lists.put_batch(&slices) {
            Ok(blocks) => blocks.into_iter().zip(bodies.clone()).for_each(|(block, bytes)| self.note(block, bytes)),
            Err(BlockError::Full { .. }) => self.settle(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn free(&mut self, lists: &FreeLists) -> BlockResult<()> {
        let live: Vec<u64> = self.known.iter().filter(|(_, known)| !known.freed).map(|(&at, _)| at).collect();
        if live.is_empty() {
            return Ok(());
        }
        let at = live[self.random.random_range(0..live.len())];
        let Some(known) = self.known.get_mut(&at) else { return Ok(()) };
        known.freed = true;
        lists.free(&known.block)
    }

    fn set_roots(&mut self, lists: &FreeLists) -> BlockResult<()> {
        self.stamp += 1;
        self.roots.push([self.stamp; 8]);
        lists.set_roots([self.stamp; 8])
    }

    fn sync(&mut self, lists: &FreeLists) -> BlockResult<()> {
        lists.sync()?;
        self.settle();
        Ok(())
    }

    /// What was done so far is durable.
    fn settle(&mut self) {
        self.roots.drain(..self.roots.len() - 1);
        let gone: Vec<u64> = self.known.iter().filter(|(_, known)| known.freed).map(|(&at, _)| at).collect();
        for at in gone {
            if let Some(known) = self.known.remove(&at) {
                self.gone.insert(at, (known.block.address(), known.bytes));
            }
        }
        self.known.values_mut().for_each(|known| known.durable = true);
    }

    /// The oracle: what was acknowledged is there, what was freed is not, nothing lies over anything.
    fn after_a_crash(&mut self, counted: &picaflor_device::CountedDevice) -> Verdict {
        let lists = match self.open(counted) {
            Ok(lists) => lists,
            Err(_) if self.device.is_crashed() => return self.again(counted),
            Err(error) => return Err(format!("it does not open: {error}")),
        };
        let judged = self.judge(&lists);
        drop(lists);
        if self.device.is_crashed() { self.again(counted) } else { judged }
    }

    fn again(&mut self, counted: &picaflor_device::CountedDevice) -> Verdict {
        self.device.revive().map_err(|error| error.to_string())?;
        self.after_a_crash(counted)
    }

    fn judge(&mut self, lists: &FreeLists) -> Verdict {
        let roots = lists.roots();
        if !self.roots.contains(&roots) {
            return Err(format!("roots {roots:?}, none of {:?}", self.roots));
        }
        self.roots = vec![roots];
        let mut found = BTreeMap::new();
        let mut end = 0;
        for block in lists.blocks() {
            let block = block.map_err(|error| format!("walking: {error}"))?;
            let at = block.address().grain();
            if at < end {
                return Err(format!("blocks overlap at grain {at}"));
            }
            end = at + block_grains(&block);
            found.insert(at, block);
        }
        for (at, known) in &self.known {
            if known.durable && !known.freed {
                let read = lists.read(known.block.address()).map_err(|error| format!("lost: {error}"))?;
                if read.1 != known.bytes {
                    return Err(format!("other bytes at grain {at}"));
                }
                if !found.contains_key(at) {
                    return Err(format!("readable, but not found: grain {at}"));
                }
            }
        }
        for (at, block) in &found {
            // An attempt that was never answered may be there, with bytes of its own.
            let Some((address, bytes)) = self.gone.get(at).filter(|(address, _)| *address == block.address()) else {
                continue;
            };
            if lists.read(*address).is_ok_and(|(_, read)| read == *bytes) {
                return Err(format!("freed, synced, and back: grain {at}"));
            }
        }
        // What is found and was not acknowledged belongs to none: the layer above frees it. The rest is kept.
        let mut kept = BTreeMap::new();
        for (at, block) in found {
            match self.known.remove(&at).filter(|known| known.durable && !known.freed) {
                Some(known) => {
                    kept.insert(at, known);
                }
                None => lists.free(&block).map_err(|error| format!("freeing an orphan: {error}"))?,
            }
        }
        self.known = kept;
        lists.sync().map_err(|error| format!("syncing: {error}"))?;
        self.fill(lists)
    }

    /// Fills the device: whatever is handed out now, nothing that is kept may suffer.
    fn fill(&mut self, lists: &FreeLists) -> Verdict {
        let mut blocks = Vec::new();
        while blocks.len() < 100_000 {
            match lists.put(&[0xee; 900]) {
                Ok(block) => blocks.push(block),
                Err(BlockError::Full { .. }) => break,
                Err(error) => return Err(format!("filling: {error}")),
            }
        }
        for known in self.known.values() {
            let read = lists.read(known.block.address()).map_err(|error| format!("written over: {error}"))?;
            if read.1 != known.bytes {
                return Err(format!("written over: grain {}", known.block.address().grain()));
            }
        }
        for block in blocks {
            lists.free(&block).map_err(|error| format!("freeing: {error}"))?;
        }
        lists.sync().map_err(|error| format!("syncing: {error}"))?;
        self.gone.clear();
        Ok(())
    }
}

fn block_grains(block: &Block) -> u64 {
    block.capacity().div_ceil(512)
}
