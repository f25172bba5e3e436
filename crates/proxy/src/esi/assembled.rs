//! The body of an assembled page: what assembles it is polled as the client takes it, and ends with the client.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::reason::Broken;

type Work = Pin<Box<dyn Future<Output = Result<(), Broken>> + Send>>;

/// Pieces, as they are made.
pub(crate) struct Assembled {
    /// `None` at its end.
    work: Option<Work>,
    made: mpsc::Receiver<Bytes>,
    /// What was there before anything was said to the client.
    first: Option<Bytes>,
    failed: Option<Broken>,
}

impl Assembled {
    /// `work` is given where to put the pieces.
    pub(crate) fn new<F>(work: impl FnOnce(mpsc::Sender<Bytes>) -> F) -> Self
    where
        F: Future<Output = Result<(), Broken>> + Send + 'static,
    {
        let (sender, made) = mpsc::channel(1);
        Self { work: Some(Box::pin(work(sender))), made, first: None, failed: None }
    }

    /// Waits for the first piece.
    ///
    /// # Errors
    /// There will be none, for this.
    pub(crate) async fn begin(&mut self) -> Result<(), Broken> {
        self.first = std::future::poll_fn(|cx| self.poll(cx)).await.transpose()?;
        Ok(())
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            match self.made.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                // All that was made has been taken, and nothing makes more.
                Poll::Ready(None) if self.work.is_none() => return Poll::Ready(self.failed.take().map(Err)),
                Poll::Ready(None) | Poll::Pending => {}
            }
            let Some(work) = &mut self.work else { return Poll::Pending };
            match work.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    // Its end of the channel goes with it.
                    self.work = None;
                    self.failed = result.err();
                }
                // It may have made something before it began to wait: then this was woken.
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_come_in_order_and_a_failure_behind_them() {
        for failed in [None, Some(Broken::Esi)] {
            let mut body = Assembled::new(|made| async move {
                for piece in ["a", "b", "c"] {
                    let _ = made.send(piece.into()).await;
                    tokio::task::yield_now().await;
                }
                failed.map_or(Ok(()), Err)
            });
            body.begin().await.unwrap();
            let mut got = Vec::new();
            let end = loop {
                match std::future::poll_fn(|cx| body.poll(cx)).await {
                    Some(Ok(bytes)) => got.push(bytes),
                    Some(Err(why)) => break Some(why),
                    None => break None,
                }
            };
            assert_eq!((got, end), (vec![Bytes::from("a"), "b".into(), "c".into()], failed));
        }
        let mut none = Assembled::new(|_| async { Err(Broken::Esi) });
        assert_eq!(none.begin().await, Err(Broken::Esi));
    }
}
