//! The admin listener: `/health` and `/dashboard` for anyone who can connect; `/metrics`, `/stats` and purging with the
//! token.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health` | `ok`; `degraded` and why, if the store takes no more writes: requests are answered all the same |
//! | `GET /metrics` | Prometheus text |
//! | `GET /stats`, `GET /map` | JSON; how full the store's clusters are |
//! | `GET /explain?url=http://…` | JSON: what is stored of a URL, whether it is served, which purge took it |
//! | `GET /object?url=http://…` | a response that is stored: its body, or a `Range` of it; `head=1&` before: status, fields |
//! | `GET /objects`, or with `?host=…` | a JSON object a line: each response that is stored, all or of a host |
//! | `GET /dashboard` | a page for people, which says nothing itself: it asks for the token, and then for these two |
//! | `POST /purge?url=http://…` | takes the URL and all its variants out of the store, durably |
//! | `PURGE http://…` | the same, or what has the tags that `Surrogate-Key` and `Cache-Tag` of the request name |
//! | `POST /purge?prefix=`, `pattern=`, `host=`, `tag=`, `group=…&host=`, `all=1` | the same of more: `purge::asked` |
//! | `POST /reload` | takes new certificates, as the signal HUP does; 409 and why, if it takes nothing |
//!
//! The token goes into `Authorization: Bearer …`. A browser never sends that by itself, so no web page can reach
//! anything here through its user.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    net::{IpAddr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use picaflor::{ClusterMap, Error, Store};
use rustix::{process::setpriority_process, thread::gettid};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::{
    config::{AdminConfig, LowOrigin},
    explain,
    lifecycle::{StartError, Stop},
    metrics::{self, Total},
    object::{self, NotShown, Wanted},
    objects,
    proxy::Proxy,
    purge::{
        asked::{Asked, BadAsked},
        selector, sweep,
        taking::{self, NotPurged},
    },
    range, resident,
    rules::validate::text,
};

/// The configured token, the one in the token file, or a new one left there; and the file, if it counts.
pub(crate) fn token(config: &AdminConfig) -> Result<(String, Option<PathBuf>), StartError> {
    if let Some(token) = &config.token {
        return Ok((token.clone(), None));
    }
    let path = &config.token_file;
    let fail = |e| StartError::File(path.display().to_string(), e);
    match OpenOptions::new().read(true).open(path) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(fail)?;
            let token = text.trim().to_owned();
            if token.len() >= 16 {
                return Ok((token, Some(path.clone())));
            }
            let why = "holds no token of at least 16 characters; remove it to have one made";
            Err(fail(std::io::Error::other(why)))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let token: String = rand::random::<[u8; 24]>().iter().map(|b| format!("{b:02x}")).collect();
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
            writeln!(file, "{token}").map_err(fail)?;
            Ok((token, Some(path.clone())))
        }
        Err(e) => Err(fail(e)),
    }
}

/// How far reports and sweeps stand back where hits keep a core busy, in steps of nice(2): they get a tenth of it.
const STAND_BACK: i32 = 10;

/// Serves until told to stop.
pub(crate) fn work(proxy: Arc<Proxy>, socket: TcpListener, mut stopped: watch::Receiver<Stop>) {
    // Of this thread, and of those that it starts. Without it they only get more.
    let _ = setpriority_process(Some(gettid()), STAND_BACK);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return eprintln!("picaflor: admin: {e}"),
    };
    runtime.block_on(async {
        let Ok(socket) = tokio::net::TcpListener::from_std(socket) else { return };
        let background = [
            tokio::spawn(tidy(proxy.clone())),
            tokio::spawn(sweep::run(proxy.clone())),
            tokio::spawn(resident::keep(proxy.clone())),
        ];
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = stopped.wait_for(|stop| *stop == Stop::All) => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let proxy = proxy.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let proxy = proxy.clone();
                    async move { Ok::<_, std::convert::Infallible>(answer(&proxy, request).await) }
                });
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(10))
                    .max_buf_size(64 << 10)
                    .half_close(true)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
        let purged = async {
            while proxy.purges.invalidating() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(proxy.config.limits.drain.0, purged).await;
        background.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// Ends what purges have left to do.
async fn tidy(proxy: Arc<Proxy>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        taking::tidy(&proxy).await;
    }
}

type Reply = Response<Text>;

/// A body in one piece, or in pieces that come later.
pub(crate) enum Text {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl http_body::Body for Text {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let piece = match &mut *self {
            Self::Whole(whole) => std::task::Poll::Ready(whole.take()),
            Self::Pieces(pieces) => pieces.poll_recv(context),
        };
        piece.map(|piece| piece.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(whole) => http_body::SizeHint::with_exact(whole.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Pieces(_) => http_body::SizeHint::default(),
        }
    }
}

fn reply(status: StatusCode, kind: &'static str, text: String) -> Reply {
    let mut reply = Response::new(Text::Whole(Some(Bytes::from(text))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn plain(status: StatusCode, text: &str) -> Reply {
    reply(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

async fn answer(proxy: &Arc<Proxy>, request: Request<Incoming>) -> Reply {
    let uri = request.uri();
    if matches!(*request.method(), Method::GET | Method::HEAD) && uri.path() == "/health" && uri.authority().is_none() {
        return plain(StatusCode::OK, &health(&proxy.store.failures()));
    }
    if *request.method() == Method::GET && uri.path() == "/dashboard" && uri.authority().is_none() {
        return dashboard();
    }
    if !authorized(proxy, &request) {
        let mut reply = plain(StatusCode::UNAUTHORIZED, "send the admin token as `Authorization: Bearer TOKEN`");
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return reply;
    }
    match (request.method().as_str(), uri.path()) {
        ("GET", "/metrics") => reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", prometheus(proxy)),
        ("GET", "/stats") => {
            let value = json!({
                "proxy": Total(&proxy.counters).json(),
                "fill_buffered_bytes": proxy.fills.buffered(),
                "purges": proxy.purges.stats(),
                "origins": origins(proxy),
                "store": serde_json::to_value(proxy.store.stats()).unwrap_or_default(),
                "receipt": serde_json::to_value(proxy.store.receipt()).unwrap_or_default(),
                "uptime_seconds": proxy.started.elapsed().as_secs(),
                "version": env!("CARGO_PKG_VERSION"),
            });
            reply(StatusCode::OK, "application/json", format!("{value:#}\n"))
        }
        ("GET", "/map") => reply(StatusCode::OK, "application/json", format!("{}\n", map(&proxy.store))),
        ("GET", "/explain") => explained(proxy, uri.query().unwrap_or_default()).await,
        ("GET", "/object") => {
            let shown = object(proxy, uri.query().unwrap_or_default(), request.headers().get(header::RANGE)).await;
            shown.unwrap_or_else(|(status, why)| plain(status, &why))
        }
        ("GET", "/objects") => objects(proxy, uri.query().unwrap_or_default()),
        ("POST", "/reload") => reload(proxy).await,
        ("PURGE", path) if path != "/purge" || uri.scheme().is_some() => {
            purge(proxy, Asked::client(&wanted(&request), request.headers())).await
        }
        ("POST" | "PURGE", "/purge") => purge(proxy, Asked::query(uri.query().unwrap_or_default())).await,
        (
            _,
            path @ ("/metrics" | "/stats" | "/map" | "/explain" | "/object" | "/objects" | "/purge" | "/health"
            | "/reload"),
        ) => {
            let allowed = match path {
                "/purge" => "POST, PURGE",
                "/reload" => "POST",
                "/health" => "GET, HEAD",
                _ => "GET",
            };
            let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, &format!("{path} takes {allowed}"));
            reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
            reply
        }
        _ => plain(
            StatusCode::NOT_FOUND,
            "here are /dashboard, /explain, /health, /map, /metrics, /object, /objects, /purge, /reload and /stats",
        ),
    }
}

/// Not on this thread: a store that grows takes its time.
async fn reload(proxy: &Arc<Proxy>) -> Reply {
    let reloading = proxy.clone();
    let reloaded = tokio::task::spawn_blocking(move || reloading.reload()).await;
    let (status, said) = match reloaded {
        Ok(Ok(taken)) => (StatusCode::OK, json!({"reloaded": taken})),
        Ok(Err(why)) => (StatusCode::CONFLICT, json!({"error": why.to_string()})),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"error": why.to_string()})),
    };
    reply(status, "application/json", format!("{said}\n"))
}

/// What a scraper takes.
fn prometheus(proxy: &Proxy) -> String {
    let mut text = String::with_capacity(16 << 10);
    Total(&proxy.counters).prometheus(&mut text);
    metrics::purges(&proxy.purges.stats(), &mut text);
    let (buffered, uptime) = (proxy.fills.buffered() as f64, proxy.started.elapsed().as_secs_f64());
    let mut gauges = vec![
        ("picaflor_fill_buffered_bytes", "Body bytes kept for clients that share a fetch.", buffered),
        ("picaflor_uptime_seconds", "Seconds since the proxy started.", uptime),
    ];
    if let Some(tls) = &proxy.tls {
        let help = "When the first certificate expires, in seconds since 1970.";
        gauges.push(("picaflor_tls_certificate_expires_seconds", help, tls.expires() as f64));
    }
    text + &metrics::now(&proxy.store.stats(), &gauges)
}

/// A response as it is stored: bytes that no browser takes for a page.
async fn object(proxy: &Arc<Proxy>, query: &str, range: Option<&HeaderValue>) -> Result<Reply, NotShown> {
    let wanted = Wanted::query(query)?;
    let hit = object::find(proxy, &wanted).await?;
    let mut reply = reply(StatusCode::OK, "application/octet-stream", String::new());
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if wanted.head {
        *reply.body_mut() = Text::Whole(Some(object::head(&hit)));
        return Ok(reply);
    }
    let part = object::part(&hit, range)?;
    let parts = object::parts(proxy, &hit, &part)?;
    if part != (0..hit.len()) {
        *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = range::content_range(&part, hit.len());
        reply.headers_mut().insert(header::CONTENT_RANGE, text(range));
    }
    reply.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(part.end - part.start));
    let (to, pieces) = mpsc::channel(4);
    tokio::spawn(object::send(proxy.clone(), parts, to));
    *reply.body_mut() = Text::Pieces(pieces);
    Ok(reply)
}

/// All that is stored, or what is of a host.
fn objects(proxy: &Arc<Proxy>, query: &str) -> Reply {
    let host = match query.split_once('=') {
        None if query.is_empty() => None,
        Some(("host", host)) => Some(percent_decode_str(host).collect::<Vec<u8>>().to_ascii_lowercase()),
        _ => return plain(StatusCode::BAD_REQUEST, "say /objects, or /objects?host=HOST"),
    };
    let (to, pieces) = mpsc::channel(4);
    tokio::spawn(objects::list(proxy.clone(), host, to));
    let mut reply = reply(StatusCode::OK, "application/x-ndjson", String::new());
    *reply.body_mut() = Text::Pieces(pieces);
    reply
}

/// What is known of a URL, which is given as that of a purge is.
async fn explained(proxy: &Proxy, query: &str) -> Reply {
    let wrong = "say of which URL: /explain?url=http://host/path";
    let Ok(Asked { selectors, url_keys: Some(_), .. }) = Asked::query(query) else {
        return plain(StatusCode::BAD_REQUEST, wrong);
    };
    match explain::url(proxy, &selectors[0].text).await {
        Some(value) => reply(StatusCode::OK, "application/json", format!("{value:#}\n")),
        None => plain(StatusCode::BAD_REQUEST, wrong),
    }
}

/// The page. It loads nothing from elsewhere, and no other page may have it in a frame.
fn dashboard() -> Reply {
    const POLICY: HeaderValue = HeaderValue::from_static(
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    );
    let mut reply = reply(StatusCode::OK, "text/html; charset=utf-8", include_str!("dashboard.html").into());
    reply.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    reply.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
}

/// Cells of a volume's map.
const CELLS: usize = 4096;

/// Of each volume, from its start on, how much of its clusters is alive, in percent, rounded up.
fn map(store: &Store) -> serde_json::Value {
    let volume = |map: &ClusterMap| {
        let each = map.live.len().div_ceil(CELLS).max(1);
        let percent = |clusters: &[u32]| {
            let live: u64 = clusters.iter().map(|live| u64::from(*live)).sum();
            (live * 100).div_ceil(u64::from(map.cluster) * clusters.len() as u64).min(100)
        };
        let cells: Vec<u64> = map.live.chunks(each).map(percent).collect();
        json!({"place": map.place, "clusters": map.live.len(), "cluster_bytes": map.cluster, "cells": cells})
    };
    json!({"volumes": store.cluster_maps().iter().map(volume).collect::<Vec<_>>()})
}

/// Those that are configured, and whether they are not asked at the moment.
fn origins(proxy: &Proxy) -> serde_json::Value {
    let origin = |origin: &LowOrigin| {
        let authority = origin.url.parse::<http::Uri>().ok().and_then(|url| url.authority().cloned());
        let paused = authority.is_some_and(|authority| proxy.silent.is_paused(&authority, Instant::now()));
        json!({"host": origin.host, "url": origin.url, "paused": paused})
    };
    proxy.config.origin.iter().map(origin).collect()
}

/// In one line, without places: anyone may ask.
fn health(failures: &[Error]) -> String {
    let why = |failure: &Error| match failure {
        Error::Daemon { daemon, .. } => format!("its {daemon} ended"),
        _ => "its device failed".into(),
    };
    match failures {
        [] => "ok".into(),
        failures => {
            let all: Vec<String> = failures.iter().map(why).collect();
            format!("degraded: the store takes no more writes: {}; /stats says more", all.join(", "))
        }
    }
}

/// The URL of a PURGE request: absolute, or made of `Host` and path.
fn wanted(request: &Request<Incoming>) -> String {
    let uri = request.uri();
    if uri.scheme().is_some() {
        return uri.to_string();
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    format!("http://{host}{uri}")
}

async fn purge(proxy: &Arc<Proxy>, asked: Result<Asked, BadAsked>) -> Reply {
    let asked = match asked {
        Ok(asked) => asked,
        Err(why) => return plain(StatusCode::BAD_REQUEST, &why.to_string()),
    };
    let [first, ..] = &asked.selectors[..] else { return plain(StatusCode::BAD_REQUEST, "nothing is selected") };
    if asked.url_keys.as_ref().is_some_and(|keys| is_ours(proxy, selector::origin(&keys[0]))) {
        let text = format!(
            "{} is the admin listener's own, of which nothing is stored: give the URL that clients ask for, as \
             /purge?url=http://host/path, or as `Host` of PURGE",
            first.text
        );
        return plain(StatusCode::BAD_REQUEST, &text);
    }
    let kind = first.kind.name();
    let texts: Vec<&str> = asked.selectors.iter().map(|selector| selector.text.as_str()).collect();
    let mut value = json!({ kind: if texts.len() == 1 { json!(texts[0]) } else { json!(texts) } });
    if asked.soft {
        value["soft"] = json!(true);
    }
    let status = match taking::purge(proxy, asked).await {
        Ok(Some(count)) => {
            value["purged"] = json!(count);
            StatusCode::OK
        }
        Ok(None) => StatusCode::OK,
        Err(why) => {
            value["error"] = json!(why.to_string());
            match why {
                NotPurged::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
                NotPurged::Preset => StatusCode::CONFLICT,
                NotPurged::Store(_) => {
                    let note = "the store could not take it out: it is not served until a restart, and may be after it";
                    value["note"] = json!(note);
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            }
        }
    };
    reply(status, "application/json", format!("{value}\n"))
}

/// Whether an origin, as keys begin with it, is the admin listener.
fn is_ours(proxy: &Proxy, origin: &[u8]) -> bool {
    let Some(host) = std::str::from_utf8(origin).ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host)
    else {
        return false;
    };
    let admin = proxy.admin;
    let Some((name, port)) = host.rsplit_once(':') else { return false };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let is_here = address.map_or(name == "localhost", |ip| {
        ip == admin.ip()
            || (ip.is_loopback() || proxy.own.iter().any(|own| own.ip() == ip)) && admin.ip().is_unspecified()
    });
    port.parse() == Ok(admin.port()) && is_here
}

/// Compares in a time that does not tell how much was right.
fn authorized(proxy: &Proxy, request: &Request<Incoming>) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((scheme, given)) = given.split_at_checked(b"Bearer ".len()) else { return false };
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return false;
    }
    let token = proxy.token.as_bytes();
    let differences = token.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_tells_what_failed_and_not_where() {
        assert_eq!(health(&[]), "ok");
        let daemon = Error::Daemon { place: "/secret/file".into(), daemon: "flusher", why: "a defect".into() };
        let device = Error::Io { place: "/secret/other".into(), source: Arc::new(std::io::Error::other("gone")) };
        let said = health(&[daemon, device]);
        assert!(said.starts_with("degraded: ") && !said.contains("secret"), "{said}");
        assert!(said.contains("its flusher ended, its device failed"), "{said}");
    }

    #[test]
    fn a_token_is_made_once_and_only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("t");
        let config = AdminConfig { listen: ([127, 0, 0, 1], 0).into(), token: None, token_file: token_file.clone() };
        let (first, place) = token(&config).unwrap();
        assert_eq!((first.len(), place), (48, Some(token_file.clone())));
        assert_eq!(token(&config).unwrap().0, first);
        assert_eq!(std::fs::metadata(&token_file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&token_file, "short").unwrap();
        assert!(token(&config).is_err());
    }
}
