//! Bodies: from the store, in memory, or passed on as they come.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use picaflor::{Chunks, Object};

/// The error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response that went through a cache.
pub type CacheBody = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) fn pass<R>(body: R) -> CacheBody
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

pub(crate) fn whole(bytes: Bytes) -> CacheBody {
    pass(Full::new(bytes))
}

pub(crate) fn stored(object: &Object) -> CacheBody {
    match object.body_in_memory() {
        Some(body) => whole(body),
        None => Stored { left: object.len(), next: Some(next(object.chunks(0..object.len()))) }.boxed_unsync(),
    }
}

type Next = Pin<Box<dyn Future<Output = (Option<picaflor::Result<Bytes>>, Chunks)> + Send>>;

fn next(mut chunks: Chunks) -> Next {
    Box::pin(async move { (chunks.next_async().await, chunks) })
}

/// Chunks of a large object, each read when the one before was taken.
struct Stored {
    left: u64,
    next: Option<Next>,
}

impl Body for Stored {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(reading) = &mut self.next else { return Poll::Ready(None) };
        let (piece, chunks) = ready!(reading.as_mut().poll(context));
        self.next = matches!(piece, Some(Ok(_))).then(|| next(chunks));
        Poll::Ready(piece.map(|piece| {
            let piece = piece?;
            self.left -= piece.len() as u64;
            Ok(Frame::data(piece))
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What became of a body that was to be kept.
pub(crate) enum Collected {
    Whole(Bytes),
    /// It is too long, has trailers, or failed: all of it, to be passed on.
    Rest(CacheBody),
}

pub(crate) async fn collect<R>(body: R, max: usize) -> Collected
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut rest, mut seen, mut len) = (pass(body), VecDeque::new(), 0);
    while let Some(frame) = rest.frame().await {
        len += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let is_data = frame.as_ref().is_ok_and(Frame::is_data);
        seen.push_back(frame);
        if !is_data || len > max {
            return Collected::Rest(Resumed { seen, rest }.boxed_unsync());
        }
    }
    let mut pieces = seen.into_iter().filter_map(|frame| frame.ok()?.into_data().ok());
    Collected::Whole(match (pieces.next(), pieces.next()) {
        (None, _) => Bytes::new(),
        (Some(only), None) => only,
        (Some(first), Some(second)) => {
            let mut all = BytesMut::with_capacity(len);
            [first, second].into_iter().chain(pieces).for_each(|piece| all.extend_from_slice(&piece));
            all.freeze()
        }
    })
}

/// A body of which a part was read before.
struct Resumed {
    seen: VecDeque<Result<Frame<Bytes>, BoxError>>,
    rest: CacheBody,
}

impl Body for Resumed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.seen.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}
