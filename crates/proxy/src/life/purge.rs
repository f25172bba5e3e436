//! PURGE by a client of a network that may (`purge.clients`): of its URL on all sides, or of what has the tags that it
//! names.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use crate::{
    body::Kind,
    conn::Conn,
    proxy::Worker,
    purge::{
        asked::Asked,
        taking::{self, NotPurged},
    },
    reason::{Denied, Outcome},
    respond::{Answer, CACHE_STATUS},
    target::Target,
};

/// Whether a request is a purge by a client that may. What a front asks, it asks for others.
pub(super) fn is_one<B>(worker: &Worker, conn: &Conn, request: &Request<B>) -> bool {
    let may = || worker.proxy.config.purge.clients.iter().any(|net| net.contains(&conn.client));
    request.method().as_str() == "PURGE" && request.method() != Method::CONNECT && !conn.is_front && may()
}

/// Purges what a client asks for.
pub(super) async fn purge<B>(worker: &Arc<Worker>, conn: &Conn, request: &Request<B>) -> Result<Answer, Denied> {
    let proxy = &worker.proxy;
    let target = Target::of(request, &proxy.config, &proxy.origins, conn)?.ruled(&proxy.rules)?;
    let url = format!("http://{}{}", String::from_utf8_lossy(target.host()), target.path);
    let told = match Asked::client(&url, request.headers()) {
        Err(why) => (StatusCode::BAD_REQUEST, why.to_string()),
        Ok(asked) => match taking::purge(proxy, asked).await {
            Ok(Some(count)) => (StatusCode::OK, format!("purged {count}")),
            Ok(None) => (StatusCode::OK, "purged".into()),
            Err(why @ NotPurged::Full(_)) => (StatusCode::SERVICE_UNAVAILABLE, why.to_string()),
            Err(why @ NotPurged::Preset) => (StatusCode::CONFLICT, why.to_string()),
            Err(why @ NotPurged::Store(_)) => (StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
        },
    };
    Ok(answer(told.0, format!("{}\n", told.1)))
}

fn answer(status: StatusCode, text: String) -> Answer {
    let mut parts = Response::new(()).into_parts().0;
    parts.status = status;
    parts.headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CONTENT_LENGTH, HeaderValue::from(text.len())),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CACHE_STATUS.clone(), HeaderValue::from_static("picaflor; detail=purge")),
    ]);
    Answer::new(parts, Kind::Full(Bytes::from(text)), Outcome::Bypass).because("purge")
}
