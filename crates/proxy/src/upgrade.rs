//! Protocols that a connection may go on with after an answer of 101 (RFC 9110 7.8): WebSocket, or what a rule says.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ring::digest;

/// What is switched to where no rule says otherwise.
const WEBSOCKET: &str = "websocket";

/// Those of a rule, checked. By the ones that are HTTP again, with or without TLS, a client would go past the cache,
/// the rules and the limits of requests to whatever else the origin has.
pub(crate) fn protocols(names: &[String]) -> Result<Arc<[String]>, String> {
    for name in names {
        let is_token = |part: &str| HeaderName::try_from(part).is_ok();
        let (protocol, version) = name.split_once('/').unwrap_or((name, "0"));
        if !is_token(protocol) || !is_token(version) {
            return Err(format!("`{name}` is no protocol, such as websocket or irc/6.9"));
        }
        if ["h2c", "h2", "http", "https", "tls"].iter().any(|http| protocol.eq_ignore_ascii_case(http)) {
            return Err(format!("`{name}` would have clients send requests that are not looked at; leave it out"));
        }
    }
    Ok(names.into())
}

/// Whether `Connection` has the option `upgrade`, without which `Upgrade` means nothing.
fn is_meant(headers: &HeaderMap) -> bool {
    listed(headers, &header::CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade"))
}

/// What a client may switch to of what it asks for, as the origin is asked for it.
pub(crate) fn wanted(headers: &HeaderMap, allowed: Option<&[String]>) -> Option<HeaderValue> {
    let is_allowed = |name: &&str| match allowed {
        Some(allowed) => allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)),
        None => name.eq_ignore_ascii_case(WEBSOCKET),
    };
    if !is_meant(headers) {
        return None;
    }
    let names: Vec<_> = listed(headers, &header::UPGRADE).filter(is_allowed).collect();
    HeaderValue::from_str(&names.join(", ")).ok().filter(|names| !names.is_empty())
}

/// Whether an answer switches to WebSocket.
pub(crate) fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes())
}

const KEY: HeaderName = header::SEC_WEBSOCKET_KEY;
const ACCEPT: HeaderName = header::SEC_WEBSOCKET_ACCEPT;

/// The handshake of WebSocket by HTTP/1.1 (RFC 6455 4), which clients of HTTP/2 leave out (RFC 8441 5).
pub(crate) struct Handshake {
    key: String,
}

impl Handshake {
    /// In a request for these protocols, if WebSocket is one of them.
    pub(crate) fn begin(protocols: &HeaderValue, request: &mut HeaderMap) -> Option<Self> {
        request.remove(KEY);
        let mut named = protocols.to_str().ok()?.split(", ");
        named.any(|name| name.eq_ignore_ascii_case(WEBSOCKET)).then_some(())?;
        let key = STANDARD.encode(rand::random::<[u8; 16]>());
        request.insert(KEY, HeaderValue::from_str(&key).ok()?);
        Some(Self { key })
    }

    /// Whether the origin has read the key, and speaks WebSocket.
    pub(crate) fn is_answered(&self, answer: &HeaderMap) -> bool {
        // RFC 6455 1.3.
        let text = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", self.key);
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        answer.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == STANDARD.encode(hash).as_bytes())
    }
}

/// The fields of an answer that switched, as a client of HTTP/2 has them.
pub(crate) fn without_handshake(answer: &mut HeaderMap) {
    for name in [header::CONNECTION, header::UPGRADE, ACCEPT] {
        answer.remove(name);
    }
}

/// Whether an answer of 101 switches to one protocol of those that were `asked` for.
pub(crate) fn is_to_one_of(asked: &HeaderValue, answer: &HeaderMap) -> bool {
    let mut named = listed(answer, &header::UPGRADE);
    let (Some(name), None, Ok(asked)) = (named.next(), named.next(), asked.to_str()) else { return false };
    is_meant(answer) && asked.split(", ").any(|asked| asked.eq_ignore_ascii_case(name))
}

/// The elements of a list in all lines of a field that are text.
pub(crate) fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().copied().map(line).collect()
    }

    #[test]
    fn only_what_is_allowed_and_meant_is_asked_for() {
        let list = ["irc/6.9".to_owned()];
        for (connection, upgrade, allowed, asked) in [
            ("Upgrade", "websocket", None, Some("websocket")),
            ("keep-alive, upgrade", "h2c, WebSocket, x", None, Some("WebSocket")),
            ("keep-alive", "websocket", None, None),
            ("upgrade", "h2c", None, None),
            ("upgrade", "websocket", Some(&[][..]), None),
            ("upgrade", "websocket, irc/6.9", Some(&list[..]), Some("irc/6.9")),
        ] {
            let headers = fields(&[("connection", connection), ("upgrade", upgrade)]);
            let found = wanted(&headers, allowed);
            assert_eq!(found.as_ref().and_then(|found| found.to_str().ok()), asked, "{connection} {upgrade}");
        }
    }

    #[test]
    fn the_handshake_is_that_of_the_rfc() {
        let handshake = Handshake { key: "dGhlIHNhbXBsZSBub25jZQ==".into() };
        let answer = |accept| fields(&[("sec-websocket-accept", accept)]);
        assert!(handshake.is_answered(&answer("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
        assert!(
            !handshake.is_answered(&answer("s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")) && !handshake.is_answered(&fields(&[]))
        );
        let mut request = fields(&[("sec-websocket-key", "the client's")]);
        assert!(Handshake::begin(&HeaderValue::from_static("irc/6.9"), &mut request).is_none() && request.is_empty());
        assert!(Handshake::begin(&HeaderValue::from_static("irc, WebSocket"), &mut request).is_some());
        assert_eq!(request["sec-websocket-key"].len(), 24);
    }

    #[test]
    fn a_switch_to_anything_else_is_none() {
        let asked = HeaderValue::from_static("websocket, irc/6.9");
        for (lines, is_one) in [
            (&[("connection", "upgrade"), ("upgrade", "WebSocket")][..], true),
            (&[("connection", "upgrade"), ("upgrade", "h2c")], false),
            (&[("connection", "upgrade"), ("upgrade", "websocket, h2c")], false),
            (&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "websocket")], false),
            (&[("upgrade", "websocket")], false),
            (&[("connection", "upgrade")], false),
        ] {
            assert_eq!(is_to_one_of(&asked, &fields(lines)), is_one, "{lines:?}");
        }
    }
}
