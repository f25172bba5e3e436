//! What stands in front of us: load balancers, TLS terminators, other proxies. The operator lists their networks
//! (`front.trusted`); what they say of their clients counts, what others say does not.
//!
//! * PROXY protocol (`front.proxy_protocol`): a connection from a trusted network begins with a header that names the
//!   client ([`header`]), and from then on is that client's, for access lists, logs and trust alike. One that says
//!   nothing of the client (`LOCAL`, `UNKNOWN`) is the front's own.
//! * `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded` (RFC 7239) of a trusted front are kept and extended; of
//!   others they are replaced ([`tell`]).
//! * The scheme that a front names is a part of the key, for the origin may answer by it; a host other than `Host`, or
//!   several schemes, make a request one that is not shared ([`scheme`]).

use std::{fmt::Write as _, net::IpAddr};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use proxy_header::{ParseConfig, ProxyHeader};

use crate::{
    config::Config,
    conn::{Client, Conn},
    rules::validate,
};

/// Longest header of the text form, its line feed included (PROXY protocol, 2.1).
const LONGEST_TEXT: usize = 107;
/// Longest header of the binary form; what it may name beside addresses is short.
pub(crate) const LONGEST: usize = 4 << 10;

const TEXT: &[u8] = b"PROXY ";
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// What a connection begins with, if it is one of a front that speaks the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It is not complete.
    Partial,
    /// It is none, or broken.
    Bad,
    /// A header of so many bytes.
    Header(usize, Option<Told>),
}

/// What a PROXY header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Address of the client.
    source: IpAddr,
    /// It is connected by TLS.
    is_encrypted: bool,
}

/// Reads a PROXY header, version 1 or 2, at the beginning of `bytes`. Its end is found here, so that the parser has all
/// of it and no more.
pub(crate) fn header(bytes: &[u8]) -> Beginning {
    let (signature, longest) = if bytes.first() == Some(&BINARY[0]) { (BINARY, LONGEST) } else { (TEXT, LONGEST_TEXT) };
    let known = bytes.len().min(signature.len());
    if bytes[..known] != signature[..known] {
        return Beginning::Bad;
    }
    let end = if signature == TEXT {
        bytes.iter().position(|b| *b == b'\n').map(|at| at + 1)
    } else {
        bytes.get(14..16).map(|len| 16 + usize::from(len[0]) * 256 + usize::from(len[1]))
    };
    match end {
        Some(end) if end > longest => Beginning::Bad,
        None if bytes.len() >= longest => Beginning::Bad,
        Some(end) if end <= bytes.len() => match ProxyHeader::parse(&bytes[..end], ParseConfig::default()) {
            Ok((header, len)) if len == end => Beginning::Header(end, told(&header)),
            _ => Beginning::Bad,
        },
        _ => Beginning::Partial,
    }
}

fn told(header: &ProxyHeader<'_>) -> Option<Told> {
    let source = header.proxied_address()?.source.ip().to_canonical();
    Some(Told { source, is_encrypted: header.ssl().is_some_and(|ssl| ssl.client_ssl()) })
}

impl Client {
    /// The client that a front's PROXY header names, or the front itself, none of whose clients it is then.
    pub(crate) fn behind(self, told: Option<Told>, config: &Config) -> Self {
        match told {
            Some(told) => Self { is_encrypted: told.is_encrypted, ..Self::peer(told.source, config) },
            None => Self { is_front: false, ..self },
        }
    }
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Whether a field tells of clients, so that no client may have it taken out by naming it in `Connection`.
pub(crate) fn is_ours(name: &HeaderName) -> bool {
    *name == header::FORWARDED || name.as_str().starts_with("x-forwarded-")
}

/// Puts what an origin is told of the client into a request's fields. `host` and `scheme` are what it asked for.
pub(crate) fn tell(headers: &mut HeaderMap, conn: &Conn, host: &HeaderValue, scheme: &'static str) {
    let element = headers.contains_key(header::FORWARDED).then(|| element(conn, host));
    if !conn.is_front {
        let theirs: Vec<_> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
        for name in theirs {
            headers.remove(name);
        }
    }
    extend(headers, &FORWARDED_FOR, &conn.client.to_string());
    headers.entry(&FORWARDED_PROTO).or_insert_with(|| HeaderValue::from_static(scheme));
    headers.entry(&FORWARDED_HOST).or_insert_with(|| host.clone());
    // Where it was not, some origins would believe it before what a front said in the other fields.
    if let Some(element) = element {
        extend(headers, &header::FORWARDED, &element);
    }
}

/// All lines of a field as one, and `last` behind them.
fn extend(headers: &mut HeaderMap, name: &HeaderName, last: &str) {
    let mut all = Vec::new();
    for line in headers.get_all(name) {
        all.extend_from_slice(line.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(last.as_bytes());
    headers.insert(name, HeaderValue::from_bytes(&all).unwrap_or_else(|_| validate::text(last)));
}

/// Our element of `Forwarded`: hosts and addresses with a colon are quoted (RFC 7239 4, 6).
fn element(conn: &Conn, host: &HeaderValue) -> String {
    let mut element = match conn.client {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    if let Ok(host) = host.to_str() {
        // Writing to a string cannot fail.
        let _ = write!(element, ";host=\"{host}\"");
    }
    element + if conn.is_encrypted { ";proto=https" } else { ";proto=http" }
}

/// The scheme that a request was made by, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    /// A front names several, or another host than `Host`: the origin may answer by any of them, so that the answer is
    /// for this request alone.
    Disputed,
}

/// Of a request for `host` with these fields.
pub(crate) fn scheme<'a>(conn: &Conn, host: &[u8], fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Scheme {
    let of_connection = if conn.is_encrypted { Scheme::Https } else { Scheme::Http };
    if !conn.is_front {
        return of_connection;
    }
    let mut said: Option<Scheme> = None;
    let mut says = |name: &[u8], value: &[u8]| {
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"host") {
            return without_port(value).eq_ignore_ascii_case(without_port(host));
        }
        let scheme = match value.to_ascii_lowercase().as_slice() {
            b"https" => Scheme::Https,
            b"http" => Scheme::Http,
            _ => return false,
        };
        *said.get_or_insert(scheme) == scheme
    };
    for (name, value) in fields {
        let mut parts = value.split(|b| matches!(b, b',' | b';'));
        let agrees = if name.eq_ignore_ascii_case(FORWARDED_PROTO.as_str()) {
            parts.all(|part| says(b"proto", part))
        } else if name.eq_ignore_ascii_case(FORWARDED_HOST.as_str()) {
            parts.all(|part| says(b"host", part))
        } else if name.eq_ignore_ascii_case("forwarded") {
            parts.all(|part| {
                let at = part.iter().position(|b| *b == b'=').unwrap_or(part.len());
                let name = part[..at].trim_ascii();
                let told = name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"proto");
                !told || says(name, unquoted(part.get(at + 1..).unwrap_or_default()))
            })
        } else {
            true
        };
        if !agrees {
            return Scheme::Disputed;
        }
    }
    said.unwrap_or(of_connection)
}

fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// The default ports mean nothing.
fn without_port(host: &[u8]) -> &[u8] {
    host.strip_suffix(b":443").or_else(|| host.strip_suffix(b":80")).unwrap_or(host)
}
