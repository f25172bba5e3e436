//! The arrays of tables of a configuration file, of which there may be any number: `[[origin]]`, `[[rule]]`,
//! `[[forward.access]]` and `[[tls.certificate]]`. As everywhere a key of the file is a field of the same name; what is
//! absent is not written.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{ClientDirectives, IpNet, Size, Span};

/// `[[origin]]`: where requests of one host, or of every host, are fetched.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LowOrigin {
    /// The host (and port) that clients ask for; absent: every host that no other origin has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// PEM: the authorities by which an `https` origin is trusted; absent: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The name that its certificate has to be for, and that it is asked for (SNI); absent: the one in the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` takes any certificate: anyone in between can then pose as the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<bool>,
    /// `false` has it asked with the host of its URL in `Host`, not with the client's, as public servers want it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_host: Option<bool>,
    /// PEM: the certificate that is shown to an `https` origin that asks for one, then those between it and its
    /// authority; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM: its key; absent: in the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// `true` offers HTTP/2 to an `https` origin (ALPN).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<bool>,
}

/// `[[rule]]`: what is done otherwise for some hosts and paths. All that match count, and of two that say something of
/// the same, the later one.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct LowRule {
    /// Hosts that it is for, `*` is any text; absent: all. With a port, or for any port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Paths that it is for, `*` is any text; absent: all. Queries are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How long 200, 203, 204, 300, 301 and 308 are fresh, whatever the origin says; what must not be stored is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// How long past that a response is served while it is asked for anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_while_revalidate: Option<Span>,
    /// How long past that it is served when the origin fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_if_error: Option<Span>,
    /// The store is not asked, and keeps nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bypass: Option<bool>,
    /// The origin is told the class of the client's device, and a response is for all of that class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_class: Option<bool>,
    /// As `cache.client_directives`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_directives: Option<ClientDirectives>,
    /// As `cache.max_object`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_object: Option<Size>,
    /// Larger objects are fetched and stored in slices of so many bytes, each when it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Size>,
    /// The only parameters that are left in a query, `*` is any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_keep: Option<Vec<String>>,
    /// Parameters that are taken out of a query, `*` is any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_drop: Option<Vec<String>>,
    /// Parameters are sorted by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_sort: Option<bool>,
    /// Fields that the origin does not get, and that select no variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_remove: Option<Vec<String>>,
    /// Fields of a response that are not there, neither for what is stored nor for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_remove: Option<Vec<String>>,
    /// Fields that the origin gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_set: Option<BTreeMap<String, String>>,
    /// Fields that a response has, as if the origin had sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_set: Option<BTreeMap<String, String>>,
    /// Redirects of the origin that are followed here, one after another; absent or 0: clients follow them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_redirects: Option<u8>,
    /// Hosts that they may lead to beside the configured origins: `HOST`, `*.HOST`, by `https`, or `http://HOST:PORT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_hosts: Option<Vec<String>>,
    /// Texts in bodies, and what is there instead of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<BTreeMap<String, String>>,
    /// Pages are put together of the fragments that they name (ESI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub esi: Option<bool>,
    /// Protocols other than HTTP that a client and an origin may switch to; absent: `websocket`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Vec<String>>,
}

/// `[[forward.access]]`: who may go where. The first that a request matches decides; what none matches is refused.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LowAccess {
    /// What becomes of what it matches.
    pub action: AccessAction,
    /// Names in `forward.users`; absent: all, and those that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Networks of clients; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Vec<IpNet>>,
    /// Hosts that are asked for, `*` is any text; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Ports of these; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<u16>>,
}

/// What an entry of `[[forward.access]]` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessAction {
    /// It may go there.
    Allow,
    /// It is refused.
    Deny,
}

/// `[[tls.certificate]]`: a chain and its key. For which names it is stands in it.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct LowCertificate {
    /// PEM: the server's own certificate, then those that a client needs to trust it.
    pub file: PathBuf,
    /// PEM; default: in the same file.
    pub key: Option<PathBuf>,
}
