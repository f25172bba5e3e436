//! Connections to origins: made, kept while no request needs them, and used again. hyper speaks HTTP/1 on them, each in
//! a task of its own; where HTTP/2 was agreed on, it is shared (`multiplexed`).
//!
//! * A connection is taken for one request, and kept again when the body of its answer is gone. Whether it can be used
//!   then hyper says: one whose answer did not come to its end is closed, or not ready.
//! * What a kept connection did not send, because its other end had closed it, is sent by another. What was sent is not
//!   sent again here.

use std::{
    collections::HashMap,
    error::Error as _,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, Response, header};
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
    origin_tls::{self, OriginStream, OriginTls},
    payload::{BadBody, Payload},
    place::{Place, own_port},
    reason::{Denied, NoAnswer, OriginFailure},
    target::Upstream,
};

/// More than any sane response has; their bytes have a limit of their own.
const RESPONSE_FIELDS_MAX: usize = 512;

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

/// A connection, and since when no request needs it.
type Kept = (SendRequest<Payload>, Instant);

/// A connection that answers; it is kept, or its share given back, when this is dropped.
pub(crate) struct Lease {
    kept: Option<(SendRequest<Payload>, Place, Arc<Idle>)>,
    _share: Option<Share>,
}

/// What a request is sent by.
enum Way {
    Http1(SendRequest<Payload>),
    Http2(Share),
}

impl Pool {
    pub(crate) fn new(limits: &LimitsConfig, guard: Guard, tls: &Arc<OriginTls>) -> Self {
        let mut http = http1::Builder::new();
        http.max_buf_size(64 << 10)
            .max_headers(RESPONSE_FIELDS_MAX)
            // Folded lines become spaces (RFC 9112 5.2): there are still servers that send them.
            .allow_obsolete_multiline_headers_in_responses(true);
        let (most, longest) = (limits.origin_idle, limits.origin_idle_timeout.0);
        let idle = Arc::new(Idle { kept: Mutex::default(), most, longest });
        Self {
            guard,
            connect_timeout: limits.connect_timeout.0,
            tls: tls.clone(),
            http,
            http2: Multiplexed::new(longest),
            idle,
        }
    }

    /// Sends a request, whose URI is a path; returns at the response head.
    pub(crate) async fn request(
        &self,
        upstream: &Upstream,
        mut request: Request<Payload>,
    ) -> Result<(Response<Incoming>, Lease), NoAnswer> {
        let place = (upstream.authority.clone(), upstream.is_tls);
        // By HTTP/2 there is no other protocol to go on with, and of a kept connection it is not known that it lives.
        let is_upgrade = request.headers().contains_key(header::UPGRADE);
        let mut tries = 0;
        loop {
            let kept = if is_upgrade { None } else { self.idle.take(&place) };
            let is_kept = kept.is_some();
            let way = match kept {
                Some(sender) => Way::Http1(sender),
                None if is_upgrade => Box::pin(self.made(&place, false)).await?,
                None => Box::pin(self.way(&place)).await?,
            };
            match way {
                Way::Http1(mut sender) => match sender.try_send_request(request).await {
                    Ok(response) => {
                        let kept = Some((sender, place, self.idle.clone()));
                        return Ok((response, Lease { kept, _share: None }));
                    }
                    Err(mut failed) => match failed.take_message() {
                        Some(unsent) if is_kept => request = unsent,
                        _ => return Err(no_answer(&failed.into_error())),
                    },
                },
                Way::Http2(mut share) => {
                    tries += 1;
                    let spoiled = request.body().keeps_why();
                    match Box::pin(share.send(request)).await {
                        Ok(response) => return Ok((response, Lease { kept: None, _share: Some(share) })),
                        Err(Unanswered::NotDone(again)) if tries < multiplexed::TRIES => request = *again,
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
    async fn way(&self, place: &Place) -> Result<Way, NoAnswer> {
        if !(place.1 && self.tls.offers_http2(&place.0)) {
            return self.made(place, true).await;
        }
        if let Some(share) = self.http2.take(place) {
            return Ok(Way::Http2(share));
        }
        let Some(mut turn) = self.http2.turn_to_make(place).await? else { return self.made(place, true).await };
        if let Some(share) = self.http2.take(place) {
            return Ok(Way::Http2(share));
        }
        let made = self.made(place, true).await;
        if let Ok(Way::Http1(_)) = &made {
            self.http2.is_without(place);
        }
        turn.ends(made.as_ref().err());
        made
    }

    /// A new connection; HTTP/2 is offered where the origin is configured so, and that will do.
    async fn made(&self, place: &Place, may_be_http2: bool) -> Result<Way, NoAnswer> {
        let stream = self.connect(place, may_be_http2).await.map_err(|why| NoAnswer::from(&why))?;
        // They say no word before the first request: what fails, fails with that.
        let broken = |_| NoAnswer::from(OriginFailure::Connect);
        if stream.is_http2() {
            return self.http2.begin(place, stream).await.map(Way::Http2).map_err(broken);
        }
        let (sender, connection) = self.http.handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Way::Http1(sender))
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
            kept.retain(|(sender, since)| !sender.is_closed() && now.duration_since(*since) < self.idle.longest);
            !kept.is_empty()
        });
    }
}

impl Idle {
    /// One that can be used.
    fn take(&self, place: &Place) -> Option<SendRequest<Payload>> {
        let mut guard = self.kept.lock();
        let kept = guard.get_mut(place)?;
        kept.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < self.longest);
        let ready = kept.iter().rposition(|(sender, _)| sender.is_ready())?;
        Some(kept.remove(ready).0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some((sender, place, idle)) = self.kept.take().filter(|(sender, ..)| !sender.is_closed()) else { return };
        let mut guard = idle.kept.lock();
        let kept = match guard.get_mut(&place) {
            Some(kept) => kept,
            None => guard.entry(place).or_default(),
        };
        if kept.len() < idle.most {
            kept.push((sender, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("is_kept", &self.kept.is_some()).finish_non_exhaustive()
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
