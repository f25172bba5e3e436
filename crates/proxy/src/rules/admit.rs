//! Whether a response may be stored (RFC 9111 section 3) and for how long it is fresh (4.2).

use http::{HeaderMap, Method, StatusCode, header};

use super::{
    Policy,
    directives::{ResponseDirectives, text},
    vary,
};
use crate::{config::CacheConfig, reason::NotStored};

/// A request and its response, as far as storing is concerned.
pub(crate) struct Exchange<'a> {
    pub(crate) method: &'a Method,
    pub(crate) request: &'a HeaderMap,
    pub(crate) status: StatusCode,
    pub(crate) response: &'a HeaderMap,
    /// When the request was sent and the head received, milliseconds since 1970.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// We act for the origin (reverse mode), so `CDN-Cache-Control` is for us.
    pub(crate) for_origin: bool,
}

/// The policy to store it with, or why it is not stored.
pub(crate) fn admit(exchange: &Exchange<'_>, config: &CacheConfig) -> Result<Policy, NotStored> {
    let Exchange { method, request, status, response, .. } = exchange;
    let directives = ResponseDirectives::parse(response, exchange.for_origin);
    if !config.enabled {
        return Err(NotStored::Off);
    }
    if **method != Method::GET {
        return Err(NotStored::Method);
    }
    if *status == StatusCode::PARTIAL_CONTENT {
        return Err(NotStored::Partial);
    }
    if status.is_informational() || *status == StatusCode::NOT_MODIFIED {
        return Err(NotStored::Status);
    }
    // 5.2.2.3: with must-understand, no-store is for caches that do not know the status.
    if directives.must_understand && !understood(*status) {
        return Err(NotStored::Status);
    }
    if directives.no_store && !directives.must_understand {
        return Err(NotStored::NoStore);
    }
    if directives.private {
        return Err(NotStored::Private);
    }
    // 3.5: these three say that a shared cache may store it all the same.
    let shared = directives.public || directives.s_maxage.is_some() || directives.must_revalidate;
    if request.contains_key(header::AUTHORIZATION) && !shared {
        return Err(NotStored::Authorization);
    }
    if vary::names(response, exchange.for_origin).is_none() {
        return Err(NotStored::VaryStar);
    }
    let explicit_share = directives.public || directives.s_maxage.is_some() || directives.targeted;
    if response.contains_key(header::SET_COOKIE) && !explicit_share && !config.store_set_cookie {
        return Err(NotStored::SetCookie);
    }
    let lifetime = lifetime(exchange, &directives, config);
    let validator = response.contains_key(header::ETAG) || response.contains_key(header::LAST_MODIFIED);
    let may_be_stale = directives.stale_while_revalidate.or(directives.stale_if_error).unwrap_or(0) > 0;
    let Some(lifetime) = lifetime.or((validator && heuristic_status(*status)).then_some(0)) else {
        return Err(NotStored::NoFreshness);
    };
    let policy = Policy {
        birth: exchange.received.saturating_sub(initial_age(exchange)),
        lifetime,
        no_cache: directives.no_cache,
        must_revalidate: directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage.is_some(),
        stale_while_revalidate: directives.stale_while_revalidate.unwrap_or(0),
        stale_if_error: directives.stale_if_error,
    };
    let useful = policy.remaining(exchange.received) > 0 && !policy.no_cache;
    if useful || validator || may_be_stale { Ok(policy) } else { Err(NotStored::NoFreshness) }
}

/// Freshness lifetime (4.2.1): explicit, or heuristic where the status or `public` allows one (4.2.2).
fn lifetime(exchange: &Exchange<'_>, directives: &ResponseDirectives, config: &CacheConfig) -> Option<u64> {
    if let Some(explicit) = directives.s_maxage.or(directives.max_age) {
        return Some(explicit);
    }
    let response = exchange.response;
    let date = date(response, header::DATE).unwrap_or(exchange.received);
    if !directives.targeted && response.contains_key(header::EXPIRES) {
        // 5.3: an Expires that is no date, in particular 0, is in the past.
        let mut lines = response.get_all(header::EXPIRES).iter();
        let first = lines.next().and_then(|value| parse_date(value.as_bytes()));
        return Some(first.map_or(0, |expires| expires.saturating_sub(date)));
    }
    if !heuristic_status(exchange.status) && !directives.public {
        return None;
    }
    if let Some(modified) = self::date(response, header::LAST_MODIFIED) {
        let fraction = date.saturating_sub(modified) as f64 * config.heuristic_fraction;
        return Some((fraction as u64).min(config.heuristic_max.millis()));
    }
    matches!(exchange.status.as_u16(), 404 | 405 | 410 | 414 | 501).then(|| config.negative.millis())
}

/// Whether a response says itself for how long it is fresh, and that it is.
pub(crate) fn has_lifetime(response: &HeaderMap, for_origin: bool, received: u64) -> bool {
    let directives = ResponseDirectives::parse(response, for_origin);
    let expires = || date(response, header::EXPIRES).is_some_and(|expires| expires > received);
    match directives.s_maxage.or(directives.max_age) {
        Some(explicit) => explicit > 0,
        None => !directives.targeted && expires(),
    }
}

/// Corrected initial age (4.2.3).
fn initial_age(exchange: &Exchange<'_>) -> u64 {
    let apparent =
        date(exchange.response, header::DATE).map_or(0, |date| exchange.received.saturating_sub(date) / 1000 * 1000);
    let value = exchange
        .response
        .get(header::AGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split(',').next()?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        .min(1 << 31);
    let delay = exchange.received.saturating_sub(exchange.sent);
    apparent.max(value * 1000 + delay)
}

/// Milliseconds of a date field.
pub(crate) fn date(headers: &HeaderMap, name: http::HeaderName) -> Option<u64> {
    parse_date(headers.get(name)?.as_bytes())
}

/// The same of its value.
pub(crate) fn parse_date(value: &[u8]) -> Option<u64> {
    let text = text(value)?;
    let time =
        httpdate::parse_http_date(text).or_else(|_| httpdate::parse_http_date(&as_written_strictly(text))).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// A cache takes a date in letters of any case (RFC 9111 4.2); and a minute may have a leap second (RFC 9110 5.6.7).
fn as_written_strictly(date: &str) -> String {
    let mut is_inside = false;
    let capitalized = date.chars().map(|letter| {
        let due = if is_inside { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() };
        is_inside = letter.is_ascii_alphabetic();
        due
    });
    capitalized.collect::<String>().replace("Gmt", "GMT").replace(":60 ", ":59 ")
}

/// Statuses that may be given a heuristic lifetime (RFC 9110 15.1); 206 is not stored.
fn heuristic_status(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose caching requirements this cache knows.
fn understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}
