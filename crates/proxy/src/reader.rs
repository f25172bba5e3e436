//! One client's way through a body that a fetch brings: what the fetch holds, and, where it has gone on without this
//! client, the store; from the origin what the store has not.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use picaflor::Store;

use crate::{
    fill::{Cursor, Next},
    head::{Stored, decode},
    pieces::Pieces,
    reason::Broken,
    rest::Rest,
};

enum Source {
    Fill,
    Opening(Pin<Box<dyn Future<Output = Option<Pieces>> + Send>>),
    Pieces(Pieces),
}

/// See the head of this file.
pub(crate) struct Reader {
    cursor: Cursor,
    store: Store,
    source: Source,
    rest: Option<Arc<Rest>>,
}

impl Reader {
    pub(crate) fn new(cursor: Cursor, store: &Store) -> Self {
        Self { cursor, store: store.clone(), source: Source::Fill, rest: None }
    }

    /// Where it has to go on from the store, and that has it not, or not to its end, the rest comes from there.
    pub(crate) fn or_from(&mut self, rest: Rest) {
        self.rest = Some(Arc::new(rest));
    }

    /// Whether it does.
    pub(crate) fn is_mended(&self) -> bool {
        matches!(&self.source, Source::Pieces(pieces) if pieces.mended)
    }

    /// Reads this part only; before the first `poll`.
    pub(crate) fn narrow(&mut self, range: std::ops::Range<u64>) {
        self.cursor.narrow(range);
    }

    /// Bytes left, where the end is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.cursor.left()
    }

    /// The next bytes.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let has_rest = self.rest.as_ref().is_some_and(|rest| rest.can_be_asked_for());
        loop {
            match &mut self.source {
                Source::Fill => match ready!(self.cursor.poll(cx, has_rest)) {
                    Next::Bytes(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Next::End => return Poll::Ready(None),
                    Next::Broken(broken) => return Poll::Ready(Some(Err(broken))),
                    Next::Elsewhere => self.source = self.rest_from_store(),
                },
                Source::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Some(pieces) => self.source = Source::Pieces(pieces),
                    None => {
                        let Some(rest) = self.rest.clone() else {
                            return Poll::Ready(Some(Err(Broken::LeftBehind)));
                        };
                        let range = self.cursor.range();
                        let range = range.start..range.end.min(rest.len());
                        self.source = Source::Pieces(Pieces::from_origin(rest, range, "it is not there"));
                    }
                },
                Source::Pieces(pieces) => return pieces.poll(cx),
            }
        }
    }

    fn rest_from_store(&self) -> Source {
        let (store, range, rest) = (self.store.clone(), self.cursor.range(), self.rest.clone());
        let Some(head) = self.cursor.head() else { return Source::Opening(Box::pin(std::future::ready(None))) };
        let expected = self.cursor.come();
        Source::Opening(Box::pin(async move {
            let object = store.get_async(&head.key).await.ok().flatten()?;
            // It may have been replaced since: only the very response that this reader began with will do.
            let same = match &*object.decoded(decode) {
                Stored::Response(stored) => {
                    stored.received == head.received && stored.policy == head.policy && object.len() == expected
                }
                _ => false,
            };
            same.then(|| Pieces::stored(object, range.start..range.end.min(expected)).or_from(rest))
        }))
    }
}
