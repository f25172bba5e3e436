//! Redirects that are followed here (`rule.follow_redirects`), so that what a URL leads to is stored under that URL.
//!
//! 1. Those of GET and HEAD: 301, 302, 303, 307 and 308 with one `Location`, so many as the rule says, none of them to
//!    where the chain has been.
//! 2. They may lead to the server that was asked, in front of an origin to any configured one (by its `host` or its
//!    `url`), and to the hosts of `rule.follow_hosts`. To the same host by the other scheme the client has to go
//!    itself. A redirect to elsewhere is the answer, its `Location` as the client needs it.
//! 3. Another server gets neither what identifies a client nor what the operator adds: [`KEPT`] goes along, no more,
//!    and nothing of it comes back into the chain later.
//! 4. The answer is for no more clients than each redirect was: what of these is private makes it so, and what they
//!    vary by it varies by.
//!
//! A listed host is connected to under [`Trust::Redirect`]: never on this machine, its link or a private network.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode, header,
    uri::{Authority, PathAndQuery},
};

use crate::{
    follow::Server,
    key::{self, Side},
    reason::{NoAnswer, OriginFailure},
    reference::Reference,
    rules::directives::{CDN_CACHE_CONTROL, ResponseDirectives},
    target::{Origins, Target, Trust, Upstream},
};

/// What another server is told.
const KEPT: [HeaderName; 10] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::USER_AGENT,
    header::RANGE,
    header::IF_RANGE,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::CACHE_CONTROL,
    header::VIA,
];

/// Where a request of the chain goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hop {
    upstream: Arc<Upstream>,
    host: HeaderValue,
    path: PathAndQuery,
}

/// A request and the redirects that it has met.
pub(crate) struct Chain<'a> {
    target: &'a Target,
    origins: &'a Origins,
    headers: HeaderMap,
    /// The last one is being asked.
    hops: Vec<Hop>,
    is_private: bool,
    vary: Vec<HeaderValue>,
}

/// Whether a redirect leads to the server that was asked, by the name that it was asked by.
enum Home {
    Here,
    /// Only by the other scheme, as clients see it.
    OtherScheme,
    Elsewhere,
}

/// What becomes of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is the answer.
    Answer,
    /// The next one is asked.
    Follow,
    /// It leads round and round, or too far.
    Loop,
}

impl<'a> Chain<'a> {
    pub(crate) fn new(target: &'a Target, origins: &'a Origins, headers: HeaderMap) -> Self {
        let (upstream, host, path) = (target.upstream.clone(), target.sent_host().clone(), target.path.clone());
        let hops = vec![Hop { upstream, host, path }];
        Self { target, origins, headers, hops, is_private: false, vary: vec![] }
    }

    fn hop(&self) -> &Hop {
        // There is one from the beginning, and none is taken away.
        &self.hops[self.hops.len() - 1]
    }

    pub(crate) fn is_first(&self) -> bool {
        self.hops.len() == 1
    }

    /// The server to ask, for what, with which fields.
    pub(crate) fn asked(&self) -> (&Upstream, &PathAndQuery, &HeaderMap) {
        (&self.hop().upstream, &self.hop().path, &self.headers)
    }

    /// What it means that there is no answer: that a destination is refused is no fault of a client that chose none.
    pub(crate) fn failure(&self, why: NoAnswer) -> NoAnswer {
        match why {
            NoAnswer::Denied(_) if !self.is_first() => OriginFailure::RedirectRefused.into(),
            why => why,
        }
    }

    /// Looks at the head of a response.
    pub(crate) fn step(&mut self, status: StatusCode, headers: &HeaderMap) -> Step {
        let Some(most) = self.target.action.follow_redirects.filter(|most| *most > 0) else { return Step::Answer };
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Step::Answer;
        }
        let mut locations = headers.get_all(header::LOCATION).iter();
        let (Some(location), None) = (locations.next(), locations.next()) else { return Step::Answer };
        let Some(next) = self.leads_to(location) else { return Step::Answer };
        if self.hops.len() > usize::from(most) || self.hops.contains(&next) {
            return Step::Loop;
        }
        self.note(headers);
        let home = &self.hops[0];
        if (&next.upstream, &next.host) != (&home.upstream, &home.host) {
            let mut kept = HeaderMap::new();
            for name in KEPT {
                for value in self.headers.get_all(&name) {
                    kept.append(name.clone(), value.clone());
                }
            }
            self.headers = kept;
        }
        self.headers.insert(header::HOST, next.host.clone());
        self.hops.push(next);
        Step::Follow
    }

    /// Keeps of a redirect what the answer is to have of it.
    fn note(&mut self, headers: &HeaderMap) {
        let mut ruled = headers.clone();
        self.target.action.on_response(&mut ruled);
        let directives = ResponseDirectives::parse(&ruled, self.target.side.is_for_origin());
        self.is_private |= directives.no_store || directives.private || ruled.contains_key(header::SET_COOKIE);
        self.vary.extend(ruled.get_all(header::VARY).iter().cloned());
    }

    /// `None` if it is not followed.
    fn leads_to(&self, location: &HeaderValue) -> Option<Hop> {
        let now = self.hop();
        let named = Reference::parse(location.as_bytes())?;
        let base = (now.path.path().as_bytes(), now.path.query().map(str::as_bytes));
        let path = named.against(base);
        let path = if path.starts_with(b"/") { path } else { [b"/", &*path].concat() };
        let path = PathAndQuery::try_from(path).ok()?;
        let Some(authority) = named.authority else {
            return named.scheme.is_none().then(|| Hop { path, ..now.clone() });
        };
        key::host(&mut Vec::new(), authority).ok()?;
        let is_tls = match named.scheme {
            None => now.upstream.is_tls,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => true,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => false,
            Some(_) => return None,
        };
        let authority = Authority::try_from(authority).ok()?;
        let place = Server::of(&authority, is_tls);
        match self.is_home(&place, named.scheme.is_some()) {
            Home::Here => {
                let home = &self.hops[0];
                return Some(Hop { upstream: home.upstream.clone(), host: home.host.clone(), path });
            }
            Home::OtherScheme => return None,
            Home::Elsewhere => {}
        }
        let upstream = self.server(&authority, is_tls, &place)?;
        let host = upstream.host.clone().or_else(|| HeaderValue::from_str(authority.as_str()).ok())?;
        Some(Hop { upstream, host, path })
    }

    /// The server that was asked has the client's port, and its own, which is what some take for theirs.
    fn is_home(&self, place: &Server, is_scheme_named: bool) -> Home {
        let Target { upstream, side, .. } = self.target;
        let host = self.target.host_field.to_str().ok().and_then(|host| host.parse().ok());
        let host = host.unwrap_or_else(|| upstream.authority.clone());
        let is_by_tls = if side.is_for_origin() { *side == Side::Encrypted } else { upstream.is_tls };
        let at_its_port = Server::of(&host, upstream.is_tls).at(&Server::of(&upstream.authority, upstream.is_tls));
        if *place == Server::of(&host, is_by_tls) {
            Home::Here
        } else if *place == Server::of(&host, !is_by_tls) {
            if is_scheme_named { Home::OtherScheme } else { Home::Here }
        } else if *place == at_its_port {
            Home::Here
        } else {
            Home::Elsewhere
        }
    }

    /// Which other server has this URL, if it may be asked.
    fn server(&self, authority: &Authority, is_tls: bool, place: &Server) -> Option<Arc<Upstream>> {
        let target = self.target;
        if target.side.is_for_origin() {
            let mut named = Vec::new();
            let text = authority.as_str().as_bytes();
            key::host(&mut named, if is_tls { key::without_https_port(text) } else { text }).ok()?;
            let by_url = || self.origins.all().find(|origin| Server::of(&origin.authority, origin.is_tls) == *place);
            let is_home = named == target.host();
            if let Some(origin) = self.origins.named(&named).filter(|_| !is_home).or_else(by_url) {
                return Some(Arc::new(origin.clone()));
            }
        }
        let mut listed = target.action.follow_hosts.iter().flat_map(|listed| listed.iter());
        let upstream = Upstream { authority: authority.clone(), trust: Trust::Redirect, is_tls, host: None };
        listed.any(|listed| listed.allows(place)).then(|| Arc::new(upstream))
    }

    /// Gives the answer what it has of the redirects.
    pub(crate) fn finish(self, status: StatusCode, headers: &mut HeaderMap) {
        if self.is_first() {
            return;
        }
        if self.is_private {
            headers.remove(&CDN_CACHE_CONTROL);
            headers.append(header::CACHE_CONTROL, HeaderValue::from_static("private"));
        }
        for value in &self.vary {
            headers.append(header::VARY, value.clone());
        }
        // A reference would be read against what the client asked for.
        if status.is_redirection()
            && let Some(location) = headers.get(header::LOCATION).and_then(|location| self.absolute(location))
        {
            headers.insert(header::LOCATION, location);
        }
    }

    fn absolute(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let (now, named) = (self.hop(), Reference::parse(location.as_bytes())?);
        if named.scheme.is_some() {
            return None;
        }
        let scheme = if now.upstream.is_tls { "https:" } else { "http:" };
        let rest = match named.authority {
            Some(_) => location.as_bytes().to_vec(),
            None => {
                let base = (now.path.path().as_bytes(), now.path.query().map(str::as_bytes));
                let path = named.against(base);
                let home = &self.hops[0];
                if (&now.upstream, &now.host) == (&home.upstream, &home.host) {
                    return HeaderValue::from_bytes(&path).ok();
                }
                [b"//", now.host.as_bytes(), &*path].concat()
            }
        };
        HeaderValue::from_bytes(&[scheme.as_bytes(), &*rest].concat()).ok()
    }
}
