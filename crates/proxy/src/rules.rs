//! The rules of HTTP caching (RFC 9111, with RFC 5861 for stale responses) as pure functions of heads and a clock:
//! no I/O, no store, no configuration but the numbers given. The order in which a request meets them:
//!
//! 1. [`Asked::of`]: what the request's directives ask.
//! 2. [`Policy::reuse`]: whether a stored response may answer it, and how.
//! 3. [`validate::validators`]: what to ask the origin when it may not.
//! 4. [`admit::admit`]: whether a new response may be stored, with the [`Policy`] that goes with it.
//! 5. [`validate::freshen`]: what a 304 changes.

pub(crate) mod admit;
pub(crate) mod directives;
pub(crate) mod validate;
pub(crate) mod vary;

use http::{HeaderMap, Method, StatusCode, header};

use crate::config::CacheConfig;
use directives::{RequestDirectives, lines};

/// What a stored response allows, computed once when it was stored. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// When its age was zero: response time less the corrected initial age (RFC 9111 4.2.3).
    pub(crate) birth: u64,
    /// Freshness lifetime (4.2.1).
    pub(crate) lifetime: u64,
    /// `no-cache`: never without asking the origin.
    pub(crate) no_cache: bool,
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: never stale.
    pub(crate) must_revalidate: bool,
    /// RFC 5861: how long after its lifetime it may be served while it is revalidated.
    pub(crate) stale_while_revalidate: u64,
    /// RFC 5861: how long after its lifetime it may be served when the origin fails.
    pub(crate) stale_if_error: Option<u64>,
}

/// How a stored response may be used for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// As it is.
    Fresh,
    /// Stale, because the request accepts that.
    StaleAccepted,
    /// Stale, while a revalidation runs.
    StaleWhileRevalidate,
    /// After asking the origin: it is stale.
    ValidateStale,
    /// After asking the origin: the request wants that.
    ValidateRequest,
}

/// How the origin failed to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer at all.
    Disconnected,
    /// 500, 502, 503 or 504.
    ServerError,
}

/// What a request asks of a cache.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) directives: RequestDirectives,
}

impl Asked {
    /// Reads `Cache-Control`, or `Pragma` where that is absent (RFC 9111 5.4).
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::of_lines(lines(headers, &header::CACHE_CONTROL), lines(headers, &header::PRAGMA))
    }

    /// The same of the lines of the two.
    pub(crate) fn of_lines<'a>(
        control: impl Iterator<Item = &'a [u8]>,
        mut pragma: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let mut control = control.peekable();
        let is_silent = control.peek().is_none();
        let mut directives = RequestDirectives::parse(control);
        if is_silent {
            directives.no_cache =
                pragma.any(|value| value.windows(8).any(|text| text.eq_ignore_ascii_case(b"no-cache")));
        }
        Self { directives }
    }

    /// Forgets what would have the origin asked, or nothing stored.
    pub(crate) fn ignore(&mut self) {
        let RequestDirectives { only_if_cached, max_stale, stale_if_error, .. } = self.directives;
        self.directives =
            RequestDirectives { only_if_cached, max_stale, stale_if_error, ..RequestDirectives::default() };
    }

    /// Whether only what the origin says from now on will do.
    pub(crate) fn is_for_new(&self) -> bool {
        self.directives.no_cache || self.directives.max_age == Some(0)
    }
}

impl Policy {
    /// Fresh for `lifetime` milliseconds, and nothing else said.
    pub(crate) fn of(birth: u64, lifetime: u64) -> Self {
        Self {
            birth,
            lifetime,
            no_cache: false,
            must_revalidate: false,
            stale_while_revalidate: 0,
            stale_if_error: None,
        }
    }

    /// Current age (4.2.3).
    pub(crate) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.birth)
    }

    /// Freshness lifetime left; negative when stale.
    pub(crate) fn remaining(&self, now: u64) -> i64 {
        let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
        signed(self.lifetime) - signed(self.age(now))
    }

    /// It is stale since then, if it was not before.
    pub(crate) fn end(&mut self, at: u64) {
        self.lifetime = self.lifetime.min(at.saturating_sub(self.birth));
    }

    /// The last moment at which the fast path may use it without looking at anything else.
    pub(crate) fn fresh_until(&self) -> u64 {
        if self.no_cache { 0 } else { self.birth.saturating_add(self.lifetime) }
    }

    /// Which of its states it is in, for people.
    pub(crate) fn state(&self, now: u64) -> &'static str {
        match self.fresh_until() {
            0 => "to be confirmed each time",
            until if until > now => "fresh",
            _ => "stale",
        }
    }

    /// Whether and how it may answer the request (4, 5.2.1).
    pub(crate) fn reuse(&self, asked: &Asked, now: u64) -> Reuse {
        let asked = &asked.directives;
        let (age, remaining) = (self.age(now), self.remaining(now));
        if asked.no_cache || asked.max_age.is_some_and(|limit| age > limit || limit == 0) {
            return Reuse::ValidateRequest;
        }
        if self.no_cache {
            return Reuse::ValidateStale;
        }
        if remaining > 0 {
            let wanted = asked.min_fresh.unwrap_or(0);
            return if remaining >= i64::try_from(wanted).unwrap_or(i64::MAX) {
                Reuse::Fresh
            } else {
                Reuse::ValidateRequest
            };
        }
        let staleness = remaining.unsigned_abs();
        if self.must_revalidate || asked.min_fresh.is_some() {
            return Reuse::ValidateStale;
        }
        if asked.max_stale.is_some_and(|limit| staleness <= limit) {
            return Reuse::StaleAccepted;
        }
        if staleness < self.stale_while_revalidate {
            return Reuse::StaleWhileRevalidate;
        }
        Reuse::ValidateStale
    }

    /// Whether it may answer although the origin failed (4.2.4, RFC 5861 4).
    pub(crate) fn survives(&self, asked: &Asked, failure: Failure, config: &CacheConfig, now: u64) -> bool {
        if self.must_revalidate || self.no_cache || asked.directives.no_cache {
            return false;
        }
        let staleness = self.remaining(now).min(0).unsigned_abs();
        let explicit = asked.directives.stale_if_error.max(self.stale_if_error);
        let by_default = match failure {
            Failure::Disconnected => config.disconnected_stale.millis(),
            Failure::ServerError => 0,
        };
        staleness < explicit.unwrap_or(0).max(by_default)
    }
}

/// 500, 502, 503 and 504 are what `stale-if-error` speaks of.
pub(crate) fn is_server_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// Whether the answer to a request with these fields may be for one client.
pub(crate) fn is_personal(request: &HeaderMap) -> bool {
    request.contains_key(header::COOKIE) || request.contains_key(header::AUTHORIZATION)
}

/// Whether a response says nothing of what caches may do with it.
pub(crate) fn says_nothing(response: &HeaderMap) -> bool {
    let fields = [header::CACHE_CONTROL, header::EXPIRES, header::PRAGMA, header::LAST_MODIFIED, header::ETAG];
    !fields.iter().any(|name| response.contains_key(name))
}

/// Whether a request may change something at the origin.
pub(crate) fn is_unsafe(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

/// An unsafe request that was answered so makes what is stored under its URL invalid (4.4).
pub(crate) fn invalidates(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

#[cfg(test)]
mod tests;
