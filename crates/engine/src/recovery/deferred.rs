//! What an opening leaves for later: a cache answers gets while what its scan found is still being merged.
//!
//! Steps: an opening has read all tables, and nothing is merged → a get merges the part of the hashes in which its key
//! is, and looks then → a daemon merges all other parts; whatever changes the store, or
//! counts what is in it, waits for that.
//!
//! Invariants: what a get finds is what it would find with everything merged. Before that nothing accounts for space or
//! changes an entry but the merge.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};

use super::merge::{Entered, Merge};
use crate::{
    Result,
    base::receipt::{Receipt, VolumeReceipt},
    index::Location,
    read::parts::Parts,
    shared::Shared,
    space::State,
};

/// Objects found by a scan from which on an opening gives back the memory that it took.
const MANY: u64 = 100_000;

/// An opening that may not be over yet.
pub(crate) struct Deferred {
    /// Nearly always.
    is_over: AtomicBool,
    /// By volume.
    left: RwLock<Vec<Left>>,
    /// The thread that ends it holds this.
    ending: Mutex<()>,
    shared: Arc<Shared>,
    began: Instant,
    /// How long the opening took.
    opened: Duration,
    receipt: OnceLock<Receipt>,
    /// Of the opening before, in which the store gave bytes back.
    before: Mutex<Option<Box<Receipt>>>,
}

/// What is left to do for one volume.
struct Left {
    parts: Parts,
    merge: Option<Merge>,
    receipt: Mutex<VolumeReceipt>,
}

impl Deferred {
    pub(super) fn new(
        shared: &Arc<Shared>,
        volumes: Vec<(Parts, VolumeReceipt, Option<Merge>)>,
        (began, before): (Instant, Option<Box<Receipt>>),
    ) -> Self {
        let is_over = volumes.iter().all(|(.., merge)| merge.is_none());
        let left = |(parts, receipt, merge)| Left { parts, merge, receipt: Mutex::new(receipt) };
        let deferred =
            Self { left: RwLock::new(volumes.into_iter().map(left).collect()), ..Self::nothing(shared, began) };
        *deferred.before.lock() = before;
        shared.claimed.fetch_add(bytes(&deferred.left.read()), Ordering::Relaxed);
        if is_over {
            deferred.end();
        }
        deferred
    }

    /// Of an opening that is over.
    pub(super) fn over(shared: &Arc<Shared>, receipt: VolumeReceipt, began: Instant) -> Self {
        let deferred = Self::nothing(shared, began);
        deferred.say_over(vec![receipt]);
        deferred
    }

    fn nothing(shared: &Arc<Shared>, began: Instant) -> Self {
        Self {
            is_over: AtomicBool::new(false),
            left: RwLock::default(),
            ending: Mutex::default(),
            shared: Arc::clone(shared),
            began,
            opened: began.elapsed(),
            receipt: OnceLock::new(),
            before: Mutex::default(),
        }
    }

    fn say_over(&self, receipts: Vec<VolumeReceipt>) {
        let receipt = Receipt::new(receipts, self.opened, self.began.elapsed());
        let _ = self.receipt.set(Receipt { before: self.before.lock().take(), ..receipt });
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether all is merged.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Makes sure that the index has what was found of this hash. May read the device.
    pub(crate) fn merge_part_of(&self, hash: u64) {
        if self.is_over() {
            return;
        }
        for left in &*self.left.read() {
            if let Some(merge) = &left.merge {
                left.note(merge.part_of(&left.parts, hash));
            }
        }
    }

    /// Makes sure that everything is merged and accounted for.
    pub(crate) fn end(&self) {
        if self.is_over() {
            return;
        }
        let _ending = self.ending.lock();
        if self.is_over() {
            return;
        }
        let left = self.left.read();
        for left in &*left {
            if let Some(merge) = &left.merge {
                left.note(merge.all(&left.parts));
            }
        }
        for left in &*left {
            account(&left.parts);
            left.receipt.lock().objects = left.parts.catalog.index.objects();
        }
        let receipts: Vec<VolumeReceipt> = left.iter().map(|left| left.receipt.lock().clone()).collect();
        let bytes = bytes(&left);
        drop(left);
        self.left.write().clear();
        self.shared.claimed.fetch_sub(bytes, Ordering::Relaxed);
        if receipts.iter().any(|receipt| receipt.from_scan > MANY) {
            picaflor_device::give_back_freed();
        }
        self.say_over(receipts);
    }

    /// What was kept and dropped, when all is merged.
    pub(crate) fn receipt(&self) -> &Receipt {
        self.end();
        self.receipt.get_or_init(|| Receipt::new(Vec::new(), self.opened, self.opened))
    }
}

fn bytes(left: &[Left]) -> u64 {
    left.iter().filter_map(|left| left.merge.as_ref()).map(Merge::bytes).sum()
}

impl Left {
    /// Notes what became of a merge, which in a cache does not fail.
    fn note(&self, merged: Result<Entered>) {
        let mut receipt = self.receipt.lock();
        match merged {
            Ok(entered) => entered.add_to(&mut receipt),
            Err(why) => receipt.note("", &why.into()),
        }
    }
}

/// Rebuilds from the index what is derived from it: live bytes, and which clusters are taken.
fn account(volume: &Parts) {
    if volume.catalog.places.is_some() {
        return;
    }
    volume.catalog.index.for_each(|entry| {
        if let Location::OnDisk { grain } = entry.location()
            && let Some(cluster) = volume.medium.cluster_of(grain)
        {
            volume.space.live.add(cluster, entry.grains());
        }
    });
    for id in 0..volume.space.count() {
        if volume.space.live.grains(id) > 0 {
            volume.space.shift(id, State::Free, State::Sealed);
        }
    }
    volume.space.fill();
}
