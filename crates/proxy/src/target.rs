//! What a request is for: which URL, hence which key, and where it would be fetched. Here are the guards that keep
//! the proxy from being open, from talking to itself, and from being confused about lengths and hosts.

use std::{collections::HashMap, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header, uri::Authority};

use crate::{
    config::{Config, LowOrigin},
    conn::Conn,
    front::{self, Scheme},
    key::{self, Side},
    reason::Denied,
    reference::Reference,
    ruleset::{Action, Rules},
};

/// Where requests are fetched: a server, and who chose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) authority: Authority,
    pub(crate) trust: Trust,
    /// It is spoken to by TLS.
    pub(crate) is_tls: bool,
    /// What `Host` it is asked with, where that is not the client's.
    pub(crate) host: Option<HeaderValue>,
}

/// How much a destination is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// The operator configured it: anywhere but ourselves.
    Configured,
    /// A client on this machine chose it: anywhere but ourselves.
    LocalClient,
    /// Another client chose it: not this machine, not its link.
    RemoteClient,
    /// An origin chose it, by a redirect: not this machine, not its link, no private network.
    Redirect,
}

/// The reverse side's origins by host.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    by_host: HashMap<Vec<u8>, Upstream>,
    every: Option<Upstream>,
}

impl Origins {
    pub(crate) fn new(origins: &[LowOrigin]) -> Self {
        let mut found = Self::default();
        for origin in origins {
            let Ok(url) = origin.url.parse::<Uri>() else { continue };
            let Some(authority) = url.authority().cloned() else { continue };
            let is_tls = url.scheme_str() == Some("https");
            let host = match origin.forward_host {
                Some(false) => HeaderValue::from_str(authority.as_str()).ok(),
                _ => None,
            };
            let upstream = Upstream { authority, trust: Trust::Configured, is_tls, host };
            match &origin.host {
                Some(host) => drop(found.by_host.insert(host.clone().into_bytes(), upstream)),
                None => found.every = Some(upstream),
            }
        }
        found
    }

    /// The origin of a host in its normal form.
    pub(crate) fn of(&self, host: &[u8]) -> Option<&Upstream> {
        self.by_host.get(host).or(self.every.as_ref())
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Upstream> {
        self.by_host.values().chain(&self.every)
    }

    /// The origin of a host that the operator named, in its normal form.
    pub(crate) fn named(&self, host: &[u8]) -> Option<&Upstream> {
        self.by_host.get(host)
    }

    /// Whether the host is one that the operator named.
    pub(crate) fn names(&self, host: &[u8]) -> bool {
        self.by_host.contains_key(host)
    }
}

/// What a request is for.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) side: Side,
    /// Key of the URL.
    pub(crate) key: Vec<u8>,
    /// The host in its normal form: a part of the key.
    pub(crate) host: std::ops::Range<usize>,
    pub(crate) upstream: Arc<Upstream>,
    /// What the origin is asked for.
    pub(crate) path: http::uri::PathAndQuery,
    /// The host as the client wrote it, for the `Host` field.
    pub(crate) host_field: HeaderValue,
    /// See [`Scheme::Disputed`].
    pub(crate) is_disputed: bool,
    /// What the rules say.
    pub(crate) action: Arc<Action>,
}

impl Target {
    /// The host in its normal form.
    pub(crate) fn host(&self) -> &[u8] {
        &self.key[self.host.clone()]
    }

    /// The `Host` that the origin is asked with.
    pub(crate) fn sent_host(&self) -> &HeaderValue {
        self.upstream.host.as_ref().unwrap_or(&self.host_field)
    }

    /// Reads a request that is not CONNECT.
    pub(crate) fn of<B>(request: &Request<B>, config: &Config, origins: &Origins, conn: &Conn) -> Result<Self, Denied> {
        let uri = request.uri();
        let host_field = sound(request.headers(), request.version())?;
        let Some(path) = uri.path_and_query().cloned() else { return Err(Denied::BadTarget) };
        let (authority, absolute) = match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(authority)) => (authority.as_str().as_bytes(), true),
            // The whole URL of a host of ours, by the scheme of the connection (RFC 9112 3.2.2).
            (Some("https"), Some(authority)) if conn.is_encrypted && is_own(origins, authority) => {
                (authority.as_str().as_bytes(), false)
            }
            (Some(_), Some(_)) => return Err(Denied::Scheme),
            (None, None) if path.as_str().starts_with('/') => match (host_field, &origins.every) {
                (Some(host), _) => (host.as_bytes(), false),
                // HTTP/1.0 need not say it.
                (None, Some(every)) => (every.authority.as_str().as_bytes(), false),
                (None, None) => return Err(Denied::BadHost),
            },
            _ => return Err(Denied::BadTarget),
        };
        let mut key = Vec::with_capacity(authority.len() + path.as_str().len() + 16);
        let fields = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let scheme = front::scheme(conn, authority, fields);
        let named = if scheme == Scheme::Https { key::without_https_port(authority) } else { authority };
        key::host(&mut key, named).map_err(|_| Denied::BadHost)?;
        // A server must accept the absolute form for its own hosts (RFC 9112 3.2.2): for every host, where it does not
        // forward and one origin takes them all.
        let own = origins.of(&key).filter(|_| !absolute || !config.forward.enabled || origins.names(&key));
        let (side, upstream) = match own {
            Some(own) if scheme == Scheme::Https => (Side::Encrypted, own.clone()),
            Some(own) => (Side::Reverse, own.clone()),
            None if !absolute => return Err(Denied::NoOrigin),
            None if !config.forward.enabled => return Err(Denied::ForwardOff),
            None if !conn.may_forward => return Err(Denied::ForwardClient),
            None => {
                let authority = uri.authority().cloned().ok_or(Denied::BadTarget)?;
                let (side, trust) = match conn.client.is_loopback() {
                    true => (Side::Forward, Trust::LocalClient),
                    false => (Side::Remote, Trust::RemoteClient),
                };
                (side, Upstream { authority, trust, is_tls: false, host: None })
            }
        };
        if key.len() + path.as_str().len() + 16 > key::MAX {
            return Err(Denied::UrlTooLong);
        }
        let host_field = HeaderValue::from_bytes(authority).map_err(|_| Denied::BadHost)?;
        let host = key::url(&mut key, side, authority, path.as_str().as_bytes()).map_err(|_| Denied::BadTarget)?;
        let is_disputed = side.is_for_origin() && scheme == Scheme::Disputed;
        Ok(Self {
            side,
            key,
            host,
            upstream: Arc::new(upstream),
            path,
            host_field,
            is_disputed,
            action: Arc::default(),
        })
    }

    /// With what the rules say of it, its query included.
    pub(crate) fn ruled(mut self, rules: &Rules) -> Result<Self, Denied> {
        self.action = rules.action(self.host(), self.path.as_str().as_bytes());
        if let Some(path) = self.action.path(self.path.as_str()) {
            let host = self.host().to_vec();
            self.host = key::url(&mut self.key, self.side, &host, path.as_bytes()).map_err(|_| Denied::BadTarget)?;
            self.path = path.parse().map_err(|_| Denied::BadTarget)?;
        }
        Ok(self)
    }

    /// What another URL is for that a page at this one names: on its own host, or, in front of origins, on one that the
    /// operator named.
    pub(crate) fn named(&self, reference: &str, origins: &Origins) -> Option<Self> {
        let named = Reference::parse(reference.as_bytes())?;
        let is_by_tls = match named.scheme {
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => false,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") && self.side.is_for_origin() => true,
            Some(_) => return None,
            None => self.side == Side::Encrypted,
        };
        let host_field = match named.authority {
            Some(authority) => HeaderValue::from_bytes(authority).ok()?,
            // `http:` and a path names no host.
            None if named.scheme.is_some() => return None,
            None => self.host_field.clone(),
        };
        let mut host = Vec::new();
        let text = host_field.as_bytes();
        key::host(&mut host, if is_by_tls { key::without_https_port(text) } else { text }).ok()?;
        let upstream = match origins.named(&host).filter(|_| self.side.is_for_origin()) {
            _ if host == self.host() => self.upstream.clone(),
            Some(origin) => Arc::new(origin.clone()),
            None => return None,
        };
        let path = named.against((self.path.path().as_bytes(), self.path.query().map(str::as_bytes)));
        let path = http::uri::PathAndQuery::try_from(path).ok()?;
        let mut key = Vec::new();
        let host = key::url(&mut key, self.side, &host, path.as_str().as_bytes()).ok()?;
        let (side, is_disputed, action) = (self.side, false, Arc::default());
        Some(Self { side, key, host, upstream, path, host_field, is_disputed, action })
    }

    /// The key of another URL that the origin named in a field, if it is of the same origin (RFC 9111 4.4).
    pub(crate) fn sibling(&self, reference: &HeaderValue) -> Option<Vec<u8>> {
        let base = (self.path.path().as_bytes(), self.path.query().map(str::as_bytes));
        let named = Reference::parse(reference.as_bytes())?;
        let encrypted = match named.scheme {
            None => false,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => false,
            // In front of a server another proxy may have taken the encryption off.
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") && self.side.is_for_origin() => true,
            Some(_) => return None,
        };
        let authority = match named.authority {
            Some(authority) if encrypted => authority.strip_suffix(b":443").unwrap_or(authority),
            Some(authority) => authority,
            // `http:` and a path names no host.
            None if named.scheme.is_some() => return None,
            None => self.host(),
        };
        let mut key = Vec::new();
        let host = key::url(&mut key, self.side, authority, &named.against(base)).ok()?;
        (&key[host] == self.host()).then_some(key)
    }
}

/// Whether an origin is configured for it.
fn is_own(origins: &Origins, authority: &Authority) -> bool {
    let mut normal = Vec::new();
    key::host(&mut normal, key::without_https_port(authority.as_str().as_bytes())).is_ok()
        && origins.of(&normal).is_some()
}

/// One host at most and one meaning of the length (RFC 9112 3.2, 6.3). The parser below has refused most of what is
/// ambiguous; a proxy must not depend on that.
pub(crate) fn sound(headers: &HeaderMap, version: Version) -> Result<Option<&HeaderValue>, Denied> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && version == Version::HTTP_11) {
        return Err(Denied::BadHost);
    }
    let mut normal = Vec::new();
    if let Some(host) = host
        && key::host(&mut normal, host.as_bytes()).is_err()
    {
        return Err(Denied::BadHost);
    }
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    let coded = headers.contains_key(header::TRANSFER_ENCODING);
    if lengths > 1 || (lengths == 1 && coded) || (coded && version != Version::HTTP_11) {
        return Err(Denied::AmbiguousLength);
    }
    if coded && !is_chunked(headers) {
        return Err(Denied::TransferCoding);
    }
    let mut expected = headers.get_all(header::EXPECT).iter();
    if !expected.all(|what| what.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Denied::Expectation);
    }
    Ok(host)
}

/// Content of a CONNECT means nothing (RFC 9110 9.3.6), and could be taken for the tunnel's.
pub(crate) fn bodiless(headers: &HeaderMap) -> Result<(), Denied> {
    let has_length = headers.get_all(header::CONTENT_LENGTH).iter().any(|len| len != "0");
    if has_length || headers.contains_key(header::TRANSFER_ENCODING) { Err(Denied::ConnectBody) } else { Ok(()) }
}

/// Whether the one transfer coding is `chunked`; hyper undoes that one and no other.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// Host and port of an authority in its normal form.
pub(crate) fn parts(authority: &[u8]) -> (&[u8], u16) {
    let at = authority.iter().rposition(|byte| matches!(byte, b':' | b']')).filter(|at| authority[*at] == b':');
    let port = at.and_then(|at| std::str::from_utf8(&authority[at + 1..]).ok()?.parse().ok());
    (&authority[..at.unwrap_or(authority.len())], port.unwrap_or(80))
}

/// `host:port` of CONNECT, the host in its normal form.
pub(crate) fn tunnel(uri: &Uri) -> Result<(String, u16), Denied> {
    let authority = uri.authority().ok_or(Denied::BadTarget)?;
    let mut normal = Vec::new();
    key::host(&mut normal, authority.as_str().as_bytes()).map_err(|_| Denied::BadHost)?;
    let port = authority.port_u16().ok_or(Denied::BadTarget)?;
    Ok((String::from_utf8_lossy(parts(&normal).0).into_owned(), port))
}

/// TRACE would show a client's fields to the page that made it ask; PURGE belongs to the admin listener.
pub(crate) fn method(method: &Method) -> Result<(), Denied> {
    match method.as_str() {
        "TRACE" | "PURGE" => Err(Denied::Method),
        _ => Ok(()),
    }
}
