//! Answers of origins: our client reads them as hyper's does, however they are cut on their way.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Version, uri::PathAndQuery};
use http_body::{Body, Frame};
use hyper::ext::ReasonPhrase;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime::Builder,
};

use crate::{
    origin::framed,
    origin_http1::{Connection, framing::has_lone_lf},
    outgoing::{self, Interim, Outgoing},
    payload::Payload,
    pool::{self, Pool},
    reason::OriginFailure,
};

/// The interim answers that came.
type Told = Mutex<Vec<(StatusCode, HeaderMap)>>;

/// What is to be seen of an answer.
#[derive(Debug, PartialEq)]
struct Seen {
    head: Result<(StatusCode, Version, Option<ReasonPhrase>, HeaderMap), OriginFailure>,
    interim: Vec<(StatusCode, HeaderMap)>,
    /// With the trailers, if it came to its end.
    body: Option<(Vec<u8>, HeaderMap)>,
}

impl Seen {
    fn of(response: Result<Response<()>, OriginFailure>, interim: &Told) -> Self {
        let head = response.map(|response| {
            let reason = response.extensions().get::<ReasonPhrase>().cloned();
            (response.status(), response.version(), reason, response.headers().clone())
        });
        Self { head, interim: interim.lock().clone(), body: None }
    }

    fn add(&mut self, frame: Frame<Bytes>) {
        let (body, trailers) = self.body.get_or_insert_default();
        match frame.into_data() {
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(frame) => trailers.extend(frame.into_trailers().expect("the other kind")),
        }
    }
}

/// The other end of a connection: takes a request and answers in pieces of `step` bytes, or at once.
fn origin(answer: &[u8], step: usize) -> DuplexStream {
    let (ours, mut theirs) = duplex(64 << 10);
    let answer = answer.to_vec();
    tokio::spawn(async move {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            if theirs.read_buf(&mut asked).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let step = if step == 0 { answer.len().max(1) } else { step };
        for piece in answer.chunks(step) {
            if theirs.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = theirs.shutdown().await;
        // It has an end and no error.
        let _ = theirs.read_to_end(&mut asked).await;
    });
    ours
}

fn listener() -> (Interim, Arc<Told>) {
    let heard = Arc::<Told>::default();
    let hears = heard.clone();
    (Arc::new(move |status, fields: &HeaderMap| hears.lock().push((status, fields.clone()))), heard)
}

fn method(is_head: bool) -> Method {
    if is_head { Method::HEAD } else { Method::GET }
}

async fn ours(stream: DuplexStream, is_head: bool) -> Seen {
    let (interim, heard) = listener();
    let mut connection = Connection::new(stream);
    let (path, fields) = (PathAndQuery::from_static("/"), HeaderMap::new());
    let answer = connection.ask(&Outgoing::Bare(&method(is_head), &path, &fields), Some(&interim)).await;
    let answer = answer.and_then(|response| framed(response, None));
    let is_answer = answer.is_ok();
    let mut seen = Seen::of(answer, &heard);
    seen.body = is_answer.then(Default::default);
    while let Some(frame) = poll_fn(|cx| connection.poll_frame(cx)).await.filter(|_| is_answer) {
        let Ok(frame) = frame else {
            seen.body = None;
            break;
        };
        seen.add(frame);
    }
    seen
}

async fn hypers(stream: DuplexStream, is_head: bool) -> Seen {
    let (interim, heard) = listener();
    let path = PathAndQuery::from_static("/");
    let mut request = outgoing::request(&path, &method(is_head), HeaderMap::new(), Payload::None);
    outgoing::pass_on(&mut request, Some(&interim));
    let (mut sender, connection) = Pool::builder().handshake(TokioIo::new(stream)).await.expect("no word is said");
    tokio::spawn(connection);
    let answer = sender.try_send_request(request).await;
    let answer = answer.map_err(|failed| pool::failure(&failed.into_error()));
    let answer = answer.and_then(|response| framed(response, None));
    let (answer, mut body) = match answer {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            (Ok(Response::from_parts(parts, ())), Some(body))
        }
        Err(why) => (Err(why), None),
    };
    let mut seen = Seen::of(answer, &heard);
    seen.body = body.is_some().then(Default::default);
    while let Some(incoming) = &mut body
        && let Some(frame) = poll_fn(|cx| Pin::new(&mut *incoming).poll_frame(cx)).await
    {
        let Ok(frame) = frame else {
            seen.body = None;
            break;
        };
        seen.add(frame);
    }
    seen
}

/// A byte that says how the rest is cut, and to what it answers; an origin's answer.
pub(super) fn arriving(bytes: &[u8]) {
    let Some((how, answer)) = bytes.split_first() else { return };
    let (is_head, step) = (how & 1 == 1, usize::from(how >> 1));
    let runtime = Builder::new_current_thread().build().expect("one without drivers");
    runtime.block_on(async {
        let seen = ours(origin(answer, step), is_head).await;
        let mut hypers = hypers(origin(answer, step), is_head).await;
        if let (Err(_), Err(why)) = (&hypers.head, &seen.head) {
            // Of a head that is wrong and not complete it says the latter.
            hypers.head = Err(*why);
        }
        if seen.body.is_none() && has_lone_lf(answer) {
            // It takes them in trailers.
            hypers.body = None;
        }
        assert_eq!(seen, hypers);
        assert_eq!(seen, ours(origin(answer, 0), is_head).await, "cut otherwise");
    });
}
