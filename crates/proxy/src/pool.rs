//! Connections to origins: made, kept while no request needs them, and used again. hyper speaks HTTP/1 on them, each in
//! a task of its own.
//!
//! * A connection is taken for one request, and kept again when the body of its answer is gone. Whether it can be used
//!   then hyper says: one whose answer did not come to its end is closed, or not ready.
//! * What a kept connection did not send, because its other end had closed it, is sent by another. What was sent is not
//!   sent again here.

use std::{
    collections::HashMap,
    error::Error as _,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, Response, uri::Authority};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::{
    config::LimitsConfig,
    dial::{DialError, Guard, dial},
    origin_tls::{OriginStream, OriginTls},
    payload::{BadBody, Payload},
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

/// An origin, and whether it is spoken to by TLS.
type Place = (Authority, bool);

/// A connection that answers; it is kept when this is dropped.
pub(crate) struct Lease {
    sender: Option<SendRequest<Payload>>,
    place: Place,
    idle: Arc<Idle>,
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
        Self { guard, connect_timeout: limits.connect_timeout.0, tls: tls.clone(), http, idle }
    }

    /// Sends a request, whose URI is a path; returns at the response head.
    pub(crate) async fn request(
        &self,
        upstream: &Upstream,
        mut request: Request<Payload>,
    ) -> Result<(Response<Incoming>, Lease), NoAnswer> {
        let place = (upstream.authority.clone(), upstream.is_tls);
        loop {
            let kept = self.idle.take(&place);
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => Box::pin(self.connect(&place)).await.map_err(|why| NoAnswer::from(&why))?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok((response, Lease { sender: Some(sender), place, idle: self.idle.clone() }));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    _ => return Err(no_answer(&failed.into_error())),
                },
            }
        }
    }

    async fn connect(&self, (authority, is_tls): &Place) -> Result<SendRequest<Payload>, DialError> {
        let port = authority.port_u16().unwrap_or(if *is_tls { 443 } else { 80 });
        let attempt = async {
            let tcp = dial(authority.host(), port, &self.guard, self.connect_timeout).await?;
            match is_tls {
                true => self.tls.connect(authority, tcp).await.map_err(DialError::Tls),
                false => Ok(OriginStream::Plain(tcp)),
            }
        };
        let stream = tokio::time::timeout(self.connect_timeout, attempt).await.unwrap_or(Err(DialError::Timeout))?;
        // It says no word before the first request: what fails, fails with that.
        let (sender, connection) =
            self.http.handshake(TokioIo::new(stream)).await.map_err(|e| DialError::Connect(io::Error::other(e)))?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(sender)
    }

    /// Closes what has been kept for too long.
    pub(crate) fn tidy(&self) {
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
        let Some(sender) = self.sender.take().filter(|sender| !sender.is_closed()) else { return };
        let mut guard = self.idle.kept.lock();
        let kept = match guard.get_mut(&self.place) {
            Some(kept) => kept,
            None => guard.entry(self.place.clone()).or_default(),
        };
        if kept.len() < self.idle.most {
            kept.push((sender, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("place", &self.place).finish_non_exhaustive()
    }
}

/// What the origin did wrong.
pub(crate) fn failure(error: &hyper::Error) -> OriginFailure {
    if error.is_parse() { OriginFailure::Protocol } else { OriginFailure::Closed }
}

fn no_answer(error: &hyper::Error) -> NoAnswer {
    // `is_user`: what we were to send could not be read.
    match error.source().and_then(|why| why.downcast_ref()) {
        Some(BadBody::TooLong) => NoAnswer::Denied(Denied::UploadTooLong),
        Some(BadBody::TooSlow) => NoAnswer::Denied(Denied::UploadTooSlow),
        _ if error.is_user() => NoAnswer::Denied(Denied::BrokenBody),
        _ => failure(error).into(),
    }
}
