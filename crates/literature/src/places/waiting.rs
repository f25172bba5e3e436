//! Buffers in which objects of a server wait for each other: how large they are, and how many.

use picaflor::layout::Env;
use picaflor_format::zone::SLOT;

use super::space::Extents;

/// Bytes of a locality buffer: a dozen objects of mean size, and far more than a disk's track is read in one go.
pub(super) const BUFFER: u64 = 64 << 10;

/// A buffer in which objects wait: its number, and of which server they are.
pub(super) struct Waiting {
    pub(super) slot: u32,
    pub(super) server: u32,
}

/// Locality buffers of a volume: as many as were asked for, in at most a quarter of its memory and an eighth of its
/// slots.
pub(super) fn buffers(env: &dyn Env, extents: &Extents) -> u64 {
    let memory = env.memory() / env.places() as u64 / 4;
    let slots = u64::from(extents.count()) * SLOT / 8;
    (env.open_buffers() as u64).min(memory / BUFFER).min(slots / BUFFER).max(1)
}
