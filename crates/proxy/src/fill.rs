//! One fetch, many clients: a body that grows while it is read (collapsed forwarding).
//!
//! A [`Fill`] is made by the first request that misses a key and is run by a task of its own, so no client that
//! leaves can end it. Everyone, the first request included, waits for the [`Verdict`] on the response head and then
//! reads the body through a [`Cursor`] from its first byte, at its own pace.
//!
//! Memory is bounded, and counts in the store's. A body is kept whole as long as all fetches together hold no more than
//! their [`Budget`], and it can be whole within that; then the newest `collapse_window` bytes are. As long as byte 0 is
//! among what is kept a new reader may join. When a piece must go that a reader still needs, the fetch waits for that
//! reader, at most `collapse_patience`; then, if the body is also being written to the store, it goes on without the
//! reader, which continues from the store when the fetch is complete, and from the origin what the store has not.
//! Without a store to fall back on it waits for as long as the reader's connection lives.
//!
//! Invariants: `base + sum(chunks) == end`; a reader that is not behind has `base <= at <= end`; `ended` is set once.

use picaflor::{Reserved, Store};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    lookup::Hit,
    reason::{Broken, NoAnswer, NotStored, OriginFailure},
    rules::Policy,
};

/// A response head that several requests may answer with.
#[derive(Debug)]
pub(crate) struct FillHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) policy: Policy,
    pub(crate) received: u64,
    pub(crate) len: Option<u64>,
    /// Where it is being stored: the key of the URL, or of the variant.
    pub(crate) key: Vec<u8>,
    /// `Vary` and the values of the request that was sent.
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<Vec<u8>>,
    /// It is not stored, and only for the requests that wait for it.
    pub(crate) is_error: bool,
}

/// What came of asking the origin.
#[derive(Clone)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Waiting,
    /// A storable response, its body arriving.
    Streaming(Arc<FillHead>),
    /// The stored response is confirmed; its fields with those of the 304 in place. With a reason, the 304 is for the
    /// first request alone.
    Confirmed(Hit, Arc<HeaderMap>, Option<NotStored>),
    /// It was stored while this began: look again.
    Stored,
    /// A response for the first request alone.
    Alone(NotStored),
    /// 500, 502, 503 or 504, for the first request alone if nothing stale may be served.
    ServerError,
    /// No response.
    Failed(NoAnswer),
}

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
    /// What is kept, in the store's account of memory.
    reserved: Reserved,
    /// It may be kept whole: its length is not known to be more than all fetches may hold.
    may_be_whole: bool,
}

/// A fetch in progress.
pub(crate) struct Fill {
    /// Of the response: of the URL, or of the variant.
    pub(crate) key: Vec<u8>,
    verdict: watch::Sender<Verdict>,
    over: watch::Sender<bool>,
    state: Mutex<State>,
    budget: Arc<Budget>,
    window: u64,
}

/// What a filler that pushes is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readers {
    /// Readers that are still there.
    pub(crate) left: usize,
    /// Readers that this push went on without.
    pub(crate) dropped: usize,
}

/// What each fetch keeps when all together hold more than their budget.
const SMALL_WINDOW: u64 = 64 << 10;

/// How much all fetches may hold, and how much they do.
pub(crate) struct Budget {
    max: u64,
    used: AtomicU64,
}

impl Fill {
    fn new(key: Vec<u8>, window: u64, budget: Arc<Budget>, reserved: Reserved) -> Arc<Self> {
        let state = State {
            chunks: VecDeque::new(),
            base: 0,
            end: 0,
            ended: None,
            kept: Kept::Writing,
            places: Vec::new(),
            filler: None,
            reserved,
            may_be_whole: true,
        };
        let verdict = watch::Sender::new(Verdict::Waiting);
        Arc::new(Self { key, verdict, over: watch::Sender::new(false), state: Mutex::new(state), budget, window })
    }

    /// Says what the head means; once, before the body.
    pub(crate) fn decide(&self, verdict: Verdict) {
        if let Verdict::Streaming(head) = &verdict {
            self.state.lock().may_be_whole = head.len.is_none_or(|len| len <= self.budget.max);
        }
        self.verdict.send_replace(verdict);
    }

    /// Waits for the verdict.
    pub(crate) async fn verdict(&self) -> Verdict {
        let mut receiver = self.verdict.subscribe();
        match receiver.wait_for(|verdict| !matches!(verdict, Verdict::Waiting)).await {
            Ok(verdict) => verdict.clone(),
            Err(_) => Verdict::Failed(OriginFailure::Closed.into()),
        }
    }

    /// Whether it is decided already what the head means.
    fn is_decided(&self) -> bool {
        !matches!(&*self.verdict.borrow(), Verdict::Waiting)
    }

    /// Whether all of the body has come, or soon will have: then it is better to wait for the store than to ask again.
    pub(crate) fn is_nearly_over(&self) -> bool {
        let end = self.state.lock().end;
        match &*self.verdict.borrow() {
            Verdict::Streaming(head) => head.len.is_some_and(|len| len.saturating_sub(end) <= self.window),
            _ => false,
        }
    }

    /// Waits until the fetch is over and what it brought is stored, if it is.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// A reader from the first byte; `None` when that byte has gone.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Cursor> {
        let mut state = self.state.lock();
        if state.base > 0 {
            return None;
        }
        let slot = match state.places.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                state.places.push(None);
                state.places.len() - 1
            }
        };
        state.places[slot] = Some(Place { at: 0, waker: None, behind: false });
        drop(state);
        Some(Cursor { fill: self.clone(), slot, at: 0, until: u64::MAX })
    }

    /// Adds a piece of the body. Waits while the window is full of what a reader still needs, at most until `patience`
    /// is over where that reader can go on from the store.
    pub(crate) async fn push(&self, bytes: Bytes, patience: std::time::Duration) -> Readers {
        {
            let mut state = self.state.lock();
            let at = state.end;
            state.end += bytes.len() as u64;
            self.budget.used.fetch_add(bytes.len() as u64, Relaxed);
            state.chunks.push_back((at, bytes));
            state.reserve();
            state.wake_readers();
        }
        let mut dropped = 0;
        while tokio::time::timeout(patience, std::future::poll_fn(|cx| self.poll_room(cx))).await.is_err() {
            dropped += self.leave_behind();
        }
        let left = self.state.lock().places.iter().flatten().count();
        Readers { left, dropped }
    }

    /// Whether `push` would have to wait; for counting.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        state.end - state.base > self.limit(&state)
    }

    fn limit(&self, state: &State) -> u64 {
        if self.budget.used.load(Relaxed) > self.budget.max {
            SMALL_WINDOW.min(self.window)
        } else if state.base == 0 && state.may_be_whole {
            u64::MAX
        } else {
            self.window
        }
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let limit = self.limit(&state);
        while state.end - state.base > limit {
            let Some((at, front)) = state.chunks.front() else { break };
            let next = at + front.len() as u64;
            if state.places.iter().flatten().any(|place| !place.behind && place.at < next) {
                state.filler = Some(cx.waker().clone());
                return Poll::Pending;
            }
            self.drop_first(&mut state);
        }
        state.filler = None;
        Poll::Ready(())
    }

    fn drop_first(&self, state: &mut State) {
        if let Some((_, bytes)) = state.chunks.pop_front() {
            state.base += bytes.len() as u64;
            self.budget.used.fetch_sub(bytes.len() as u64, Relaxed);
            state.reserve();
        }
    }

    /// Lets the readers that hold the window up continue from the store later. Without a store nobody is left.
    fn leave_behind(&self) -> usize {
        let mut state = self.state.lock();
        if state.kept != Kept::Writing {
            return 0;
        }
        let Some((at, front)) = state.chunks.front() else { return 0 };
        let next = at + front.len() as u64;
        let mut count = 0;
        for place in state.places.iter_mut().flatten().filter(|place| !place.behind && place.at < next) {
            place.behind = true;
            count += 1;
        }
        count
    }

    /// The bytes so far, while all of them are still here.
    pub(crate) fn whole(&self) -> Option<Vec<Bytes>> {
        let state = self.state.lock();
        (state.base == 0).then(|| state.chunks.iter().map(|(_, bytes)| bytes.clone()).collect())
    }

    /// Nothing will be stored: nobody can be left behind any more, and those who were cannot go on.
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
            while state.end - state.base > self.window {
                self.drop_first(&mut state);
            }
            let base = state.base;
            state.places.iter_mut().flatten().for_each(|place| place.behind |= place.at < base);
        }
        state.wake_readers();
        drop(state);
        self.over.send_replace(true);
    }
}

impl Fill {
    /// The task is over: who still waits, waits for nothing.
    pub(crate) fn abandon(&self) {
        self.verdict.send_if_modified(|verdict| {
            let waiting = matches!(verdict, Verdict::Waiting);
            if waiting {
                *verdict = Verdict::Failed(OriginFailure::Closed.into());
            }
            waiting
        });
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.ended = Some(Err(Broken::Origin));
            state.kept = Kept::No;
            state.wake_readers();
        }
        drop(state);
        self.over.send_replace(true);
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.budget.used.fetch_sub(state.end - state.base, Relaxed);
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

    fn next(&self, at: u64) -> Option<Bytes> {
        let n = self.chunks.partition_point(|(start, bytes)| start + bytes.len() as u64 <= at);
        let (start, bytes) = self.chunks.get(n)?;
        Some(bytes.slice(usize::try_from(at - start).ok()?..))
    }
}

/// Where one client is in a growing body: its way through what the fetch holds.
pub(crate) struct Cursor {
    fill: Arc<Fill>,
    slot: usize,
    at: u64,
    until: u64,
}

/// What comes next.
pub(crate) enum Next {
    Bytes(Bytes),
    End,
    Broken(Broken),
    /// The fetch has gone on without this reader: the rest is to be read from the store.
    Elsewhere,
}

impl Cursor {
    /// Reads this part only; before the first `poll`.
    pub(crate) fn narrow(&mut self, range: std::ops::Range<u64>) {
        let mut state = self.fill.state.lock();
        let end = state.end;
        if let Some(place) = &mut state.places[self.slot] {
            place.at = range.start.min(end);
        }
        if let Some(filler) = state.filler.take() {
            filler.wake();
        }
        (self.at, self.until) = (range.start, range.end);
    }

    /// Bytes left, where the end is known.
    pub(crate) fn left(&self) -> Option<u64> {
        (self.until != u64::MAX).then(|| self.until - self.at)
    }

    /// What has not been read.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.at..self.until
    }

    /// The head that this is the body of.
    pub(crate) fn head(&self) -> Option<Arc<FillHead>> {
        match &*self.fill.verdict.borrow() {
            Verdict::Streaming(head) => Some(head.clone()),
            _ => None,
        }
    }

    /// So much has come.
    pub(crate) fn come(&self) -> u64 {
        self.fill.state.lock().end
    }

    /// The next bytes; `has_rest` says that a reader that is left behind can go on without the store.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, has_rest: bool) -> Poll<Next> {
        if self.at >= self.until {
            return Poll::Ready(Next::End);
        }
        let mut guard = self.fill.state.lock();
        let state = &mut *guard;
        let behind = state.places[self.slot].as_ref().is_none_or(|place| place.behind);
        if behind && self.at < state.base {
            return match (state.kept, state.ended) {
                (Kept::Stored, _) => Poll::Ready(Next::Elsewhere),
                (Kept::No, _) if !has_rest => Poll::Ready(Next::Broken(Broken::LeftBehind)),
                (Kept::No, _) => Poll::Ready(Next::Elsewhere),
                (Kept::Writing, _) => self.sleep(state, cx),
            };
        }
        if self.at < state.end {
            let Some(mut bytes) = state.next(self.at) else {
                return Poll::Ready(Next::Broken(Broken::LeftBehind));
            };
            let room = self.until - self.at;
            if bytes.len() as u64 > room {
                bytes.truncate(room as usize);
            }
            self.at += bytes.len() as u64;
            if let Some(place) = &mut state.places[self.slot] {
                place.at = self.at;
                place.behind = false;
            }
            if let Some(filler) = state.filler.take() {
                filler.wake();
            }
            return Poll::Ready(Next::Bytes(bytes));
        }
        match state.ended {
            Some(Ok(())) => Poll::Ready(Next::End),
            Some(Err(broken)) => Poll::Ready(Next::Broken(broken)),
            None => {
                // A range that begins later than what has come does not hold anything up.
                let end = state.end;
                if let Some(place) = &mut state.places[self.slot] {
                    place.at = end.min(self.at);
                }
                self.sleep(state, cx)
            }
        }
    }

    fn sleep<T>(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(place) = &mut state.places[self.slot] {
            place.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.places[self.slot] = None;
        if let Some(filler) = state.filler.take() {
            filler.wake();
        }
    }
}

/// The fetches in progress, by key.
pub(crate) struct Fills {
    shards: [Mutex<HashMap<Vec<u8>, Arc<Fill>>>; 16],
    budget: Arc<Budget>,
    window: u64,
    store: Store,
}

/// What a miss finds.
pub(crate) enum Role {
    /// Nobody fetches this yet: run it.
    First(Arc<Fill>),
    /// Somebody does.
    Waiter(Arc<Fill>),
}

impl Fills {
    /// Each keeps `window` bytes as long as all keep no more than `max`, in the memory of `store`.
    pub(crate) fn new(window: u64, max: u64, store: Store) -> Self {
        let budget = Arc::new(Budget { max, used: AtomicU64::new(0) });
        Self { shards: std::array::from_fn(|_| Mutex::default()), budget, window, store }
    }

    fn shard(&self, url_key: &[u8]) -> &Mutex<HashMap<Vec<u8>, Arc<Fill>>> {
        &self.shards[xxh3_64(url_key) as usize % self.shards.len()]
    }

    /// Joins the fetch of `key`, or begins it. `url_key` is the key without the variant. One `for_new` joins none whose
    /// head has come: then it begins another, which others join instead.
    pub(crate) fn enter(&self, url_key: &[u8], key: &[u8], for_new: bool) -> Role {
        let mut shard = self.shard(url_key).lock();
        if let Some(fill) = shard.get(key).filter(|fill| !for_new || !fill.is_decided()) {
            return Role::Waiter(fill.clone());
        }
        let fill = self.alone(key);
        shard.insert(key.to_vec(), fill.clone());
        Role::First(fill)
    }

    /// A fetch that nobody can join.
    pub(crate) fn alone(&self, key: &[u8]) -> Arc<Fill> {
        Fill::new(key.to_vec(), self.window, self.budget.clone(), self.store.reserve())
    }

    /// Ends joining of this fetch.
    pub(crate) fn leave(&self, url_key: &[u8], fill: &Arc<Fill>) {
        let mut shard = self.shard(url_key).lock();
        if shard.get(&fill.key).is_some_and(|found| Arc::ptr_eq(found, fill)) {
            shard.remove(&fill.key);
        }
    }

    /// Ends joining of every fetch of a URL: what they bring is out of date.
    pub(crate) fn forget(&self, url_key: &[u8]) {
        let mut shard = self.shard(url_key).lock();
        shard.retain(|key, _| !(key.starts_with(url_key) && matches!(key.get(url_key.len()), None | Some(b'\n'))));
    }

    /// Bytes held by all fetches.
    pub(crate) fn buffered(&self) -> u64 {
        self.budget.used.load(Relaxed)
    }
}
