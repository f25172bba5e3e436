//! Defaults, the machine's sizes, and refusal of what cannot work, table by table.

use std::{collections::HashSet, net::SocketAddr, path::PathBuf};

use super::{
    AdminConfig, CacheConfig, CertificateConfig, Config, Deletes, ForwardConfig, FrontConfig, LimitsConfig, LogConfig,
    Low, LowCache, LowCertificate, LowForward, LowFront, LowLimits, LowOrigin, LowRule, LowStore, LowTls, PurgeConfig,
    Size, Span, StoreConfig, TlsConfig, durability, file::ConfigError, machine, units,
};
use crate::{
    certs::{self, Pair, Part},
    origin_tls,
    ruleset::Ruleset,
    users::Accounts,
};

impl Low {
    /// Defaults, the machine's sizes, and refusal of what cannot work.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let bad = |key: &str, why: String| Err(ConfigError::value(key, why));
        let tls = tls(self.tls)?;
        let of_tls = tls.as_ref().map_or(&[][..], |tls| &tls.listen);
        let otherwise = if of_tls.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 3128))] } else { vec![] };
        let listen = self.listen.unwrap_or(otherwise);
        if listen.is_empty() && of_tls.is_empty() {
            return bad("listen", "at least one address is needed, here or in tls.listen".into());
        }
        if let Some(both) = of_tls.iter().find(|address| address.port() != 0 && listen.contains(address)) {
            return bad("tls.listen", format!("{both} is also in listen"));
        }
        let workers = self.workers.unwrap_or_else(machine::cores);
        if !(1..=1024).contains(&workers) {
            return bad("workers", format!("{workers} is outside 1..=1024"));
        }
        let store = store(self.store)?;
        let token_file = self.admin.token_file.unwrap_or_else(|| {
            let mut path = store.path.clone().into_os_string();
            path.push(".token");
            path.into()
        });
        if self.admin.token.as_ref().is_some_and(|token| token.len() < 16) {
            return bad("admin.token", "shorter than 16 characters can be guessed".into());
        }
        let admin = AdminConfig {
            listen: self.admin.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 3129))),
            token: self.admin.token,
            token_file,
        };
        if admin.listen.port() != 0 && listen.iter().chain(of_tls).any(|address| *address == admin.listen) {
            return bad("admin.listen", format!("{} is also in listen", admin.listen));
        }
        let origin = origins(self.origin)?;
        let forward = forward(self.forward, origin.is_empty())?;
        let front = front(self.front)?;
        let purge = PurgeConfig { clients: self.purge.clients.unwrap_or_default() };
        let cache = cache(self.cache, store.capacity)?;
        rules(&self.rule, &cache)?;
        let log =
            LogConfig { format: self.log.format.unwrap_or_default(), to: self.log.to.unwrap_or_else(|| "off".into()) };
        let limits = limits(self.limits)?;
        Ok(Config {
            listen,
            workers,
            store,
            admin,
            forward,
            front,
            purge,
            tls,
            cache,
            limits,
            log,
            origin,
            rule: self.rule,
        })
    }
}

impl Low {
    /// What of it is TLS to clients.
    pub(crate) fn resolve_tls(&self) -> Result<Option<TlsConfig>, ConfigError> {
        tls(self.tls.clone())
    }
}

/// The rules, checked.
pub(crate) fn rules(low: &[LowRule], cache: &CacheConfig) -> Result<Ruleset, ConfigError> {
    let rules = Ruleset::new(low).map_err(|(key, why)| ConfigError::value(&format!("rule.{key}"), why))?;
    match rules.too_long_slice(cache.max_object.0) {
        Some(slice) => {
            let why = format!(
                "{} is more than cache.max_object, {}: no slice would be stored",
                Size(slice),
                cache.max_object
            );
            Err(ConfigError::value("rule.slice", why))
        }
        None => Ok(rules),
    }
}

fn forward(low: LowForward, is_alone: bool) -> Result<ForwardConfig, ConfigError> {
    let is_meant = is_alone || low.clients.is_some() || low.users.is_some() || low.access.is_some();
    let enabled = low.enabled.unwrap_or(is_meant);
    let access = low.access.unwrap_or_default();
    Accounts::read(low.users.as_deref(), &access).map_err(|(key, why)| ConfigError::value(&key, why))?;
    for (key, is_given) in [("forward.users", low.users.is_some()), ("forward.access", !access.is_empty())] {
        if is_given && !enabled {
            return Err(ConfigError::value(key, "nothing is forwarded, for forward.enabled is false".into()));
        }
    }
    let clients = low.clients.unwrap_or_else(units::loopback);
    let connect_ports = low.connect_ports.unwrap_or_else(|| vec![443]);
    Ok(ForwardConfig { enabled, clients, connect_ports, users: low.users, access })
}

fn front(low: LowFront) -> Result<FrontConfig, ConfigError> {
    let front =
        FrontConfig { trusted: low.trusted.unwrap_or_default(), proxy_protocol: low.proxy_protocol.unwrap_or(false) };
    if front.proxy_protocol && front.trusted.is_empty() {
        let why = "the networks that may speak it are listed in front.trusted, and none is".into();
        return Err(ConfigError::value("front.proxy_protocol", why));
    }
    Ok(front)
}

/// Certificates that cannot be served with are refused here, so that `check-config` says so.
fn tls(low: LowTls) -> Result<Option<TlsConfig>, ConfigError> {
    let bad = |key: &str, why: &str| Err(ConfigError::value(key, why.into()));
    let (listen, low_pairs) = (low.listen.unwrap_or_default(), low.certificate.unwrap_or_default());
    match (listen.is_empty(), low_pairs.is_empty()) {
        (true, true) if low.client_ca.is_none() => return Ok(None),
        (true, true) => return bad("tls.client_ca", "no address is given for it in tls.listen"),
        (true, false) => return bad("tls.certificate", "no address is given for it in tls.listen"),
        (false, true) => return bad("tls.listen", "a [[tls.certificate]] is needed"),
        (false, false) => {}
    }
    let mut certificate = Vec::new();
    for low in low_pairs {
        let LowCertificate { file, key } = low;
        let key = key.unwrap_or_else(|| file.clone());
        Pair::read(&file, &key).map_err(|bad| {
            let key = match bad.part {
                Part::Certificate => "tls.certificate.file",
                Part::Key => "tls.certificate.key",
                Part::ClientCa => "tls.client_ca",
            };
            ConfigError::value(key, bad.why)
        })?;
        certificate.push(CertificateConfig { file, key });
    }
    let (min_version, http2) = (low.min_version.unwrap_or_default(), low.http2.unwrap_or(true));
    let http3 = low.http3.unwrap_or(false);
    let client_ca = low.client_ca;
    if let Some(file) = &client_ca {
        certs::roots(file).map_err(|why| ConfigError::value("tls.client_ca", why))?;
    }
    Ok(Some(TlsConfig { listen, min_version, http2, http3, client_ca, certificate }))
}

fn store(low: LowStore) -> Result<StoreConfig, ConfigError> {
    let path = low.path.unwrap_or_else(|| PathBuf::from("picaflor.store"));
    let made = machine::made(&path);
    let capacity = match (low.capacity, &made) {
        (Some(asked), _) => asked.min(machine::device_len(&path).unwrap_or(asked)),
        (None, Some(made)) => Size(made.capacity),
        (None, None) => machine::store_capacity(&path)?,
    };
    let memory = low.memory.unwrap_or_else(machine::store_memory);
    let bound = low.durability.unwrap_or_else(|| "1s".into());
    let Some(puts) = durability(&bound) else {
        return Err(ConfigError::value(
            "store.durability",
            format!("`{bound}` is not `none`, `every-put` or a time such as `1s`"),
        ));
    };
    let delete_bound = low.delete_durability.unwrap_or_else(|| Deletes::like(puts).to_string());
    if Deletes::read(&delete_bound).is_none() {
        return Err(ConfigError::value(
            "store.delete_durability",
            format!("`{delete_bound}` is not `every-delete` or a time such as `1s`"),
        ));
    }
    let preset = low.preset.unwrap_or_else(|| made.as_ref().map_or("picaflor", |made| made.preset).into());
    let file_mode = low.file_mode.unwrap_or_else(|| "600".into());
    let (durability, delete_durability) = (bound, delete_bound);
    let store = StoreConfig { path, capacity, memory, durability, delete_durability, preset, file_mode };
    let checked = store.options().and_then(|options| options.check(made.as_slice()));
    checked.map_err(|why| match why {
        picaflor::Error::Option { name: name @ ("capacity" | "memory" | "preset" | "file_mode"), why } => {
            ConfigError::value(&format!("store.{name}"), why)
        }
        picaflor::Error::Option { why, .. } => ConfigError::value("store.path", why),
        why => ConfigError::value("store", why.to_string()),
    })?;
    machine::room_for(&store, made.is_some())?;
    Ok(store)
}

fn cache(low: LowCache, capacity: Size) -> Result<CacheConfig, ConfigError> {
    let heuristic_fraction = low.heuristic_fraction.unwrap_or(0.1);
    if !(0.0..=1.0).contains(&heuristic_fraction) {
        return Err(ConfigError::value("cache.heuristic_fraction", format!("{heuristic_fraction} is outside 0..=1")));
    }
    let collapse_window = low.collapse_window.unwrap_or(Size(1 << 20));
    if collapse_window.0 < 64 << 10 {
        return Err(ConfigError::value("cache.collapse_window", "less than 64 KiB".into()));
    }
    Ok(CacheConfig {
        enabled: low.enabled.unwrap_or(true),
        max_object: low.max_object.unwrap_or(Size(capacity.0 / 16)),
        heuristic_fraction,
        heuristic_max: low.heuristic_max.unwrap_or(Span::secs(86_400)),
        negative: low.negative.unwrap_or(Span::secs(10)),
        disconnected_stale: low.disconnected_stale.unwrap_or(Span::secs(3600)),
        range_whole_max: low.range_whole_max.unwrap_or(Size(32 << 20)),
        store_set_cookie: low.store_set_cookie.unwrap_or(false),
        max_variants: low.max_variants.unwrap_or(32).clamp(1, 256),
        collapse_window,
        client_directives: low.client_directives.unwrap_or_default(),
        error_hold: low.error_hold.unwrap_or(Span::secs(1)),
        collapse_patience: low.collapse_patience.unwrap_or(Span::secs(5)),
        abandoned_max: low.abandoned_max.unwrap_or(Size(64 << 20)),
    })
}

fn limits(low: LowLimits) -> Result<LimitsConfig, ConfigError> {
    let limits = LimitsConfig {
        connections: low.connections.unwrap_or(20_000),
        connections_per_client: low.connections_per_client,
        header_timeout: low.header_timeout.unwrap_or(Span::secs(10)),
        handshake_timeout: low.handshake_timeout.unwrap_or(Span::secs(10)),
        streams: low.streams.unwrap_or(100),
        idle_timeout: low.idle_timeout.unwrap_or(Span::secs(60)),
        send_timeout: low.send_timeout.unwrap_or(Span::secs(60)),
        connect_timeout: low.connect_timeout.unwrap_or(Span::secs(5)),
        response_timeout: low.response_timeout.unwrap_or(Span::secs(60)),
        origin_pause: low.origin_pause.unwrap_or(Span::secs(5)),
        upload_max: low.upload_max,
        upload_rate: low.upload_rate,
        download_rate: low.download_rate,
        origin_rate: low.origin_rate,
        rate_window: low.rate_window.unwrap_or(Span::secs(10)),
        origin_connections: low.origin_connections,
        origin_waiting: low.origin_waiting.unwrap_or(1000),
        body_timeout: low.body_timeout.unwrap_or(Span::secs(60)),
        tunnel_timeout: low.tunnel_timeout.unwrap_or(Span::secs(600)),
        origin_idle_timeout: low.origin_idle_timeout.unwrap_or(Span::secs(30)),
        origin_idle: low.origin_idle.unwrap_or(64),
        drain: low.drain.unwrap_or(Span::secs(20)),
    };
    if limits.connections == 0 {
        return Err(ConfigError::value("limits.connections", "0 would serve no client".into()));
    }
    if limits.streams == 0 {
        return Err(ConfigError::value("limits.streams", "0 would answer nothing by HTTP/2; see tls.http2".into()));
    }
    if limits.origin_connections == Some(0) {
        return Err(ConfigError::value("limits.origin_connections", "0 would ask no origin".into()));
    }
    if limits.rate_window.0.as_secs() == 0 {
        return Err(ConfigError::value("limits.rate_window", "less than 1 s".into()));
    }
    Ok(limits)
}

fn origins(low: Vec<LowOrigin>) -> Result<Vec<LowOrigin>, ConfigError> {
    let mut seen = HashSet::new();
    let mut origins = Vec::new();
    for origin in low {
        let url: http::Uri =
            origin.url.parse().map_err(|e| ConfigError::value("origin.url", format!("`{}`: {e}", origin.url)))?;
        let plain = url.path() == "/" || url.path().is_empty();
        let known = matches!(url.scheme_str(), Some("http" | "https"));
        if !known || url.host().is_none_or(str::is_empty) || !plain || url.query().is_some() {
            let why = format!("`{}` is not http://HOST:PORT or https://HOST:PORT", origin.url);
            return Err(ConfigError::value("origin.url", why));
        }
        origin_tls::check(&origin).map_err(|(key, why)| ConfigError::value(&format!("origin.{key}"), why))?;
        let mut host = None;
        if let Some(name) = &origin.host {
            let mut normal = Vec::new();
            if crate::key::host(&mut normal, name.as_bytes()).is_err() {
                return Err(ConfigError::value("origin.host", format!("`{name}` is not a host name")));
            }
            host = Some(String::from_utf8_lossy(&normal).into_owned());
        }
        if !seen.insert(host.clone()) {
            let whom = host.unwrap_or_else(|| "every host".into());
            return Err(ConfigError::value("origin", format!("two origins for {whom}")));
        }
        let origin = LowOrigin { host, url: origin.url.trim_end_matches('/').to_owned(), ..origin };
        // They share connections.
        let trust = |origin: &LowOrigin| {
            let LowOrigin { ca, name, verify, certificate, key, http2, .. } = origin.clone();
            (ca, name, verify, certificate, key, http2)
        };
        if origins
            .iter()
            .any(|other: &LowOrigin| other.url.eq_ignore_ascii_case(&origin.url) && trust(other) != trust(&origin))
        {
            let why = format!("two for {}, with different ca, name or verify, certificate, key or http2", origin.url);
            return Err(ConfigError::value("origin", why));
        }
        origins.push(origin);
    }
    origins.sort_by_key(|origin| origin.host.is_none());
    Ok(origins)
}
