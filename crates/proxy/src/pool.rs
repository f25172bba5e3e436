//! Connections to origins: made, kept while no request needs them, and used again. By HTTP/1 what has no body is asked
//! for by our own client (`origin_http1`); hyper, in a task of its own, has what sends one or may go on with another
//! protocol. Where HTTP/2 was agreed on, a connection is shared (`multiplexed`).
//!
//! * A connection is taken for one request, and kept again when the body of its answer is gone, if that came to its
//!   end.
//! * What a kept connection did not send, because its other end had closed it, is sent by another. What was sent is not
//!   sent again here.

use std::{
    collections::HashMap,
    error::Error as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Response, header};
use http_body::{Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::{
    config::LimitsConfig,
    dial::{DialError, Guard, dial},
    multiplexed::{self, Multiplexed, Share, Unanswered},
    origin_http1::{Connection, LONGEST_HEAD, MOST_FIELDS},
    origin_tls::{self, OriginStream, OriginTls},
    outgoing::{self, Interim, Outgoing},
    payload::Payload,
    place::{Place, own_port},
    reason::{Denied, NoAnswer, OriginFailure},
    target::Upstream,
    upload::BadBody,
};

/// Connections that destinations of one level of trust are asked by.
pub(crate) struct Pool {
    guard: Guard,
    connect_timeout: Duration,
    tls: Arc<OriginTls>,
    http: http1::Builder,
    http2: Multiplexed,
    idle: Arc<Idle>,
}

/// What is kept. Those that came last are used first.
struct Idle {
    kept: Mutex<HashMap<Place, Vec<Kept>>>,
    most: usize,
    longest: Duration,
}

/// A connection of HTTP/1.
enum Http1 {
    Own(Connection),
    Hyper(SendRequest<Payload>),
}

/// One, and since when no request needs it.
type Kept = (Http1, Instant);

/// What a request asks of its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// It has no body: our own client will do.
    Bare,
    Body,
    /// It may go on with another protocol, and of a kept connection it is not known that it lives.
    Upgrade,
}

/// What a request is sent by.
enum Way {
    Http1(Http1),
    Http2(Share),
}

/// The body of an answer. Its connection is kept, or the share given back, when this is dropped.
pub(crate) struct Answering {
    /// What hyper reads.
    incoming: Option<Incoming>,
    lease: Lease,
}

/// A connection that answers.
enum Lease {
    /// Taken when it is dropped.
    Http1(Option<Http1>, Place, Arc<Idle>),
    Http2(#[expect(dead_code, reason = "its end is all that counts")] Share),
}

impl Pool {
    pub(crate) fn new(limits: &LimitsConfig, guard: Guard, tls: &Arc<OriginTls>) -> Self {
        let (most, longest) = (limits.origin_idle, limits.origin_idle_timeout.0);
        let idle = Arc::new(Idle { kept: Mutex::default(), most, longest });
        Self {
            guard,
            connect_timeout: limits.connect_timeout.0,
            tls: tls.clone(),
            http: Self::builder(),
            http2: Multiplexed::new(longest),
            idle,
        }
    }

    /// hyper, as strict and as patient as our own client.
    pub(crate) fn builder() -> http1::Builder {
        let mut http = http1::Builder::new();
        http.max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_FIELDS)
            // Folded lines become spaces (RFC 9112 5.2): there are still servers that send them.
            .allow_obsolete_multiline_headers_in_responses(true);
        http
    }

    /// Sends a request, whose URI is a path; returns at the response head. `interim` gets the interim answers.
    pub(crate) async fn request(
        &self,
        upstream: &Upstream,
        mut request: Outgoing<'_>,
        interim: Option<&Interim>,
    ) -> Result<Response<Answering>, NoAnswer> {
        let place = (upstream.authority.clone(), upstream.is_tls);
        let wants = Wants::of(&request);
        let mut tries = 0;
        loop {
            let kept = if wants == Wants::Upgrade { None } else { self.idle.take(&place, wants) };
            let is_kept = kept.is_some();
            let way = match kept {
                Some(http1) => Way::Http1(http1),
                // By HTTP/2 there is no other protocol to go on with.
                None if wants == Wants::Upgrade => Box::pin(self.made(&place, wants, false)).await?,
                None => Box::pin(self.way(&place, wants)).await?,
            };
            match way {
                Way::Http1(Http1::Own(mut connection)) => {
                    let response = connection.ask(&request, interim).await?;
                    let lease = Lease::Http1(Some(Http1::Own(connection)), place, self.idle.clone());
                    return Ok(response.map(|()| Answering { incoming: None, lease }));
                }
                Way::Http1(Http1::Hyper(mut sender)) => {
                    let mut whole = request.whole();
                    outgoing::pass_on(&mut whole, interim);
                    match sender.try_send_request(whole).await {
                        Ok(response) => {
                            let lease = Lease::Http1(Some(Http1::Hyper(sender)), place, self.idle.clone());
                            return Ok(response.map(|incoming| Answering { incoming: Some(incoming), lease }));
                        }
                        Err(mut failed) => match failed.take_message() {
                            Some(unsent) if is_kept => request = Outgoing::Whole(Box::new(unsent)),
                            _ => return Err(no_answer(&failed.into_error())),
                        },
                    }
                }
                Way::Http2(mut share) => {
                    tries += 1;
                    let mut whole = request.whole();
                    outgoing::pass_on(&mut whole, interim);
                    let spoiled = whole.body().keeps_why();
                    match Box::pin(share.send(whole)).await {
                        Ok(response) => {
                            let lease = Lease::Http2(share);
                            return Ok(response.map(|incoming| Answering { incoming: Some(incoming), lease }));
                        }
                        Err(Unanswered::NotDone(again)) if tries < multiplexed::TRIES => {
                            request = Outgoing::Whole(again);
                        }
                        Err(Unanswered::NotDone(_)) => return Err(OriginFailure::Closed.into()),
                        Err(Unanswered::Failed(error)) => {
                            let why = spoiled.and_then(|why| why.get().copied());
                            return Err(why.map_or_else(|| no_answer(&error), NoAnswer::Denied));
                        }
                    }
                }
            }
        }
    }

    /// A new connection, or a share of one.
    async fn way(&self, place: &Place, wants: Wants) -> Result<Way, NoAnswer> {
        if !(place.1 && self.tls.offers_http2(&place.0)) {
            return self.made(place, wants, true).await;
        }
        if let Some(share) = self.http2.take(place) {
            return Ok(Way::Http2(share));
        }
        let Some(mut turn) = self.http2.turn_to_make(place).await? else {
            return self.made(place, wants, true).await;
        };
        if let Some(share) = self.http2.take(place) {
            return Ok(Way::Http2(share));
        }
        let made = self.made(place, wants, true).await;
        if let Ok(Way::Http1(_)) = &made {
            self.http2.is_without(place);
        }
        turn.ends(made.as_ref().err());
        made
    }

    /// A new connection; HTTP/2 is offered where the origin is configured so, and that will do.
    async fn made(&self, place: &Place, wants: Wants, may_be_http2: bool) -> Result<Way, NoAnswer> {
        let stream = self.connect(place, may_be_http2).await.map_err(|why| NoAnswer::from(&why))?;
        // They say no word before the first request: what fails, fails with that.
        let broken = |_| NoAnswer::from(OriginFailure::Connect);
        if stream.is_http2() {
            return self.http2.begin(place, stream).await.map(Way::Http2).map_err(broken);
        }
        if wants == Wants::Bare {
            return Ok(Way::Http1(Http1::Own(Connection::new(stream))));
        }
        let (sender, connection) = self.http.handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Way::Http1(Http1::Hyper(sender)))
    }

    async fn connect(&self, (authority, is_tls): &Place, may_be_http2: bool) -> Result<OriginStream, DialError> {
        let port = authority.port_u16().unwrap_or(own_port(*is_tls));
        let attempt = async {
            let tcp = dial(authority.host(), port, &self.guard, self.connect_timeout).await?;
            match is_tls {
                true => self.tls.connect(authority, tcp, may_be_http2).await.map_err(DialError::Tls),
                false => Ok(OriginStream::Plain(tcp)),
            }
        };
        tokio::time::timeout(self.connect_timeout, attempt).await.unwrap_or(Err(DialError::Timeout))
    }

    /// Closes what has been kept for too long.
    pub(crate) fn tidy(&self) {
        self.http2.tidy();
        let now = Instant::now();
        self.idle.kept.lock().retain(|_, kept| {
            kept.retain_mut(|(http1, since)| now.duration_since(*since) < self.idle.longest && !http1.is_dead());
            !kept.is_empty()
        });
    }
}

impl Wants {
    fn of(request: &Outgoing<'_>) -> Self {
        match request {
            _ if request.headers().contains_key(header::UPGRADE) => Self::Upgrade,
            Outgoing::Bare(..) => Self::Bare,
            Outgoing::Whole(_) => Self::Body,
        }
    }
}

impl Http1 {
    /// Whether it is one that can send this.
    fn fits(&self, wants: Wants) -> bool {
        matches!(self, Self::Own(_)) == (wants == Wants::Bare)
    }

    /// Whether no more can be asked by it; of an idle one.
    fn is_dead(&mut self) -> bool {
        match self {
            Self::Own(connection) => !connection.is_quiet(),
            Self::Hyper(sender) => sender.is_closed(),
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Hyper(sender) => sender.is_ready(),
        }
    }

    /// Whether it may be kept, now that the body of its answer is gone.
    fn is_over(&self) -> bool {
        match self {
            Self::Own(connection) => connection.is_over(),
            Self::Hyper(sender) => !sender.is_closed(),
        }
    }
}

impl Idle {
    /// One that can be used.
    fn take(&self, place: &Place, wants: Wants) -> Option<Http1> {
        let mut guard = self.kept.lock();
        let kept = guard.get_mut(place)?;
        let now = Instant::now();
        for n in (0..kept.len()).rev() {
            let (http1, since) = &mut kept[n];
            if now.duration_since(*since) >= self.longest || http1.is_dead() {
                kept.remove(n);
            } else if http1.fits(wants) && http1.is_ready() {
                return Some(kept.remove(n).0);
            }
        }
        None
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Self::Http1(http1, place, idle) = self else { return };
        let Some(mut http1) = http1.take().filter(Http1::is_over) else { return };
        if let Http1::Own(connection) = &mut http1 {
            connection.rest();
        }
        let mut guard = idle.kept.lock();
        let kept = match guard.get_mut(place) {
            Some(kept) => kept,
            None => guard.entry(place.clone()).or_default(),
        };
        if kept.len() < idle.most {
            kept.push((http1, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = OriginFailure;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, OriginFailure>>> {
        match self.get_mut() {
            Self { incoming: Some(incoming), .. } => Pin::new(incoming).poll_frame(cx).map_err(|error| failure(&error)),
            Self { lease: Lease::Http1(Some(Http1::Own(connection)), ..), .. } => connection.poll_frame(cx),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self { incoming: Some(incoming), .. } => incoming.is_end_stream(),
            Self { lease: Lease::Http1(Some(Http1::Own(connection)), ..), .. } => connection.is_end_stream(),
            _ => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self { incoming: Some(incoming), .. } => incoming.size_hint(),
            Self { lease: Lease::Http1(Some(Http1::Own(connection)), ..), .. } => connection.size_hint(),
            _ => SizeHint::with_exact(0),
        }
    }
}

/// What the origin did wrong.
pub(crate) fn failure(error: &hyper::Error) -> OriginFailure {
    // By TLS 1.3 it says so only behind the handshake.
    let why = error.source().and_then(|why| why.downcast_ref());
    match why {
        _ if error.is_parse() => OriginFailure::Protocol,
        Some(why) if origin_tls::is_refused(why) => OriginFailure::TlsRefused,
        _ => OriginFailure::Closed,
    }
}

fn no_answer(error: &hyper::Error) -> NoAnswer {
    // `is_user`: what we were to send could not be read.
    match error.source().and_then(|why| why.downcast_ref()) {
        Some(why @ (BadBody::TooLong | BadBody::TooSlow)) => NoAnswer::Denied(why.into()),
        _ if error.is_user() => NoAnswer::Denied(Denied::BrokenBody),
        _ => failure(error).into(),
    }
}
