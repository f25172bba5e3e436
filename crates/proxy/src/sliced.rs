//! A body that is put together of slices, in order: stored ones from the store, others fetched when they are due, one
//! ahead of what is being sent. All requests that want a slice share its fetch.
//!
//! Every slice is of the version that the answer began with. Where there is another one by now, the body ends in an
//! error, which closes the connection, so that no client takes two halves for one whole.

use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use picaflor::{Object, TryGet};

use crate::{
    fill::{Cursor, Fill},
    fills::Role,
    head::{Head, Stored, decode},
    key, lookup,
    pieces::Pieces,
    purge::marks::Validity,
    range::{self, Piece},
    reader::Reader,
    reason::{Broken, NoAnswer, SliceOutcome},
    rest::Rest,
    slice::{self, SliceJob},
    verdict::Verdict,
};

/// Where the slices of one object come from.
#[derive(Clone)]
pub(crate) struct Slices {
    /// What to ask the origin with.
    pub(crate) job: SliceJob,
    /// The client wants nothing of the origin.
    pub(crate) only_if_cached: bool,
    /// This answer had the origin asked for the head of the whole, and the slice that it begins with came with it.
    pub(crate) is_first: bool,
}

/// Where a slice is.
enum Opened {
    Stored { object: Object, from_device: bool },
    Arriving { cursor: Cursor, shared: bool },
}

/// How the first slice of an answer was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// None is needed.
    Without,
    Stored {
        from_device: bool,
    },
    Fetched,
    /// Another request fetches it.
    Shared,
}

/// Why there is no slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlice {
    /// There is another version by now, or none.
    Changed,
    /// The origin refuses.
    Refused,
    Failed(NoAnswer),
    OnlyIfCached,
}

type Opening = Pin<Box<dyn Future<Output = Result<Opened, NoSlice>> + Send>>;

/// How often a slice is looked for that went while it was opened.
const TRIES: usize = 4;

impl Slices {
    /// How many bytes the whole has.
    pub(crate) fn total(&self) -> u64 {
        self.job.manifest.slicing.total
    }

    /// A number of the version.
    pub(crate) fn nonce(&self) -> u64 {
        self.job.manifest.slicing.nonce
    }

    async fn open(self, n: u64) -> Result<Opened, NoSlice> {
        let (worker, is_first) = (self.job.worker.clone(), self.is_first);
        let opened = self.look(n).await;
        worker.counters.slices.one(match &opened {
            Ok(_) if is_first => SliceOutcome::Miss,
            Ok(Opened::Stored { .. }) => SliceOutcome::Hit,
            Ok(Opened::Arriving { shared: false, .. }) => SliceOutcome::Miss,
            Ok(Opened::Arriving { shared: true, .. }) => SliceOutcome::Collapsed,
            Err(NoSlice::Changed) => SliceOutcome::Changed,
            Err(NoSlice::Refused) => SliceOutcome::Refused,
            Err(NoSlice::Failed(_)) => SliceOutcome::Failed,
            Err(NoSlice::OnlyIfCached) => SliceOutcome::OnlyIfCached,
        });
        opened
    }

    async fn look(self, n: u64) -> Result<Opened, NoSlice> {
        let (proxy, target) = (&self.job.worker.proxy, &self.job.target);
        let key = key::slice(&self.job.manifest.key, self.nonce(), n);
        for _ in 0..TRIES {
            if let Some(stored) = self.stored(&key, n).await {
                return Ok(stored);
            }
            if self.only_if_cached {
                return Err(NoSlice::OnlyIfCached);
            }
            let fill = match proxy.fills.enter(&target.key, &key, false) {
                Role::First(beginning) => {
                    // Between our look into the store and this, another fetch may have ended.
                    if let Some(stored) = self.stored(&key, n).await {
                        return Ok(stored);
                    }
                    return self.fetch(n, beginning.begun()).await;
                }
                Role::Waiter(fill) => fill,
            };
            let Some(cursor) = fill.join() else {
                if fill.over(proxy.config.cache.collapse_patience.0).await {
                    continue;
                }
                return self.fetch(n, proxy.fills.alone(&key)).await;
            };
            if let Some(opened) = arriving(&fill, cursor, true).await {
                return opened;
            }
        }
        Err(NoSlice::Refused)
    }

    async fn fetch(&self, n: u64, fill: Arc<Fill>) -> Result<Opened, NoSlice> {
        let cursor = fill.join().ok_or(NoSlice::Refused)?;
        slice::spawn(self.job.clone(), n, fill.clone(), None);
        arriving(&fill, cursor, false).await.unwrap_or(Err(NoSlice::Refused))
    }

    /// The slice in the store, if it is whole and no purge took it.
    async fn stored(&self, key: &[u8], n: u64) -> Option<Opened> {
        let SliceJob { worker, target, manifest, .. } = &self.job;
        let (object, from_device) = lookup::object(&worker.proxy.store, key).await?;
        let range = manifest.slicing.range(n);
        let is_it = match &*object.decoded(decode) {
            Stored::Response(head) => {
                let tags = Head::tags(object.metadata());
                worker.proxy.purges.check(&target.key, head.seq, tags) != Validity::Gone
                    && object.len() == range.end - range.start
                    && Head::fields(object.metadata()).get(&manifest.validator.0) == Some(&manifest.validator.1)
            }
            _ => false,
        };
        is_it.then_some(Opened::Stored { object, from_device })
    }

    /// Whether no slice of these parts is known to be missing in the store.
    fn are_stored(&self, pieces: &VecDeque<Piece>) -> bool {
        let SliceJob { worker, manifest, .. } = &self.job;
        let slicing = manifest.slicing;
        parts(pieces).flat_map(|part| slicing.at(part.start)..=slicing.at(part.end - 1)).all(|n| {
            let found = worker.proxy.store.try_get(&key::slice(&manifest.key, slicing.nonce, n));
            !matches!(found, TryGet::Absent(_))
        })
    }

    /// The bytes of `part`, counted in the whole, of a slice.
    fn read(&self, n: u64, opened: Opened, part: &Range<u64>) -> Way {
        let SliceJob { worker, target, request, manifest, .. } = &self.job;
        let slice = manifest.slicing.range(n);
        let within = part.start - slice.start..part.end.min(slice.end) - slice.start;
        let rest = |fields: &HeaderMap| {
            let (worker, target) = (worker.clone(), target.clone());
            Rest::new(worker, target, request.clone(), self.only_if_cached, (fields, slice.end - slice.start))
                .within(slice.start, self.total())
        };
        match opened {
            Opened::Stored { object, .. } => {
                let rest = rest(&Head::fields(object.metadata()));
                Way::Stored(Pieces::stored(object, within).or_from(Some(Arc::new(rest))))
            }
            Opened::Arriving { cursor, .. } => {
                let rest = cursor.head().map(|head| rest(&head.fields));
                let mut reader = Reader::new(cursor, &worker.proxy.store);
                reader.narrow(within);
                rest.into_iter().for_each(|rest| reader.or_from(rest));
                Way::Arriving(Box::new(reader))
            }
        }
    }
}

/// Those that have bytes of the object.
fn parts(pieces: &VecDeque<Piece>) -> impl Iterator<Item = &Range<u64>> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Part(range) if !range.is_empty() => Some(range),
        _ => None,
    })
}

/// What a fetch of a slice has come to; `None` if it is stored.
async fn arriving(fill: &Fill, cursor: Cursor, shared: bool) -> Option<Result<Opened, NoSlice>> {
    Some(match fill.verdict().await {
        Verdict::Streaming(_) => Ok(Opened::Arriving { cursor, shared }),
        Verdict::Stored => return None,
        Verdict::Changed => Err(NoSlice::Changed),
        Verdict::Failed(why) => Err(NoSlice::Failed(why)),
        _ => Err(NoSlice::Refused),
    })
}

enum Way {
    /// No slice is being read.
    Between,
    Opening(u64, Opening),
    Stored(Pieces),
    Arriving(Box<Reader>),
}

/// See the head of this file.
pub(crate) struct Sliced {
    slices: Slices,
    queue: VecDeque<Piece>,
    /// What is still to come of the part that is being sent, counted in the whole.
    part: Range<u64>,
    way: Way,
    /// The slice that comes next.
    ahead: Option<(u64, Opening)>,
    left: u64,
    /// Whether bytes come from the origin that were to come from the store.
    pub(crate) mended: bool,
}

impl Sliced {
    pub(crate) fn new(slices: Slices, queue: VecDeque<Piece>) -> Self {
        let left = range::len(&queue);
        Self { slices, queue, part: 0..0, way: Way::Between, ahead: None, left, mended: false }
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Opens the first slice, before anything is said to the client.
    pub(crate) async fn begin(&mut self) -> Result<Begun, NoSlice> {
        let Some(part) = parts(&self.queue).next() else { return Ok(Begun::Without) };
        if self.slices.only_if_cached && !self.slices.are_stored(&self.queue) {
            self.slices.job.worker.counters.slices.one(SliceOutcome::OnlyIfCached);
            return Err(NoSlice::OnlyIfCached);
        }
        let n = self.slices.job.manifest.slicing.at(part.start);
        let opened = self.slices.clone().open(n).await?;
        self.slices.is_first = false;
        let begun = match &opened {
            Opened::Stored { from_device, .. } => Begun::Stored { from_device: *from_device },
            Opened::Arriving { shared: true, .. } => Begun::Shared,
            Opened::Arriving { shared: false, .. } => Begun::Fetched,
        };
        self.ahead = Some((n, Box::pin(std::future::ready(Ok(opened)))));
        Ok(begun)
    }

    /// Opens the slice behind `n`, if it is wanted, while that one is read.
    fn go_ahead(&mut self, n: u64) {
        let next = n + 1;
        if self.slices.job.manifest.slicing.range(next).start < self.part.end {
            let opening = tokio::spawn(self.slices.clone().open(next));
            self.ahead = Some((next, Box::pin(async { opening.await.unwrap_or(Err(NoSlice::Refused)) })));
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let next = ready!(self.poll_part(cx));
        match &next {
            Some(Ok(bytes)) => self.left = self.left.saturating_sub(bytes.len() as u64),
            // Nothing comes behind it.
            Some(Err(_)) => {
                (self.way, self.part, self.left) = (Way::Between, 0..0, 0);
                self.queue.clear();
            }
            None => {}
        }
        Poll::Ready(next)
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let next = match &mut self.way {
                Way::Between if self.part.is_empty() => match self.queue.pop_front() {
                    Some(Piece::Text(text)) => return Poll::Ready(Some(Ok(text))),
                    Some(Piece::Part(range)) => {
                        self.part = range;
                        continue;
                    }
                    None => return Poll::Ready(None),
                },
                Way::Between => {
                    let n = self.slices.job.manifest.slicing.at(self.part.start);
                    let opening = match self.ahead.take() {
                        Some((ahead, opening)) if ahead == n => opening,
                        _ => Box::pin(self.slices.clone().open(n)),
                    };
                    self.way = Way::Opening(n, opening);
                    continue;
                }
                Way::Opening(n, opening) => {
                    let (n, opened) = (*n, ready!(opening.as_mut().poll(cx)));
                    let opened = match opened {
                        Ok(opened) => opened,
                        Err(why) => return Poll::Ready(Some(Err(self.cut(why)))),
                    };
                    self.way = self.slices.read(n, opened, &self.part);
                    self.go_ahead(n);
                    continue;
                }
                Way::Stored(pieces) => {
                    let next = ready!(pieces.poll(cx));
                    self.mended |= pieces.mended;
                    next
                }
                Way::Arriving(reader) => {
                    let next = ready!(reader.poll(cx));
                    self.mended |= reader.is_mended();
                    next
                }
            };
            match next {
                Some(Ok(bytes)) => {
                    self.part.start += bytes.len() as u64;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None => {
                    let slicing = self.slices.job.manifest.slicing;
                    // At the end of a slice, or of the part: else less came than was said.
                    if !self.part.is_empty() && !self.part.start.is_multiple_of(slicing.size) {
                        return Poll::Ready(Some(Err(Broken::Origin)));
                    }
                    self.way = Way::Between;
                }
            }
        }
    }

    /// The body ends here.
    fn cut(&self, why: NoSlice) -> Broken {
        let (broken, text) = match why {
            NoSlice::Changed => (Broken::OriginChanged, "the origin has another version"),
            NoSlice::OnlyIfCached => {
                (Broken::OnlyIfCached, "a slice is not stored, and the client wants nothing of the origin")
            }
            NoSlice::Refused | NoSlice::Failed(_) => (Broken::OriginFailed, "the origin does not send the next slice"),
        };
        let (url, total) = (String::from_utf8_lossy(&self.slices.job.target.key), self.slices.total());
        eprintln!("picaflor: {url:?}: cut at byte {} of {total}: {text}; the connection is closed", self.part.start);
        broken
    }
}
