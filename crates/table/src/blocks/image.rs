//! A clean shutdown: what is in memory is written behind the tail, in one piece, or where that has no room into a free
//! block, past the grain that its header may be in; and the home says where. The next opening reads it instead of
//! headers, and forgets it before anything is allocated over it.

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::blocks::{Home, Image, ImageRef};

use super::{
    BlockError, BlockResult, FreeLists,
    links::Links,
    lists::Link,
    options::Shape,
    space::{Space, Tally},
};

impl FreeLists {
    /// Syncs, and leaves an image of the free lists, so that the next opening need not look for blocks. Where neither
    /// the tail nor a free block has room for it, or while discovery is under way, it leaves none, and the next opening
    /// is as after a crash.
    ///
    /// # Errors
    /// As [`FreeLists::sync`]; what was synced before is there all the same.
    pub fn close(self) -> BlockResult<()> {
        loop {
            self.sync()?;
            let space = self.space.lock();
            if space.pending.is_empty() && space.held.is_empty() && space.retired.is_empty() {
                break;
            }
        }
        let mut home = self.home.lock();
        let bytes = {
            let space = self.space.lock();
            space.walk.is_none().then(|| encode(&space, home.home.generation + 1))
        };
        if let Some(bytes) = bytes {
            let mut buf = AlignedBuf::zeroed(bytes.len().next_multiple_of(self.device.block_size()));
            if let Some(at) = self.room_for_image(&self.space.lock(), buf.len() as u64) {
                buf[..bytes.len()].copy_from_slice(&bytes);
                self.write_at(at * self.shape.grain, &buf, "writing the image of a clean shutdown")?;
                // One sync orders the two: the image is durable before the home says that it is there.
                self.device.sync().map_err(BlockError::io("syncing the device"))?;
                home.home.image = Some(ImageRef { at, bytes: bytes.len() as u64 });
            }
        }
        self.write_home(&mut home)?;
        self.device.sync().map_err(BlockError::io("syncing the device"))
    }

    /// Where so many bytes of an image can lie; nothing waits for a sync any more.
    fn room_for_image(&self, space: &Space, len: u64) -> Option<u64> {
        let grains = len.div_ceil(self.shape.grain);
        if space.lists.tail + grains <= self.shape.end {
            return Some(space.lists.tail);
        }
        space.lists.from(0).find(|(_, free)| u64::from(free.size) > grains).map(|(at, _)| at + 1)
    }
}

fn encode(space: &Space, generation: u64) -> Vec<u8> {
    let Tally { blocks, grains, bytes } = space.tally;
    Image {
        generation,
        allocated: (blocks.cast_unsigned(), grains.cast_unsigned(), bytes.cast_unsigned()),
        most: space.most,
        free: space.lists.oldest_first(),
        alone: space.alone.iter().map(|(&at, &size)| (at, size as u32)).collect(),
    }
    .encode()
}

/// What the home's image says, if there is one and it is intact.
pub(super) fn load(device: &dyn Device, shape: &Shape, home: &Home) -> Option<Space> {
    let place = home.image?;
    let from = place.at.checked_mul(shape.grain)?;
    let len = place.bytes.checked_next_multiple_of(device.read_unit() as u64)?;
    if from.checked_add(len)? > shape.end * shape.grain {
        return None;
    }
    let mut buf = AlignedBuf::zeroed(len as usize);
    device.read(from, &mut buf).ok()?;
    let image = Image::decode(&buf[..place.bytes as usize]).ok().filter(|image| image.generation == home.generation)?;
    let mut space = Space { most: image.most, ..Space::new(shape) };
    for free in image.free {
        let link = Link { list: free.link.0, next: free.link.1 };
        space.lists.insert(free.at, free.size, free.explicit, link);
    }
    space.alone = image.alone.into_iter().map(|(at, size)| (at, u64::from(size))).collect();
    let (blocks, grains, bytes) = image.allocated;
    space.tally = Tally { blocks: blocks.cast_signed(), grains: grains.cast_signed(), bytes: bytes.cast_signed() };
    space.lists.tail = home.tail.0;
    space.links = Links::new(shape, &home.heads);
    Some(space)
}
