//! A request's body as it comes from a client.
//!
//! By HTTP/3 its length is held to what the request said of it here (RFC 9114, 4.1.2): by HTTP/1 and HTTP/2 hyper does.
//! An origin that is spoken to by HTTP/1 takes it by that length.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h3::error::Code;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::{reason::Denied, rules::directives::number};

/// A client's request body.
pub(crate) enum Upload {
    /// By HTTP/1 or HTTP/2.
    Hyper(Incoming),
    /// By HTTP/3.
    Quic(Box<FromQuic>),
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BadBody;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BadBody>>> {
        match self.get_mut() {
            Self::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(|_| BadBody::Broken),
            Self::Quic(body) => body.poll(cx).map(|next| next.map(|next| next.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            Self::Quic(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Hyper(body) => body.size_hint(),
            Self::Quic(body) => body.left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// Why a request body is not sent to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("it broke off, or is not HTTP")]
    Broken,
    #[error("longer than limits.upload_max")]
    TooLong,
    #[error("slower than limits.upload_rate")]
    TooSlow,
}

impl From<&BadBody> for Denied {
    fn from(why: &BadBody) -> Self {
        match why {
            BadBody::Broken => Self::BrokenBody,
            BadBody::TooLong => Self::UploadTooLong,
            BadBody::TooSlow => Self::UploadTooSlow,
        }
    }
}

/// The receiving half of a stream of HTTP/3.
type Receiving = h3::server::RequestStream<h3_quinn::RecvStream, Bytes>;

/// A body by HTTP/3. What may follow it (trailers) is not passed on.
pub(crate) struct FromQuic {
    stream: Receiving,
    /// Bytes that are still to come, if that was said.
    left: Option<u64>,
    /// What came first, where that was waited for.
    first: Option<Bytes>,
    /// What came last, where the length was said.
    last: Option<Bytes>,
    is_over: bool,
}

impl FromQuic {
    /// Of a request with these fields.
    ///
    /// # Errors
    /// It says several lengths, or one that is none.
    pub(crate) fn new(stream: Receiving, headers: &HeaderMap) -> Result<Self, Denied> {
        let left = declared(headers)?;
        Ok(Self { stream, left, first: None, last: None, is_over: false })
    }

    /// Waits until it is known whether there is a body: the end of a request without one may come behind its head.
    pub(crate) async fn begin(&mut self) -> Result<(), BadBody> {
        if self.first.is_none() {
            self.first = poll_fn(|context| self.poll(context)).await.transpose()?;
        }
        Ok(())
    }

    /// Whether its length is said to be 0.
    pub(crate) fn is_said_empty(&self) -> bool {
        self.left() == Some(0)
    }

    fn is_over(&self) -> bool {
        self.is_over && self.first.is_none()
    }

    fn left(&self) -> Option<u64> {
        let waits = [&self.first, &self.last].into_iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>();
        if self.is_over { Some(waits) } else { self.left.map(|left| left + waits) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BadBody>>> {
        if self.first.is_some() {
            return Poll::Ready(self.first.take().map(Ok));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        loop {
            let came = match ready!(self.stream.poll_recv_data(cx)) {
                Ok(came) => came.map(|mut data| data.copy_to_bytes(data.remaining())),
                Err(_) => return self.broken(),
            };
            let Some(bytes) = came else {
                if self.left.is_some_and(|left| left > 0) {
                    return self.broken();
                }
                self.is_over = true;
                return Poll::Ready(self.last.take().map(Ok));
            };
            let Some(left) = self.left else { return Poll::Ready(Some(Ok(bytes))) };
            match left.checked_sub(bytes.len() as u64) {
                None => return self.broken(),
                // An origin has the whole request with these: they wait until nothing came behind them.
                Some(0) if left > 0 => (self.left, self.last) = (Some(0), Some(bytes)),
                Some(left) => {
                    self.left = Some(left);
                    return Poll::Ready(Some(Ok(bytes)));
                }
            }
        }
    }

    fn broken(&mut self) -> Poll<Option<Result<Bytes, BadBody>>> {
        self.is_over = true;
        Poll::Ready(Some(Err(BadBody::Broken)))
    }
}

impl Drop for FromQuic {
    /// Where the answer needs no more of it, the client may stop sending (RFC 9114, 4.1).
    fn drop(&mut self) {
        if !self.is_over {
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }
}

/// The length that fields say a body has.
fn declared(headers: &HeaderMap) -> Result<Option<u64>, Denied> {
    let mut all = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let len = first.to_str().ok().and_then(number).filter(|_| all.next().is_none());
    len.map(Some).ok_or(Denied::AmbiguousLength)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_length_is_said_once_and_is_a_number() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(value));
            }
            declared(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["12"]), Ok(Some(12)));
        for bad in [&["12", "12"][..], &["1, 1"], &["+1"], &["-1"], &[""], &["99999999999999999999"]] {
            assert_eq!(of(bad), Err(Denied::AmbiguousLength), "{bad:?}");
        }
    }
}
