//! One fetch, many clients: a body that grows while it is read (collapsed forwarding).
//!
//! A [`Fill`] is made by the first request that misses a key and is run by a task of its own, so no client that
//! leaves can end it. Everyone, the first request included, waits for the [`Verdict`] on the response head and then
//! reads the body through a [`Cursor`] from its first byte, at its own pace.
//!
//! Memory is bounded, and counts in the store's. A body is kept whole as long as all fetches together hold no more than
//! their [`Budget`], and it can be whole within that; then the newest `collapse_window` bytes are. As long as byte 0 is
//! among what is kept a new reader may join. When a piece must go that a reader still needs, the fetch waits for that
//! reader, at most `collapse_patience` at once, and in all while another reader waits for more (time in which none does
//! counts back); then, if the body is also being written to the store, it goes on without the reader, which continues
//! from the store when the fetch is complete. Without a store to fall back on it waits for as long as the reader's
//! connection lives.
//!
//! What can be read only from the store can be read at the end of the fetch. So while any request waits for that, and
//! no more than `near` bytes are to come, the fetch waits for no reader: the end is as near as the origin is quick.
//! Where more are to come, a reader that is left behind has the rest from the origin, and late ones fetch for
//! themselves.
//!
//! Invariants: `base + sum(chunks) == end`; a reader that is not behind has `base <= at <= end`; `ended` is set once.

mod cursor;

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use picaflor::Reserved;
use tokio::{sync::Notify, time::Instant};

pub(crate) use cursor::{Cursor, Next};

use crate::{
    reason::{Broken, OriginFailure},
    verdict::Verdict,
};

struct Place {
    at: u64,
    waker: Option<Waker>,
    behind: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The body is being written to the store.
    Writing,
    /// It is there.
    Stored,
    /// It is not, and will not be.
    No,
}

struct State {
    chunks: VecDeque<(u64, Bytes)>,
    base: u64,
    end: u64,
    ended: Option<Result<(), Broken>>,
    kept: Kept,
    places: Vec<Option<Place>>,
    filler: Option<Waker>,
    /// Length of the body, where it is known.
    len: Option<u64>,
    /// Late requests that wait for the end.
    late: usize,
    /// For how long the slowest reader has held up others, less the time since in which it did not.
    held_up: Duration,
    /// Readers that the fetch has gone on without, since they were last counted.
    left_behind: usize,
    /// What is kept, in the store's account of memory.
    reserved: Reserved,
    /// It may be kept whole: its length is not known to be more than all fetches may hold.
    may_be_whole: bool,
}

/// A fetch in progress.
pub(crate) struct Fill {
    /// Of the response: of the URL, or of the variant.
    pub(crate) key: Vec<u8>,
    verdict: Mutex<Verdict>,
    is_over: AtomicBool,
    /// Told when one of these two changes.
    changed: Notify,
    state: Mutex<State>,
    bounds: Bounds,
}

/// How much a fetch holds, and how long it waits.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub(crate) budget: Arc<Budget>,
    /// Bytes that it keeps when all together hold more than their budget, or it cannot be whole.
    pub(crate) window: u64,
    /// So many bytes before its end that is waited for.
    pub(crate) near: u64,
}

/// What a filler that pushes is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readers {
    /// Readers that are still there.
    pub(crate) left: usize,
    /// Readers that the fetch went on without.
    pub(crate) dropped: usize,
}

/// What each fetch keeps when all together hold more than their budget.
const SMALL_WINDOW: u64 = 64 << 10;

/// How much all fetches may hold, and how much they do.
pub(crate) struct Budget {
    max: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    /// Bytes held by all fetches.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

impl Fill {
    /// One that is not begun, of `key`.
    pub(crate) fn new(key: Vec<u8>, bounds: &Bounds, reserved: Reserved) -> Arc<Self> {
        let state = State {
            chunks: VecDeque::new(),
            base: 0,
            end: 0,
            ended: None,
            kept: Kept::Writing,
            places: Vec::new(),
            filler: None,
            len: None,
            late: 0,
            held_up: Duration::ZERO,
            left_behind: 0,
            reserved,
            may_be_whole: true,
        };
        Arc::new(Self {
            key,
            verdict: Mutex::new(Verdict::Waiting),
            is_over: AtomicBool::new(false),
            changed: Notify::new(),
            state: Mutex::new(state),
            bounds: bounds.clone(),
        })
    }

    /// Says what the head means; once, before the body.
    pub(crate) fn decide(&self, verdict: Verdict) {
        if let Verdict::Streaming(head) = &verdict {
            let mut state = self.state.lock();
            state.may_be_whole = head.len.is_none_or(|len| len <= self.bounds.budget.max);
            state.len = head.len;
        }
        *self.verdict.lock() = verdict;
        self.changed.notify_waiters();
    }

    /// Waits until it finds something.
    async fn found<T>(&self, find: impl Fn() -> Option<T>) -> T {
        loop {
            // Made before it looks: it misses nothing.
            let changed = self.changed.notified();
            if let Some(found) = find() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits for the verdict.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.found(|| Some(&*self.verdict.lock()).filter(|verdict| !matches!(verdict, Verdict::Waiting)).cloned()).await
    }

    /// Whether it is decided already what the head means.
    pub(crate) fn is_decided(&self) -> bool {
        !matches!(*self.verdict.lock(), Verdict::Waiting)
    }

    /// Waits until the fetch is over and what it brought is stored, if its end is near enough to be worth it, for no
    /// longer than `patience`; says whether it is over.
    pub(crate) async fn over(&self, patience: Duration) -> bool {
        {
            let mut state = self.state.lock();
            if !self.is_near(&state) {
                return false;
            }
            state.late += 1;
            state.wake_filler();
        }
        let _late = Late(self);
        tokio::time::timeout(patience, self.found(|| self.is_over.load(SeqCst).then_some(()))).await.is_ok()
    }

    /// Whether the body is on its way into the store, and little of it is to come.
    fn is_near(&self, state: &State) -> bool {
        state.kept != Kept::No && state.len.is_some_and(|len| len.saturating_sub(state.end) <= self.bounds.near)
    }

    /// Whether requests wait for an end that is near.
    fn is_awaited(&self, state: &State) -> bool {
        let are_behind = || state.places.iter().flatten().any(|place| place.behind);
        (state.late > 0 || are_behind()) && self.is_near(state)
    }

    /// Adds a piece of the body; says whether there was room for it.
    pub(crate) fn push(&self, bytes: Bytes) -> bool {
        let mut state = self.state.lock();
        let at = state.end;
        state.end += bytes.len() as u64;
        self.bounds.budget.used.fetch_add(bytes.len() as u64, Relaxed);
        state.chunks.push_back((at, bytes));
        state.reserve();
        state.wake_readers();
        self.make_room(&mut state)
    }

    /// Waits while the window is full of what a reader still needs, at most until `patience` is over where that reader
    /// can go on without us.
    pub(crate) async fn room(&self, patience: Duration) -> Readers {
        while !self.has_room(patience).await {
            let mut state = self.state.lock();
            if state.kept == Kept::Writing {
                // Those that would be next go with them: others have waited long enough.
                let half = state.end - self.limit(&state).min(state.end) / 2;
                let next = state.chunks.front().map_or(0, |(at, front)| at + front.len() as u64);
                state.leave_behind(next.max(half));
                state.held_up = Duration::ZERO;
            }
        }
        let mut state = self.state.lock();
        let left = state.places.iter().flatten().count() + state.late;
        Readers { left, dropped: std::mem::take(&mut state.left_behind) }
    }

    async fn has_room(&self, patience: Duration) -> bool {
        let patience = {
            let mut state = self.state.lock();
            if self.make_room(&mut state) {
                return true;
            }
            if state.kept == Kept::Writing { patience.saturating_sub(state.held_up) } else { patience }
        };
        let begun = Instant::now();
        let has_room = tokio::time::timeout(patience, poll_fn(|cx| self.poll_room(cx))).await.is_ok();
        let mut state = self.state.lock();
        let others_wait = state.places.iter().flatten().any(|place| !place.behind && place.at == state.end);
        let waited = begun.elapsed();
        state.held_up = if others_wait { state.held_up + waited } else { state.held_up.saturating_sub(waited) };
        has_room
    }

    fn limit(&self, state: &State) -> u64 {
        if self.bounds.budget.used() > self.bounds.budget.max {
            SMALL_WINDOW.min(self.bounds.window)
        } else if state.base == 0 && state.may_be_whole {
            u64::MAX
        } else {
            self.bounds.window
        }
    }

    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if self.make_room(&mut state) {
            state.filler = None;
            return Poll::Ready(());
        }
        state.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Lets go what is too much, unless a reader needs it that is waited for; says whether that did.
    fn make_room(&self, state: &mut State) -> bool {
        let limit = self.limit(state);
        while state.end - state.base > limit {
            let Some((at, front)) = state.chunks.front() else { break };
            let next = at + front.len() as u64;
            if state.places.iter().flatten().any(|place| !place.behind && place.at < next) {
                if !self.is_awaited(state) {
                    return false;
                }
                state.leave_behind(next);
            }
            self.drop_first(state);
        }
        true
    }

    fn drop_first(&self, state: &mut State) {
        if let Some((_, bytes)) = state.chunks.pop_front() {
            state.base += bytes.len() as u64;
            self.bounds.budget.used.fetch_sub(bytes.len() as u64, Relaxed);
            state.reserve();
        }
    }

    /// The bytes so far, while all of them are still here.
    pub(crate) fn whole(&self) -> Option<Vec<Bytes>> {
        let state = self.state.lock();
        (state.base == 0).then(|| state.chunks.iter().map(|(_, bytes)| bytes.clone()).collect())
    }

    /// Nothing will be stored: no reader can be left behind any more, and those that were cannot go on.
    pub(crate) fn give_up_storing(&self) {
        let mut state = self.state.lock();
        state.kept = Kept::No;
        state.wake_readers();
    }

    /// Whether it is on its way into the store, or there.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.lock().kept != Kept::No
    }

    /// The body is complete, or broken; and whether it can be read from the store.
    pub(crate) fn end(&self, result: Result<(), Broken>, stored: bool) {
        let mut state = self.state.lock();
        state.ended = Some(result);
        state.kept = if stored { Kept::Stored } else { Kept::No };
        if stored {
            // The store has it: slow readers go on from there, and others have the memory.
            while state.end - state.base > self.bounds.window {
                self.drop_first(&mut state);
            }
            let base = state.base;
            state.places.iter_mut().flatten().for_each(|place| place.behind |= place.at < base);
        }
        state.wake_readers();
        drop(state);
        self.is_over.store(true, SeqCst);
        self.changed.notify_waiters();
    }
}

impl Fill {
    /// The task is over: who still waits, waits for nothing.
    pub(crate) fn abandon(&self) {
        {
            let mut verdict = self.verdict.lock();
            if matches!(*verdict, Verdict::Waiting) {
                *verdict = Verdict::Failed(OriginFailure::Closed.into());
            }
        }
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.ended = Some(Err(Broken::Origin));
            state.kept = Kept::No;
            state.wake_readers();
        }
        drop(state);
        self.is_over.store(true, SeqCst);
        self.changed.notify_waiters();
    }
}

/// A late request that waits for the end.
struct Late<'a>(&'a Fill);

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.state.lock().late -= 1;
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.bounds.budget.used.fetch_sub(state.end - state.base, Relaxed);
    }
}

impl State {
    /// Counts what is kept.
    fn reserve(&mut self) {
        self.reserved.set(self.end - self.base);
    }

    fn wake_readers(&mut self) {
        for place in self.places.iter_mut().flatten() {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake_filler(&mut self) {
        if let Some(filler) = self.filler.take() {
            filler.wake();
        }
    }

    /// Waits no more for readers that have not come to `next`: once that has gone they continue elsewhere.
    fn leave_behind(&mut self, next: u64) {
        for place in self.places.iter_mut().flatten().filter(|place| !place.behind && place.at < next) {
            place.behind = true;
            // Where the end is far it goes elsewhere at once.
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
            self.left_behind += 1;
        }
    }

    fn next(&self, at: u64) -> Option<Bytes> {
        let n = self.chunks.partition_point(|(start, bytes)| start + bytes.len() as u64 <= at);
        let (start, bytes) = self.chunks.get(n)?;
        Some(bytes.slice(usize::try_from(at - start).ok()?..))
    }
}

#[cfg(test)]
mod tests;
