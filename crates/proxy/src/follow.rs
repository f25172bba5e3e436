//! Where a rule lets redirects lead (`rule.follow_hosts`): servers by scheme, host and port, each of them named.
//!
//! Without a scheme it is `https`, without a port the scheme's own. `*.` in front stands for what is below a domain;
//! `*` alone, which would be any server there is, is refused.

use http::uri::Authority;

use crate::{key, place::own_port};

/// Most redirects that a rule may have followed.
pub(crate) const MOST: u8 = 10;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    is_tls: bool,
    host: String,
    port: u16,
}

impl Server {
    pub(crate) fn of(authority: &Authority, is_tls: bool) -> Self {
        let port = authority.port_u16().unwrap_or(own_port(is_tls));
        Self { is_tls, host: authority.host().to_ascii_lowercase(), port }
    }

    /// The same host at another server's port, spoken to as that.
    pub(crate) fn at(&self, other: &Self) -> Self {
        Self { host: self.host.clone(), ..other.clone() }
    }
}

/// One that is allowed, or all below a domain.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    server: Server,
    is_below: bool,
}

impl Listed {
    /// # Errors
    /// Says what would do.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not HOST, *.HOST or HOST:PORT, by https, or the same behind http://");
        let (is_tls, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(bad()),
        };
        let (is_below, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        key::host(&mut Vec::new(), rest.as_bytes()).map_err(|_| bad())?;
        let authority = rest.parse().map_err(|_| bad())?;
        Ok(Self { server: Server::of(&authority, is_tls), is_below })
    }

    pub(crate) fn allows(&self, server: &Server) -> bool {
        let own = &self.server;
        let is_host = || server.host == own.host;
        let is_under = || server.host.strip_suffix(&own.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
        (own.is_tls, own.port) == (server.is_tls, server.port) && if self.is_below { is_under() } else { is_host() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_allowed_by_scheme_host_and_port() {
        let rows = [
            ("a.example", "https://A.example:443", true),
            ("a.example", "http://a.example", false),
            ("a.example", "https://a.example:8443", false),
            ("a.example", "https://b.a.example", false),
            ("https://a.example:8443", "https://a.example:8443", true),
            ("http://a.example", "http://a.example:80", true),
            ("http://a.example", "https://a.example", false),
            ("*.a.example", "https://b.a.example", true),
            ("*.a.example", "https://c.b.a.example", true),
            ("*.a.example", "https://a.example", false),
            ("*.a.example", "https://xa.example", false),
            ("*.a.example", "https://.a.example", false),
        ];
        for (listed, url, is_allowed) in rows {
            let (scheme, authority) = url.split_once("://").unwrap();
            let server = Server::of(&authority.parse().unwrap(), scheme == "https");
            assert_eq!(Listed::parse(listed).unwrap().allows(&server), is_allowed, "{listed} {url}");
        }
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for bad in ["", "*", "*.", "ftp://a", "a/b", "u@a", "a*", "*.*.a", "a:0", "http://"] {
            assert!(Listed::parse(bad).is_err(), "{bad}");
        }
    }
}
