//! Opening: create on a blank device; or take the image of a clean shutdown; or find the tail, and leave the rest to
//! discovery, while allocation works from the tail. What is found is made durable; then the new epoch is, before
//! anything else is written, which may be later than the opening.

use crate::Commits;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use picaflor_device::{BufPool, Device};
use picaflor_format::blocks::{Home, ROOTS, VOIDS};

use super::{
    BlockError, BlockOptions, BlockResult, FreeLists, Method,
    cursors::Follow,
    home::{self, Found, HomeState},
    image,
    links::Links,
    options::Shape,
    queue::Queue,
    space::Space,
    walk::{Step, Walk},
    writes::Writes,
};

/// Low bits of a sequence number; the epoch stands above them.
const EPOCH_SHIFT: u32 = 40;

/// What an opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReceipt {
    /// The device was blank.
    pub created: bool,
    /// The last shutdown was clean: nothing is to be discovered.
    pub clean: bool,
    /// Number of this opening.
    pub epoch: u64,
    /// What the allocator was created with, whatever the options say now.
    pub method: Method,
    /// Bytes of a grain.
    pub grain: u64,
    /// Blocks found behind the tail that the home named.
    pub behind_tail: u64,
    /// Free blocks found on persistent lists.
    pub from_lists: u64,
    /// Bytes in which blocks are still to be discovered.
    pub undiscovered: u64,
}

impl FreeLists {
    /// Opens the allocator on a device, or creates one on a device whose first bytes are zero. After a crash it answers
    /// at once: only what was allocated since the last checkpoint of the tail is looked at, the rest by
    /// [`step`](FreeLists::step) or when a request needs it.
    ///
    /// # Errors
    /// [`BlockError::Option`]; [`BlockError::Foreign`] if something else is there, another version, or both homes are
    /// damaged; [`BlockError::Io`].
    pub fn open(device: Arc<dyn Device>, options: BlockOptions) -> BlockResult<(Self, BlockReceipt)> {
        let (lists, receipt) = Self::open_to_read(device, options)?;
        lists.begin(lists.roots())?;
        Ok((lists, receipt))
    }

    /// As [`FreeLists::open`], but for [`FreeLists::begin`]: until that, nothing is written.
    ///
    /// # Errors
    /// As [`FreeLists::open`].
    pub(crate) fn open_to_read(device: Arc<dyn Device>, options: BlockOptions) -> BlockResult<(Self, BlockReceipt)> {
        options.check()?;
        match home::find(device.as_ref())? {
            Found::Blank if !options.create => {
                let what =
                    "both homes of the block allocator are blank, and there was one: restore a copy of the device";
                Err(BlockError::Foreign(what.to_owned()))
            }
            Found::Blank => Self::create(device, options),
            Found::Home(state) => Self::reopen(device, options, *state),
        }
    }

    fn create(device: Arc<dyn Device>, options: BlockOptions) -> BlockResult<(Self, BlockReceipt)> {
        let grain = options.grain.max(device.block_size() as u32);
        let home = Home {
            generation: 0,
            salt: rand::random(),
            epoch: 0,
            capacity: device.capacity(),
            grain,
            method: options.method as u8,
            quick: (options.min_quick, options.max_quick),
            tail: (0, 0),
            durable: 0,
            image: None,
            roots: [0; ROOTS],
            voids: Vec::new(),
            heads: Vec::new(),
        };
        let shape = shape(device.as_ref(), &home, &options)?;
        let mut state = HomeState::new(home);
        state.home.tail = (shape.start, 0);
        state.write(device.as_ref(), &shape)?;
        device.sync().map_err(BlockError::io("syncing the device"))?;
        state.synced();
        let mut space = Space::new(&shape);
        space.lists.tail = shape.start;
        space.links = Links::new(&shape, &[]);
        let receipt = receipt(&state.home, true, true);
        Self::ready(device, options, shape, state, space, receipt)
    }

    fn reopen(
        device: Arc<dyn Device>,
        options: BlockOptions,
        mut state: HomeState,
    ) -> BlockResult<(Self, BlockReceipt)> {
        let home = &mut state.home;
        if home.capacity > device.capacity() {
            let what =
                format!("the allocator was made for {} bytes, the device has {}", home.capacity, device.capacity());
            return Err(BlockError::Foreign(what));
        }
        home.capacity = device.capacity();
        let shape = shape(device.as_ref(), home, &options)?;
        if let Some(space) = image::load(device.as_ref(), &shape, home) {
            home.image = None;
            let receipt = receipt(home, false, true);
            return Self::ready(device, options, shape, state, space, receipt);
        }
        home.image = None;
        let mut receipt = receipt(home, false, false);
        home.voids.push((home.durable + 1, ((home.epoch + 1) << EPOCH_SHIFT) - 1));
        if home.voids.len() > VOIDS {
            // Two neighbours become one, with what lies between them: more is looked at, nothing is missed.
            let (_, to) = home.voids.remove(1);
            home.voids[0].1 = to;
        }
        let mut space = Space::new(&shape);
        let mut walk = Walk::new(home.tail.0, home.tail.0, home.tail.1);
        loop {
            let step = walk.next(device.as_ref(), &shape, home.salt);
            if let Some(error) = walk.refused.take() {
                // What lies there may be in use, and allocation would begin before it.
                let from = walk.at * shape.grain;
                return Err(BlockError::io(format!("reading the headers of blocks from {from} on"))(error));
            }
            match step {
                Step::Block(..) => receipt.behind_tail += 1,
                Step::Damage { at, size, .. } => drop(space.alone.insert(at, size)),
                Step::End => break,
            }
        }
        space.lists.tail = walk.at;
        space.walk = (walk.at > shape.start).then(|| Walk::new(shape.start, walk.at, u64::MAX));
        space.links = Links::new(&shape, &home.heads);
        let mut follow = Follow::new(&space.links.heads, &home.voids, (home.epoch + 1) << EPOCH_SHIFT, options.pool);
        receipt.from_lists = follow.go_on(device.as_ref(), (&shape, home.salt), &mut space, options.step_blocks, None);
        space.follow = (!follow.is_done()).then_some(follow);
        receipt.undiscovered = (walk.at - shape.start) * shape.grain;
        Self::ready(device, options, shape, state, space, receipt)
    }

    fn ready(
        device: Arc<dyn Device>,
        options: BlockOptions,
        shape: Shape,
        mut state: HomeState,
        mut space: Space,
        mut receipt: BlockReceipt,
    ) -> BlockResult<(Self, BlockReceipt)> {
        let home = &mut state.home;
        home.epoch += 1;
        receipt.epoch = home.epoch;
        space.seq = home.epoch << EPOCH_SHIFT;
        space.synced = (space.lists.tail, space.seq);
        space.most = space.most.max(space.lists.tail);
        (home.tail, home.durable) = (space.synced, space.seq);
        home.heads.clone_from(&space.links.heads);
        let salt = home.salt;
        // What was found may still be on its way to the medium, if no power failed since it was written.
        device.sync().map_err(BlockError::io("syncing the device"))?;
        let lists = Self {
            device,
            shape,
            salt,
            opening: space.seq,
            found_tail: space.lists.tail,
            pool: BufPool::new(options.pool),
            gate: RwLock::new(()),
            queue: Queue::default(),
            home: Mutex::new(state),
            space: Mutex::new(space),
            commits: Commits::default(),
            writes: Writes::default(),
            options,
        };
        Ok((lists, receipt))
    }

    /// Notes that this opening began, and with it these roots. Durable before anything else is written.
    ///
    /// # Errors
    /// [`BlockError::Io`], and then the allocator has stopped.
    pub(crate) fn begin(&self, roots: [u64; ROOTS]) -> BlockResult<()> {
        self.alive()?;
        let mut home = self.home.lock();
        home.home.roots = roots;
        home.write(self.device.as_ref(), &self.shape).inspect_err(|error| self.commits.fail(error.shared()))?;
        self.sync_device(&mut home)
    }
}

fn receipt(home: &Home, created: bool, clean: bool) -> BlockReceipt {
    BlockReceipt {
        created,
        clean,
        epoch: home.epoch,
        method: method(home),
        grain: u64::from(home.grain),
        behind_tail: 0,
        from_lists: 0,
        undiscovered: 0,
    }
}

fn method(home: &Home) -> Method {
    match home.method {
        1 => Method::Pl,
        2 => Method::Pfl,
        _ => Method::Ts,
    }
}

/// The sizes of the allocator that the home describes.
fn shape(device: &dyn Device, home: &Home, options: &BlockOptions) -> BlockResult<Shape> {
    let grain = u64::from(home.grain);
    let unit = device.block_size() as u64;
    if !grain.is_multiple_of(unit) {
        let what = format!(
            "the allocator's grain of {grain} bytes is less than the device's block of {unit}: open the device with blocks of {grain} bytes"
        );
        return Err(BlockError::Foreign(what));
    }
    let slot = home::slot(device);
    let (start, end) = ((2 * slot).div_ceil(grain), home.capacity / grain);
    if end <= start || end >= 1 << 44 {
        let why = format!("a device of {} bytes cannot hold grains of {grain}", home.capacity);
        return Err(BlockError::Option { name: "grain", why });
    }
    Ok(Shape {
        method: method(home),
        grain,
        min: home.quick.0,
        max_quick: home.quick.1,
        waste: u32::try_from(options.waste / grain).unwrap_or(u32::MAX),
        search: options.search,
        threshold: u32::try_from(options.batch_threshold.div_ceil(grain)).unwrap_or(u32::MAX),
        start,
        end,
        slot,
    })
}
