//! Connections to origins by HTTP/2, each shared by many requests: framing, flow control and header compression are
//! hyper's.
//!
//! * While the first connection to an origin is made, other requests wait for it, so that there is one; if it fails, it
//!   fails for all of them. Where it turned out that the origin chose HTTP/1.1, no request waits.
//! * A connection has [`MOST`] requests at one time. Together they may be sent no more ahead of what is read of them
//!   than the connection may, so that one that is not read stops no other.
//! * One on which an answer was not waited for to its head may be dead: it is given no further requests.
//! * What an origin refused (`REFUSED_STREAM`), or did not get to before it said that the connection ends (`GOAWAY`),
//!   it has not done (RFC 9113 8.7), and is sent again, at most [`TRIES`] times; what has a body only if none of it was
//!   sent.

use std::{
    collections::{HashMap, HashSet},
    error::Error as _,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    time::{Duration, Instant},
};

use h2::Reason;
use http::{HeaderValue, Request, Response, Uri, Version, header};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::{origin_tls::OriginStream, payload::Payload, place::Place, reason::NoAnswer};

/// Requests that a connection has at one time.
const MOST: usize = 64;
/// How often a request is sent that was not done: of many at one time an origin may take few before it says GOAWAY, and
/// the others meet again on the next connection.
pub(crate) const TRIES: usize = 10;
/// What an origin may send ahead of what is read: of one answer, and of all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = MOST as u32 * STREAM_WINDOW;
/// As of a response by HTTP/1.
const LONGEST_HEAD: u32 = 64 << 10;

/// Connections that are shared.
pub(crate) struct Multiplexed {
    http: http2::Builder<TokioExecutor>,
    open: Mutex<HashMap<Place, Vec<Arc<Connection>>>>,
    making: Mutex<HashMap<Place, Arc<Making>>>,
    /// They were offered HTTP/2, and chose HTTP/1.1.
    without: Mutex<HashSet<Place>>,
    longest: Duration,
}

/// Connections to one origin, made one after another.
#[derive(Default)]
struct Making {
    /// Why there is none, if the last try failed.
    last: Arc<tokio::sync::Mutex<Option<NoAnswer>>>,
    tries: AtomicUsize,
}

/// The holder of this makes a connection.
pub(crate) struct TurnToMake {
    last: OwnedMutexGuard<Option<NoAnswer>>,
    making: Arc<Making>,
}

impl TurnToMake {
    /// Tells those that wait what came of it.
    pub(crate) fn ends(&mut self, why: Option<&NoAnswer>) {
        *self.last = why.copied();
        self.making.tries.fetch_add(1, AcqRel);
    }
}

struct Connection {
    sender: SendRequest<Payload>,
    requests: AtomicUsize,
    since: Mutex<Instant>,
    is_retired: AtomicBool,
}

impl Connection {
    fn can_be_used(&self) -> bool {
        !self.is_retired.load(Acquire) && !self.sender.is_closed()
    }
}

/// One request's share of a connection.
pub(crate) struct Share {
    connection: Arc<Connection>,
    /// The head of its answer has come, or why it does not.
    is_heard: bool,
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.is_heard {
            self.connection.is_retired.store(true, Release);
        }
        *self.connection.since.lock() = Instant::now();
        self.connection.requests.fetch_sub(1, AcqRel);
    }
}

/// What became of a request without an answer.
pub(crate) enum Unanswered {
    /// The origin has not done it: here it is again.
    NotDone(Box<Request<Payload>>),
    Failed(hyper::Error),
}

impl Multiplexed {
    pub(crate) fn new(longest: Duration) -> Self {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(LONGEST_HEAD);
        let (open, making, without) = Default::default();
        Self { http, open, making, without, longest }
    }

    /// A share of a connection that there is.
    pub(crate) fn take(&self, place: &Place) -> Option<Share> {
        let mut open = self.open.lock();
        let connections = open.get_mut(place)?;
        connections.retain(|connection| connection.can_be_used());
        let fits = |connection: &&Arc<Connection>| connection.requests.load(Acquire) < MOST;
        connections.iter().find(fits).map(Self::share)
    }

    fn share(connection: &Arc<Connection>) -> Share {
        connection.requests.fetch_add(1, AcqRel);
        Share { connection: connection.clone(), is_heard: false }
    }

    /// Waits until no other task makes a connection to it; `None` where it does not speak HTTP/2.
    ///
    /// # Errors
    /// A connection was tried meanwhile, and that came of it: no request waits for one try after another.
    pub(crate) async fn turn_to_make(&self, place: &Place) -> Result<Option<TurnToMake>, NoAnswer> {
        if self.without.lock().contains(place) {
            return Ok(None);
        }
        let making = self.making.lock().entry(place.clone()).or_default().clone();
        let tries = making.tries.load(Acquire);
        let last = making.last.clone().lock_owned().await;
        match *last {
            Some(why) if making.tries.load(Acquire) != tries => Err(why),
            _ if self.without.lock().contains(place) => Ok(None),
            _ => Ok(Some(TurnToMake { last, making })),
        }
    }

    /// It chose HTTP/1.1.
    pub(crate) fn is_without(&self, place: &Place) {
        self.without.lock().insert(place.clone());
    }

    /// A share of a new connection.
    pub(crate) async fn begin(&self, place: &Place, stream: OriginStream) -> Result<Share, hyper::Error> {
        let (sender, connection) = self.http.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let (requests, since, is_retired) = (AtomicUsize::new(0), Mutex::new(Instant::now()), AtomicBool::new(false));
        let connection = Arc::new(Connection { sender, requests, since, is_retired });
        let share = Self::share(&connection);
        self.without.lock().remove(place);
        self.open.lock().entry(place.clone()).or_default().push(connection);
        Ok(share)
    }

    /// Closes what has not been needed for too long.
    pub(crate) fn tidy(&self) {
        self.open.lock().retain(|_, connections| {
            connections.retain(|connection| {
                let is_needed =
                    connection.requests.load(Acquire) > 0 || connection.since.lock().elapsed() < self.longest;
                connection.can_be_used() && is_needed
            });
            !connections.is_empty()
        });
        self.making.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

impl Share {
    /// Sends a request, whose URI is a path; returns at the response head.
    pub(crate) async fn send(&mut self, request: Request<Payload>) -> Result<Response<Incoming>, Unanswered> {
        let request = as_http2(request);
        let again = matches!(request.body(), Payload::None).then(|| Box::new(without_body(&request)));
        let sent = self.connection.sender.clone().try_send_request(request).await;
        self.is_heard = true;
        let mut failed = match sent {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        if let Some(unsent) = failed.take_message() {
            return Err(Unanswered::NotDone(Box::new(as_http1(unsent))));
        }
        let error = failed.into_error();
        match again.filter(|_| is_refused(&error)) {
            Some(again) => Err(Unanswered::NotDone(Box::new(as_http1(*again)))),
            None => Err(Unanswered::Failed(error)),
        }
    }
}

/// Whether the origin says that it has not looked at the request.
fn is_refused(error: &hyper::Error) -> bool {
    let why = error.source().and_then(|why| why.downcast_ref::<h2::Error>());
    why.is_some_and(|why| {
        why.is_remote() && (why.is_go_away() || (why.is_reset() && why.reason() == Some(Reason::REFUSED_STREAM)))
    })
}

/// `Host` is `:authority` (RFC 9113 8.3.1).
fn as_http2(mut request: Request<Payload>) -> Request<Payload> {
    let host = request.headers_mut().remove(header::HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("https").authority(host).path_and_query(path).build();
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    request
}

fn as_http1(mut request: Request<Payload>) -> Request<Payload> {
    let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    let path = request.uri().path_and_query().cloned();
    request.headers_mut().extend(host.map(|host| (header::HOST, host)));
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    *request.version_mut() = Version::HTTP_11;
    request
}

fn without_body(request: &Request<Payload>) -> Request<Payload> {
    let mut same = Request::new(Payload::None);
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    same
}
