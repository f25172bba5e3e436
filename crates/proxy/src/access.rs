//! Who may go where through the forward side: entries of users, clients' networks, hosts and ports, of which the first
//! that a request matches decides. What none matches is refused, so a list that forgets a user lets none in.
//!
//! A host is compared as the client writes it, in lower case and without points behind it, not by what it stands for:
//! who may go to all but some hosts can go there by an address, or by another name.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    config::{AccessAction, LowAccess},
    reason::Denied,
    wild,
};

/// What is wrong with an entry: the key, and why.
pub(crate) type BadEntry = (&'static str, String);

#[derive(Debug)]
struct Entry {
    may: bool,
    users: Option<Vec<String>>,
    clients: Option<Vec<IpNet>>,
    hosts: Option<Vec<String>>,
    ports: Option<Vec<u16>>,
}

/// The entries in their order; none: all may go anywhere.
#[derive(Debug, Default)]
pub(crate) struct Access(Vec<Entry>);

/// A request that is to go elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Going<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) client: IpAddr,
    /// In its normal form (`key::host`), without a port.
    pub(crate) host: &'a [u8],
    pub(crate) port: u16,
}

impl Access {
    /// Of the configuration; `users` are the names that there are, if any are asked for.
    pub(crate) fn new(low: &[LowAccess], users: Option<&[&str]>) -> Result<Self, BadEntry> {
        if !low.is_empty() && low.iter().all(|entry| entry.action == AccessAction::Deny) {
            let why = "no entry has action = \"allow\", and what none matches is refused: nothing would be forwarded";
            return Err(("action", why.into()));
        }
        low.iter().map(|entry| read(entry, users)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it may.
    pub(crate) fn check(&self, going: &Going<'_>) -> Result<(), Denied> {
        if self.0.is_empty() {
            return Ok(());
        }
        let first = self.0.iter().find(|entry| entry.matches(going));
        if first.is_some_and(|entry| entry.may) { Ok(()) } else { Err(Denied::ForwardAccess) }
    }
}

impl Entry {
    fn matches(&self, going: &Going<'_>) -> bool {
        let mut host = going.host;
        while let [rest @ .., b'.'] = host {
            host = rest;
        }
        self.users.as_ref().is_none_or(|users| going.user.is_some_and(|user| users.iter().any(|name| name == user)))
            && self.clients.as_ref().is_none_or(|nets| nets.iter().any(|net| net.contains(&going.client)))
            && self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|pattern| wild::matches(pattern, host)))
            && self.ports.as_ref().is_none_or(|ports| ports.contains(&going.port))
    }
}

fn read(low: &LowAccess, users: Option<&[&str]>) -> Result<Entry, BadEntry> {
    for name in low.users.iter().flatten() {
        match users {
            None => return Err(("users", format!("no user is known as `{name}` without forward.users"))),
            Some(users) if !users.contains(&name.as_str()) => {
                return Err(("users", format!("`{name}` is not in forward.users")));
            }
            Some(_) => {}
        }
    }
    for host in low.hosts.iter().flatten() {
        if let Some(domain) = host.strip_prefix('.') {
            return Err(("hosts", format!("`{host}` matches no host; give `{domain}` and `*.{domain}`")));
        }
        let is_address = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host.contains(['/', ' ', '@']) || (host.contains(':') && !is_address) {
            let why = format!("`{host}` is no host, such as example.org, *.example.org or [::1]; ports go into ports");
            return Err(("hosts", why));
        }
    }
    let lens = [low.users.as_ref().map(Vec::len), low.clients.as_ref().map(Vec::len), low.hosts.as_ref().map(Vec::len)];
    let empty = ["users", "clients", "hosts", "ports"]
        .into_iter()
        .zip(lens.into_iter().chain([low.ports.as_ref().map(Vec::len)]))
        .find(|(_, len)| *len == Some(0));
    if let Some((key, _)) = empty {
        return Err((key, "an empty list matches nothing; leave it out for all".into()));
    }
    let plain = |host: &String| host.to_ascii_lowercase().trim_end_matches('.').to_owned();
    Ok(Entry {
        may: low.action == AccessAction::Allow,
        users: low.users.clone(),
        clients: low.clients.clone(),
        hosts: low.hosts.as_ref().map(|hosts| hosts.iter().map(plain).collect()),
        ports: low.ports.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Low;

    fn access(text: &str) -> Result<Access, BadEntry> {
        Access::new(&Low::parse("p.toml", text).unwrap().forward.access.unwrap(), None)
    }

    #[test]
    fn the_first_that_matches_decides_and_what_none_matches_is_refused() {
        let access = access(
            "[[forward.access]]\naction = \"deny\"\nhosts = [\"*.Bad.example.\", \"bad.example\"]\n\
             [[forward.access]]\naction = \"allow\"\nports = [80, 443]\nclients = [\"192.0.2.0/24\"]\n",
        )
        .unwrap();
        for (client, host, port, may) in [
            ([192, 0, 2, 1], "good.example", 80, true),
            ([192, 0, 2, 1], "good.example", 8080, false),
            ([192, 0, 3, 1], "good.example", 80, false),
            ([192, 0, 2, 1], "bad.example", 80, false),
            ([192, 0, 2, 1], "bad.example..", 80, false),
            ([192, 0, 2, 1], "www.bad.example.", 443, false),
            ([192, 0, 2, 1], "notbad.example", 443, true),
        ] {
            let going = Going { user: Some("any"), client: client.into(), host: host.as_bytes(), port };
            assert_eq!(access.check(&going).is_ok(), may, "{going:?}");
        }
        let going = Going { user: None, client: [192, 0, 3, 1].into(), host: b"a", port: 1 };
        assert!(Access::default().check(&going).is_ok());
    }

    #[test]
    fn an_entry_that_cannot_work_is_named() {
        for (text, key) in [
            ("action = \"deny\"", "action"),
            ("action = \"allow\"\nusers = [\"alice\"]", "users"),
            ("action = \"allow\"\nusers = []", "users"),
            ("action = \"allow\"\nports = []", "ports"),
            ("action = \"allow\"\nhosts = [\"http://a\"]", "hosts"),
            ("action = \"allow\"\nhosts = [\"a:80\"]", "hosts"),
            ("action = \"allow\"\nhosts = [\".a\"]", "hosts"),
        ] {
            assert_eq!(access(&format!("[[forward.access]]\n{text}\n")).unwrap_err().0, key, "{text}");
        }
    }
}
