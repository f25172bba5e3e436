//! Bodies that cost nothing to make: slices of one pool of random bytes, chosen by key and version, so that no two
//! objects are likely to have the same bytes.

use crate::{
    synth::{Dice, mix},
    trace::Request,
};

/// Bytes of the pool: more than any object of the workloads, which are cut to a third of it.
const POOL: usize = 24 << 20;

pub(super) struct Bodies {
    pool: Vec<u8>,
}

impl Bodies {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 21);
        Self { pool: (0..POOL / 8).flat_map(|_| dice.bits().to_le_bytes()).collect() }
    }

    pub(super) fn of(&self, request: &Request) -> &[u8] {
        let len = usize::try_from(request.size).unwrap_or(usize::MAX).clamp(1, POOL / 3);
        let from = mix(request.key ^ u64::from(request.version)) % (POOL - len) as u64;
        &self.pool[from as usize..from as usize + len]
    }
}
