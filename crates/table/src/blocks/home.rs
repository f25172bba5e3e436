//! The two homes: roots, checkpointed tail and list heads, and where the image of a clean shutdown lies.
//!
//! Invariant: at least one slot holds a home that a sync has covered, whatever the moment of a crash: until the next
//! sync every write goes to the other slot.

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::{
    Corrupt,
    blocks::{HOME, Home},
};

use super::{BlockError, BlockResult, options::Shape};

pub(super) struct HomeState {
    pub(super) home: Home,
    /// The slot that a sync has covered.
    durable: u64,
    /// The other was written since.
    written: bool,
}

/// What stands in the two slots.
pub(super) enum Found {
    /// Nothing was ever acknowledged here.
    Blank,
    Home(Box<HomeState>),
}

/// Bytes of a slot on this device.
pub(super) fn slot(device: &dyn Device) -> u64 {
    (HOME as u64).max(device.block_size() as u64)
}

pub(super) fn find(device: &dyn Device) -> BlockResult<Found> {
    let slot = slot(device) as usize;
    let mut homes = Vec::new();
    let (mut blank, mut damaged) = ([false; 2], 0);
    let mut both = AlignedBuf::zeroed(2 * slot);
    device.read(0, &mut both).map_err(BlockError::io("reading homes 0 and 1"))?;
    for (index, bytes) in (0..).zip(both.chunks_exact(slot)) {
        match Home::decode(bytes) {
            Ok(home) => homes.push((home, index)),
            Err(Corrupt::Version(version)) => {
                let what = format!("the block allocator there has format version {version}, this build reads 1");
                return Err(BlockError::Foreign(what));
            }
            Err(_) if bytes.iter().all(|&byte| byte == 0) => blank[index as usize] = true,
            Err(_) if Home::claims(bytes) => damaged += 1,
            Err(_) => {}
        }
    }
    homes.sort_by_key(|(home, _)| home.generation);
    if let Some((home, index)) = homes.pop() {
        return Ok(Found::Home(Box::new(HomeState { home, durable: index, written: false })));
    }
    // The second slot is written, and an opening answered, only when the first is durable.
    if blank[1] && (blank[0] || damaged == 1) {
        return Ok(Found::Blank);
    }
    Err(BlockError::Foreign(if damaged > 0 {
        "both homes of the block allocator are damaged: restore a copy of the device".to_owned()
    } else {
        "the device holds something else: clear its first bytes to make it a block allocator's".to_owned()
    }))
}

impl HomeState {
    /// Of a device that holds nothing: the first write goes to slot 0, the next to slot 1.
    pub(super) fn new(home: Home) -> Self {
        Self { home, durable: 1, written: false }
    }

    /// One device write; durable with the next sync.
    pub(super) fn write(&mut self, device: &dyn Device, shape: &Shape) -> BlockResult<()> {
        self.home.generation += 1;
        let mut bytes = AlignedBuf::zeroed(shape.slot as usize);
        self.home.encode(&mut bytes);
        let to = 1 - self.durable;
        device.write(to * shape.slot, &bytes).map_err(BlockError::io(format!("writing home {to}")))?;
        self.written = true;
        Ok(())
    }

    /// A sync that began after the last write has succeeded.
    pub(super) fn synced(&mut self) {
        if std::mem::take(&mut self.written) {
            self.durable = 1 - self.durable;
        }
    }
}
