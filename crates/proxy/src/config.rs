//! What the proxy can be told. Parse low, resolve high: a file and the flags become one [`Low`], in which
//! everything is optional and the later source wins; [`Low::resolve`] fills in defaults, looks at the machine
//! where a size was not given, refuses what cannot work, and yields the [`Config`] that the proxy runs with.
//!
//! Every key of the file is a field of a `Low…` struct, with the same name; `check-config` prints the resolved
//! configuration in the same form, so its output is a valid file.

mod file;
mod machine;
mod resolve;
mod tables;
mod units;

use std::{net::SocketAddr, path::PathBuf};

use picaflor::Options;
use serde::{Deserialize, Serialize};

pub use file::ConfigError;
pub use ipnet::IpNet;
pub(crate) use resolve::rules;
pub use tables::{AccessAction, LowAccess, LowCertificate, LowOrigin, LowRule};
pub use units::{ClientDirectives, Deletes, Size, Span, durability};

macro_rules! low {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $($(#[$field_doc])* pub $field: Option<$kind>),+ }

        impl $name {
            fn under(self, over: Self) -> Self {
                Self { $($field: over.$field.or(self.$field)),+ }
            }

            /// The keys of `table` in which both differ.
            fn differing(&self, other: &Self, table: &str) -> Vec<String> {
                let mut keys = Vec::new();
                $(if self.$field != other.$field { keys.push(format!("{table}.{}", stringify!($field))); })+
                keys
            }
        }
    )+};
}

low! {
    /// `[store]`.
    LowStore {
        /// File or raw block device; default `picaflor.store` in the current folder.
        path: PathBuf,
        /// Device bytes; default chosen from the free space.
        capacity: Size,
        /// Memory bytes; default chosen from the memory available.
        memory: Size,
        /// `none`, `every-put`, or the longest time whose puts a crash may cost; default `1s`.
        durability: String,
        /// `every-delete`, or the longest time whose invalidations a crash may undo; default as `durability`, and `1s`
        /// where that is `none`. A purge is durable before it is answered.
        delete_durability: String,
        /// Storage manager: a row of the engine's table; default the one that the store remembers, or `picaflor`.
        preset: String,
        /// Permissions of the store, of the files in its folder, and of the access log, where they are made: three
        /// octal digits; default `600`.
        file_mode: String,
    }
    /// `[admin]`.
    LowAdmin {
        /// Default `127.0.0.1:3129`.
        listen: SocketAddr,
        /// The secret itself; default: made at start and kept in `token_file`.
        token: String,
        /// Default: the store's path with `.token` added.
        token_file: PathBuf,
    }
    /// `[forward]`.
    LowForward {
        /// Default true where there is no origin, or `clients` or `users` are given: a TLS terminator on the same
        /// machine comes from loopback, and would open the forward side to all.
        enabled: bool,
        /// Networks whose clients may go through the proxy; default loopback only.
        clients: Vec<IpNet>,
        /// Ports that CONNECT may reach; default 443.
        connect_ports: Vec<u16>,
        /// File of users, `NAME:HASH` a line, whose passwords or tokens clients have to send; default: they need none.
        users: PathBuf,
        /// `[[forward.access]]`, any number: who may go where; default: all everywhere.
        access: Vec<LowAccess>,
    }
    /// `[front]`.
    LowFront {
        /// Networks of load balancers, TLS terminators and proxies in front, whose `X-Forwarded-*` and `Forwarded` are
        /// kept; default none.
        trusted: Vec<IpNet>,
        /// Connections from these begin with a header of the PROXY protocol, version 1 or 2; default false.
        proxy_protocol: bool,
    }
    /// `[purge]`.
    LowPurge {
        /// Networks whose clients may purge, by `PURGE` of the URL to the proxy itself; default none.
        clients: Vec<IpNet>,
    }
    /// `[tls]`.
    LowTls {
        /// Addresses for clients that come by TLS; default none.
        listen: Vec<SocketAddr>,
        /// Oldest version, `1.2` or `1.3`; default `1.2`.
        min_version: TlsVersion,
        /// Whether HTTP/2 is offered; default true.
        http2: bool,
        /// Whether HTTP/3 is spoken at the same ports, by UDP, and named in answers by HTTP/2; default false.
        http3: bool,
        /// PEM: the authorities one of which has to have issued a client's certificate; default: clients need none.
        client_ca: PathBuf,
        /// `[[tls.certificate]]`, any number. The first is for clients that name none of the others.
        certificate: Vec<LowCertificate>,
    }
    /// `[cache]`.
    LowCache {
        /// Default true.
        enabled: bool,
        /// Largest body stored; default a sixteenth of the store.
        max_object: Size,
        /// Share of a response's age at the origin that it stays fresh without an explicit lifetime; default 0.1.
        heuristic_fraction: f64,
        /// Longest heuristic lifetime; default 1 day.
        heuristic_max: Span,
        /// Lifetime of 404, 405, 410, 414 and 501 without an explicit one; default 10 s.
        negative: Span,
        /// How long past its lifetime a response may be served when the origin cannot be reached; default 1 hour.
        disconnected_stale: Span,
        /// Largest object fetched whole because a range of it was asked for; default 32 MiB.
        range_whole_max: Size,
        /// Store responses with `Set-Cookie` that do not say `public` or `s-maxage`; default false.
        store_set_cookie: bool,
        /// Most variants (`Vary`) kept of one URL; default 32.
        max_variants: usize,
        /// Bytes of a body that late comers can join, and that a slow reader may be behind, once all fetches together
        /// hold an eighth of `store.memory`; until then it is the whole body. Default 1 MiB.
        collapse_window: Size,
        /// What becomes of the `no-cache`, `no-store`, `max-age`, `min-fresh`, `If-Match` and `If-Unmodified-Since` of
        /// requests to an origin; default `obey`.
        client_directives: ClientDirectives,
        /// How long an origin's error that says nothing of caches answers later requests, too; default 1 s.
        error_hold: Span,
        /// How long a fetch waits for its slowest reader before it goes on without it, and a late comer for the end of
        /// a fetch whose beginning is in the store only; default 5 s.
        collapse_patience: Span,
        /// Bytes still fetched for the store when every client of a fetch has gone, or late comers wait for its end;
        /// default 64 MiB.
        abandoned_max: Size,
    }
    /// `[limits]`.
    LowLimits {
        /// Client connections at one time, all workers together; default 20,000.
        connections: usize,
        /// Those of one client, by its address; default none. Fronts have no such limit, nor those behind them.
        connections_per_client: usize,
        /// Longest time from the first byte of a request head to its last; default 10 s.
        header_timeout: Span,
        /// Longest time of a TLS handshake; default 10 s.
        handshake_timeout: Span,
        /// Requests that a client has at one time on one connection of HTTP/2; default 100.
        streams: usize,
        /// Longest time between two requests on a connection; default 60 s.
        idle_timeout: Span,
        /// Longest time without progress while sending to a client; default 60 s.
        send_timeout: Span,
        /// Longest time to connect to an origin; default 5 s.
        connect_timeout: Span,
        /// Longest time from request to response head; default 60 s.
        response_timeout: Span,
        /// How long an origin that did not answer, or not twice in a row, is not asked again; default 5 s, 0 is never.
        origin_pause: Span,
        /// Longest time between two pieces of an origin's body; default 60 s.
        body_timeout: Span,
        /// Longest body of a request; default none.
        upload_max: Size,
        /// Fewest bytes a second of a request's body; default none.
        upload_rate: Size,
        /// Fewest bytes a second that a client takes of a response; default none.
        download_rate: Size,
        /// Fewest bytes a second of an origin's body; default none.
        origin_rate: Size,
        /// The time over which these rates are measured; default 10 s.
        rate_window: Span,
        /// Requests that one origin has at one time, all workers together, each on its own connection; default none.
        origin_connections: usize,
        /// Requests that wait for one of these, at most for `connect_timeout`; default 1,000.
        origin_waiting: usize,
        /// Longest silence of a tunnel; default 10 min.
        tunnel_timeout: Span,
        /// How long idle origin connections are kept; default 30 s.
        origin_idle_timeout: Span,
        /// Idle connections kept to one origin, each worker; default 64.
        origin_idle: usize,
        /// How long a stop waits for requests in progress; default 20 s.
        drain: Span,
    }
    /// `[log]`.
    LowLog {
        /// Default `combined`.
        format: LogFormat,
        /// `off`, `stdout` or a path; default `off`.
        to: String,
    }
}

/// The file and the flags, nothing resolved.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Low {
    /// Addresses for clients; default `127.0.0.1:3128`, or none where there are some in `[tls]`.
    pub listen: Option<Vec<SocketAddr>>,
    /// Threads that serve; default one a core.
    pub workers: Option<usize>,
    /// `[store]`.
    pub store: LowStore,
    /// `[admin]`.
    pub admin: LowAdmin,
    /// `[forward]`.
    pub forward: LowForward,
    /// `[front]`.
    pub front: LowFront,
    /// `[purge]`.
    pub purge: LowPurge,
    /// `[tls]`.
    pub tls: LowTls,
    /// `[[origin]]`, any number.
    pub origin: Vec<LowOrigin>,
    /// `[[rule]]`, any number.
    pub rule: Vec<LowRule>,
    /// `[cache]`.
    pub cache: LowCache,
    /// `[limits]`.
    pub limits: LowLimits,
    /// `[log]`.
    pub log: LowLog,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TlsVersion {
    /// With what is safe of it.
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    /// Alone.
    #[serde(rename = "1.3")]
    V1_3,
}

/// Form of a line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// As Apache and nginx write it.
    #[default]
    Combined,
    /// Squid's native form.
    Squid,
    /// One JSON object a line.
    Json,
}

/// What the proxy runs with.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// Addresses for clients.
    pub listen: Vec<SocketAddr>,
    /// Threads that serve.
    pub workers: usize,
    /// The store.
    pub store: StoreConfig,
    /// The admin listener.
    pub admin: AdminConfig,
    /// Forward proxying.
    pub forward: ForwardConfig,
    /// What stands in front.
    pub front: FrontConfig,
    /// Purges by clients.
    pub purge: PurgeConfig,
    /// TLS to clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// Rules and bounds of caching.
    pub cache: CacheConfig,
    /// Time and size limits.
    pub limits: LimitsConfig,
    /// The access log.
    pub log: LogConfig,
    /// Reverse proxying; the one without a host is last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origin: Vec<LowOrigin>,
    /// What is done otherwise for some hosts and paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<LowRule>,
}

/// See [`LowStore`].
#[derive(Debug, Clone, Serialize)]
pub struct StoreConfig {
    /// File or device.
    pub path: PathBuf,
    /// Device bytes.
    pub capacity: Size,
    /// Memory bytes.
    pub memory: Size,
    /// `none`, `every-put` or a time.
    pub durability: String,
    /// `every-delete` or a time.
    pub delete_durability: String,
    /// A row of the engine's table.
    pub preset: String,
    /// Permissions of new files, in octal.
    pub file_mode: String,
}

impl StoreConfig {
    /// What the store is opened with.
    ///
    /// # Errors
    /// [`picaflor::Error::Option`] for a row that there is not.
    pub fn options(&self) -> picaflor::Result<Options> {
        let mut options = picaflor_literature::preset(&self.preset)?.place(&self.path);
        options.capacity = self.capacity.0;
        options.memory = self.memory.0;
        options.durability = durability(&self.durability).unwrap_or_default();
        Deletes::read(&self.delete_durability).unwrap_or(Deletes::Every).bind(&mut options);
        options.file_mode = self.mode();
        Ok(options)
    }

    /// Permissions of new files; none where they are no number, which no store is opened with.
    pub fn mode(&self) -> u32 {
        u32::from_str_radix(&self.file_mode, 8).unwrap_or(0)
    }
}

/// See [`LowAdmin`].
#[derive(Debug, Clone, Serialize)]
pub struct AdminConfig {
    /// Address.
    pub listen: SocketAddr,
    /// Never printed.
    #[serde(skip)]
    pub token: Option<String>,
    /// Where a made token is kept.
    pub token_file: PathBuf,
}

/// See [`LowForward`].
#[derive(Debug, Clone, Serialize)]
pub struct ForwardConfig {
    /// Whether absolute-form requests and CONNECT are served.
    pub enabled: bool,
    /// The networks from which clients may.
    pub clients: Vec<IpNet>,
    /// Where CONNECT may go.
    pub connect_ports: Vec<u16>,
    /// File of the users whose requests are served; all are, without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PathBuf>,
    /// Who may go where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<LowAccess>,
}

/// See [`LowFront`].
#[derive(Debug, Clone, Serialize)]
pub struct FrontConfig {
    /// Networks whose word counts.
    pub trusted: Vec<IpNet>,
    /// Whether connections from these begin with a PROXY header.
    pub proxy_protocol: bool,
}

/// See [`LowPurge`].
#[derive(Debug, Clone, Serialize)]
pub struct PurgeConfig {
    /// Who may.
    pub clients: Vec<IpNet>,
}

/// See [`LowTls`].
#[derive(Debug, Clone, Serialize)]
pub struct TlsConfig {
    /// Addresses for clients that come by TLS.
    pub listen: Vec<SocketAddr>,
    /// Oldest version.
    pub min_version: TlsVersion,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Whether HTTP/3 is spoken.
    pub http3: bool,
    /// Authorities of clients' certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// At least one.
    pub certificate: Vec<CertificateConfig>,
}

/// See [`LowCertificate`].
#[derive(Debug, Clone, Serialize)]
pub struct CertificateConfig {
    /// The chain.
    pub file: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// See [`LowCache`].
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // each field is described in LowCache
pub struct CacheConfig {
    pub enabled: bool,
    pub max_object: Size,
    pub heuristic_fraction: f64,
    pub heuristic_max: Span,
    pub negative: Span,
    pub disconnected_stale: Span,
    pub range_whole_max: Size,
    pub store_set_cookie: bool,
    pub max_variants: usize,
    pub collapse_window: Size,
    pub client_directives: ClientDirectives,
    pub error_hold: Span,
    pub collapse_patience: Span,
    pub abandoned_max: Size,
}

/// See [`LowLimits`].
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // each field is described in LowLimits
pub struct LimitsConfig {
    pub connections: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_client: Option<usize>,
    pub header_timeout: Span,
    pub handshake_timeout: Span,
    pub streams: usize,
    pub idle_timeout: Span,
    pub send_timeout: Span,
    pub connect_timeout: Span,
    pub response_timeout: Span,
    pub body_timeout: Span,
    pub tunnel_timeout: Span,
    pub origin_pause: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_rate: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_rate: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_rate: Option<Size>,
    pub rate_window: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_connections: Option<usize>,
    pub origin_waiting: usize,
    pub origin_idle_timeout: Span,
    pub origin_idle: usize,
    pub drain: Span,
}

/// See [`LowLog`].
#[derive(Debug, Clone, Serialize)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// `off`, `stdout` or a path.
    pub to: String,
}

impl Low {
    /// Both, with `over` winning where it speaks; origins of both are kept unless `over` has any.
    pub fn under(self, over: Self) -> Self {
        Self {
            listen: over.listen.or(self.listen),
            workers: over.workers.or(self.workers),
            store: self.store.under(over.store),
            admin: self.admin.under(over.admin),
            forward: self.forward.under(over.forward),
            front: self.front.under(over.front),
            purge: self.purge.under(over.purge),
            tls: self.tls.under(over.tls),
            origin: if over.origin.is_empty() { self.origin } else { over.origin },
            rule: if over.rule.is_empty() { self.rule } else { over.rule },
            cache: self.cache.under(over.cache),
            limits: self.limits.under(over.limits),
            log: self.log.under(over.log),
        }
    }

    /// The keys in which both differ and that only a restart takes.
    pub(crate) fn fixed_in(&self, new: &Self) -> Vec<String> {
        let mut keys = Vec::new();
        keys.extend((self.listen != new.listen).then(|| "listen".into()));
        keys.extend((self.workers != new.workers).then(|| "workers".into()));
        keys.extend((self.origin != new.origin).then(|| "origin".into()));
        keys.extend(self.store.differing(&new.store, "store"));
        keys.extend(self.admin.differing(&new.admin, "admin"));
        keys.extend(self.forward.differing(&new.forward, "forward"));
        keys.extend(self.front.differing(&new.front, "front"));
        keys.extend(self.purge.differing(&new.purge, "purge"));
        keys.extend(self.tls.differing(&new.tls, "tls"));
        keys.extend(self.cache.differing(&new.cache, "cache"));
        keys.extend(self.limits.differing(&new.limits, "limits"));
        keys.extend(self.log.differing(&new.log, "log"));
        let taken = ["store.capacity", "forward.access", "tls.certificate", "tls.min_version", "tls.http2"];
        keys.retain(|key| !taken.contains(&key.as_str()));
        keys
    }
}

impl Config {
    /// The configuration as a file.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|e| format!("# {e}\n"))
    }
}

#[cfg(test)]
mod tests;
