//! What all clients of a soak share with its conductor.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use picaflor::Durability;

use super::{options::Soak, tally::Tally};
use crate::{
    dice::Dice,
    rounds::{
        breaks::Break,
        durable::NEVER,
        floor::Known,
        log::now,
        origin::{Origin, Site},
        wish::Wish,
    },
};

/// A fetch that ended so long ago is in the store, or is not.
pub(super) const SETTLED: u64 = 3_000_000_000;
/// Of the Zipf mixture.
const SKEW: f64 = 0.8;

/// What all clients share.
pub(super) struct Scene {
    pub(super) addresses: Mutex<(SocketAddr, SocketAddr)>,
    pub(super) site: Arc<Site>,
    pub(super) known: Vec<Mutex<Known>>,
    /// Sums of the popularities of all keys up to each.
    pub(super) popularity: Vec<f64>,
    pub(super) durability: Durability,
    pub(super) grace: Duration,
    pub(super) sabotage: Break,
    pub(super) rate: u64,
    pub(super) clients: usize,
    pub(super) tally: Tally,
    /// Since when the device fails, if it does; else [`NEVER`].
    pub(super) failed_at: AtomicU64,
    pub(super) over: AtomicBool,
    /// Requests hold it shared; a restart of the proxy holds it alone.
    pub(super) gate: RwLock<()>,
    pub(super) wrong: Mutex<Vec<String>>,
}

impl Scene {
    pub(super) fn new(soak: &Soak, wish: &Wish, origin: &Origin, durability: Durability) -> Self {
        let mut sum = 0.0;
        let more = |rank: u32| {
            sum += f64::from(rank + 1).powf(-SKEW);
            sum
        };
        Self {
            addresses: Mutex::new((origin.address, origin.address)),
            site: Arc::clone(&origin.site),
            known: (0..soak.keys).map(|_| Mutex::default()).collect(),
            popularity: (0..soak.keys).map(more).collect(),
            durability,
            grace: wish.grace,
            sabotage: wish.sabotage,
            rate: soak.rate,
            clients: soak.clients,
            tally: Tally::default(),
            failed_at: AtomicU64::new(NEVER),
            over: AtomicBool::new(false),
            gate: RwLock::new(()),
            wrong: Mutex::default(),
        }
    }

    pub(super) fn draw(&self, dice: &mut Dice) -> u32 {
        let all = self.popularity.last().copied().unwrap_or(0.0);
        let at = dice.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        self.popularity.partition_point(|sum| *sum < at).min(self.popularity.len() - 1) as u32
    }

    pub(super) fn wrong(&self, what: String) {
        self.wrong.lock().push(what);
    }

    /// From now on the device fails. What was replaced a moment ago may not be on it, nor leave what it has.
    pub(super) fn fail_device(&self) {
        let at = now();
        self.failed_at.store(at, SeqCst);
        let since = at.saturating_sub(SETTLED);
        self.known.iter().for_each(|known| known.lock().forget_replaced(since));
    }

    /// The proxy was started again, on a device that is well. What a failed one did not take is gone.
    pub(super) fn restarted(&self) {
        let failed_at = self.failed_at.swap(NEVER, SeqCst);
        self.known.iter().for_each(|known| known.lock().killed(failed_at, self.grace));
    }
}
