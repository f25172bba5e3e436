//! Answers beside those of hyper: a client must see the same head, body, trailers and end of the connection.

use std::{collections::VecDeque, convert::Infallible, task::Context};

use http::{HeaderMap, HeaderValue, Method, Request};
use http_body::SizeHint;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// What a body brings.
type Came = Vec<Frame<Bytes>>;

/// An answer: status, fields, what the body brings and of which length it says that it is.
struct Case {
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    frames: fn() -> Came,
    /// Says how long it is.
    exact: bool,
}

fn data(pieces: &[&'static str]) -> Came {
    pieces.iter().map(|piece| Frame::data(Bytes::from_static(piece.as_bytes()))).collect()
}

fn trailers() -> Frame<Bytes> {
    let fields = [("x-sum", "7"), ("x-other", "8"), ("set-cookie", "9")];
    let map = fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    Frame::trailers(HeaderMap::from_iter(map))
}

const CASES: &[Case] = &[
    Case { status: 200, fields: &[("content-length", "5")], frames: || data(&["he", "llo"]), exact: true },
    Case { status: 200, fields: &[], frames: || data(&["hello"]), exact: true },
    Case { status: 200, fields: &[("etag", "\"1\"")], frames: || data(&[]), exact: true },
    Case { status: 200, fields: &[("content-length", "5")], frames: || data(&["he", "llo"]), exact: false },
    Case { status: 200, fields: &[], frames: || data(&["he", "", "llo"]), exact: false },
    Case { status: 200, fields: &[], frames: || data(&[]), exact: false },
    Case { status: 404, fields: &[("a", "1"), ("a", "2")], frames: || data(&["gone"]), exact: true },
    Case { status: 204, fields: &[("content-length", "0")], frames: || data(&[]), exact: true },
    Case { status: 304, fields: &[("content-length", "9"), ("etag", "x")], frames: || data(&[]), exact: true },
    Case { status: 299, fields: &[("connection", "close")], frames: || data(&["bye"]), exact: true },
    Case {
        status: 200,
        fields: &[("trailer", "x-sum, set-cookie")],
        frames: || data(&["hello"]).into_iter().chain([trailers()]).collect(),
        exact: false,
    },
    Case {
        status: 200,
        fields: &[],
        frames: || data(&["hello"]).into_iter().chain([trailers()]).collect(),
        exact: false,
    },
];

impl Case {
    fn parts(&self) -> Parts {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = StatusCode::from_u16(self.status).unwrap();
        for (name, value) in self.fields {
            parts.headers.append(*name, HeaderValue::from_static(value));
        }
        parts.headers.insert(header::DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        if parts.status.canonical_reason().is_none() {
            parts.extensions.insert(ReasonPhrase::from_static(b"Status"));
        }
        parts
    }

    /// What is sent as its body.
    fn body(&self, frames: fn() -> Came) -> Frames {
        let frames = frames();
        let len = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, Bytes::len) as u64;
        let len = self.exact.then(|| frames.iter().map(len).sum());
        Frames { frames: frames.into(), len }
    }

    /// As it is sent here.
    fn ours(&self, to: To, frames: fn() -> Came) -> Vec<u8> {
        let mut out = Out::default();
        let body = self.body(frames);
        let mut framing = encode(&mut out.head, &self.parts(), to, body.len);
        for frame in body.frames {
            framing.add(&mut out, frame);
        }
        if framing != Framing::Over {
            framing.end(&mut out.head);
        }
        assert!(out.body.is_empty() && out.tail.is_empty(), "all of it is short");
        out.head
    }

    /// As hyper sends it.
    async fn hypers(&'static self, to: To, frames: fn() -> Came) -> Vec<u8> {
        let (client, server) = duplex(1 << 16);
        let service = service_fn(move |_: Request<Incoming>| async move {
            Ok::<_, Infallible>(Response::from_parts(self.parts(), self.body(frames)))
        });
        let mut builder = http1::Builder::new();
        let connection = builder.half_close(true).serve_connection(TokioIo::new(server), service);
        let asking = async {
            let (mut read, mut write) = tokio::io::split(client);
            let method = if to.is_head { Method::HEAD } else { Method::GET };
            let version = if to.is_old { "HTTP/1.0" } else { "HTTP/1.1\r\nte: trailers\r\nconnection: te" };
            write.write_all(format!("{method} / {version}\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
            write.shutdown().await.unwrap();
            let mut all = Vec::new();
            read.read_to_end(&mut all).await.unwrap();
            all
        };
        tokio::join!(async { connection.await.unwrap() }, asking).1
    }
}

/// A body that is all there.
struct Frames {
    frames: VecDeque<Frame<Bytes>>,
    len: Option<u64>,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.len == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// First line, fields in order of their names, what is behind the head.
fn essence(answer: &[u8]) -> (String, Vec<String>, String) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.lines().map(str::to_owned);
    let first = lines.next().unwrap_or_default();
    let mut fields: Vec<_> = lines.collect();
    fields.sort_unstable();
    (first, fields, String::from_utf8_lossy(&answer[end..]).into_owned())
}

#[tokio::test]
async fn a_client_sees_what_hyper_would_send() {
    for case in CASES {
        for (is_head, is_old) in [(false, false), (true, false), (false, true), (true, true)] {
            let to = To { is_head, is_old };
            // An answer to HEAD has no body, and the connection ends with one to HTTP/1.0.
            let frames = if is_head { || Vec::new() } else { case.frames };
            let said = format!("{} {:?} {to:?}", case.status, case.fields);
            let (first, mut fields, body) = essence(&case.ours(to, frames));
            let mut hypers = essence(&case.hypers(to, frames).await);
            assert_eq!((first, body), (hypers.0, hypers.2), "{said}");
            if is_old {
                fields.retain(|line| line != "connection: close");
                hypers.1.retain(|line| line != "connection: close");
            }
            assert_eq!(fields, hypers.1, "{said}");
        }
    }
}

#[test]
fn a_body_that_is_longer_than_it_said_is_cut_and_a_shorter_one_is_not_over() {
    let mut out = Out::default();
    let mut framing = Framing::Length(3);
    framing.add(&mut out, Frame::data(Bytes::from_static(b"he")));
    assert_eq!(framing, Framing::Length(1));
    framing.add(&mut out, Frame::data(Bytes::from_static(b"llo")));
    assert_eq!((framing, &out.head[..]), (Framing::Over, &b"hel"[..]));
}

#[test]
fn a_long_piece_is_not_copied_and_its_chunk_has_an_end() {
    let long = Bytes::from(vec![7; SHORT + 1]);
    let mut out = Out::default();
    let mut framing = Framing::Chunked(Vec::new());
    assert!(out.is_short());
    framing.add(&mut out, Frame::data(long.clone()));
    assert_eq!((&out.head[..], out.body.as_ptr(), out.tail), (&b"2001\r\n"[..], long.as_ptr(), &b"\r\n"[..]));
    assert!(!out.is_short());
    // However much the socket has taken, what is left is in order.
    let whole = [&b"2001\r\n"[..], &long, b"\r\n"].concat();
    for at in 0..=whole.len() {
        out.at = at;
        assert_eq!(out.slices().iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>(), whole[at..]);
        assert_eq!(out.is_empty(), at == whole.len());
    }
}
