//! A disk cache in an axum service: of many requests that miss one page at once, one asks the origin, and all get what
//! it brings. Stopped and started again, the service has the page on disk.
//!
//!     cargo run --example service -- cache.store
//!
//! It asks itself, prints what came of it, and stops. Run it twice: the second run asks no origin.

use std::{
    error::Error,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use picaflor::{Expiry, Fetched, Options, PutOptions, Store};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

const READERS: usize = 32;

#[derive(Clone)]
struct Service {
    store: Store,
    asked: Arc<AtomicU64>,
}

impl Service {
    /// What is behind the cache: slow, and better not asked twice.
    async fn origin(&self, path: &str) -> Result<Fetched, String> {
        self.asked.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let body = format!("<h1>{path}</h1>\n");
        // Metadata is for whatever goes with a body: here its type.
        let (metadata, expiry) = ("text/html", Expiry::After(Duration::from_secs(3600)));
        Ok(Fetched::with(body, PutOptions::new().metadata(metadata).expiry(expiry)))
    }
}

/// Answers from the store, which asks the origin where it has to.
async fn page(State(service): State<Service>, uri: Uri) -> Result<impl IntoResponse, (StatusCode, String)> {
    let failed = |error: &dyn Display| (StatusCode::BAD_GATEWAY, error.to_string());
    let (key, fetch) = (uri.path().as_bytes(), service.origin(uri.path()));
    let object = service.store.get_or_fetch_async(key, fetch).await.map_err(|error| failed(&error))?;
    let kind = String::from_utf8_lossy(object.metadata()).into_owned();
    // In one piece, not copied unless it is larger than a cluster: `Object::chunks` reads such a one piece by piece.
    let body = object.body_async().await.map_err(|error| failed(&error))?;
    Ok(([(CONTENT_TYPE, kind)], body))
}

/// A client: asks for a page and returns the answer, head and body.
async fn ask(address: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "cache.store".into());
    let store = Store::open_async(Options::new(path).capacity(64 << 20).memory(16 << 20)).await?;
    let service = Service { store: store.clone(), asked: Arc::default() };
    let router = Router::new().route("/{*page}", get(page)).with_state(service.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
    let server = tokio::spawn(server.into_future());

    let mut readers = JoinSet::new();
    (0..READERS).for_each(|_| drop(readers.spawn(ask(address, "/news"))));
    let answers = readers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let good = answers.iter().filter(|answer| answer.contains("text/html") && answer.ends_with("<h1>/news</h1>\n"));
    println!("{} answers, origin asked {} times", good.count(), service.asked.load(Relaxed));

    drop(stop);
    server.await??;
    store.close_async().await?;
    Ok(())
}
