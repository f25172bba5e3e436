//! Get or fetch on tokio: of many tasks that miss one key, one fetches; the error of a fetch is the program's own; a
//! long body goes into the store piece by piece.
//!
//!     cargo run --example fetch -- cache.store

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use picaflor::{FetchError, Fetched, Options, PutOptions, Store};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    task::JoinSet,
};

/// What can go wrong behind the cache.
#[derive(Debug, thiserror::Error)]
enum OriginError {
    #[error("status {0}")]
    Status(u16),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] picaflor::Error),
}

static ASKED: AtomicU64 = AtomicU64::new(0);

/// An origin that has one long film, and pages of its site.
async fn origin(path: &str) -> Result<(Option<u64>, Box<dyn AsyncRead + Send + Unpin>), OriginError> {
    ASKED.fetch_add(1, Relaxed);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    match path {
        "/film" => Ok((Some(8 << 20), Box::new(tokio::io::repeat(7).take(8 << 20)))),
        "/gone" => Err(OriginError::Status(404)),
        page => Ok((None, Box::new(std::io::Cursor::new(format!("<h1>{page}</h1>"))))),
    }
}

/// Asks the origin, and hands over what it says: at once, or while it comes.
async fn fetch(store: Store, path: String) -> Result<Fetched, OriginError> {
    let (len, mut from) = origin(&path).await?;
    if len.is_none() {
        let mut body = Vec::new();
        from.read_to_end(&mut body).await?;
        return Ok(Fetched::with(body, PutOptions::new().metadata("text/html")));
    }
    let mut stream = store.put_stream(path.as_bytes(), len, PutOptions::new().metadata("video/mp4"))?;
    loop {
        let mut piece = Vec::with_capacity(64 << 10);
        if from.read_buf(&mut piece).await? == 0 {
            // Not finished here: the call that fetches does, and then has the object for all that wait.
            return Ok(Fetched::stream(stream));
        }
        stream.write_async(piece.into()).await?;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "cache.store".into());
    let store = Store::open_async(Options::new(path).capacity(64 << 20).memory(16 << 20)).await?;
    for path in ["/news", "/film", "/gone"] {
        let before = ASKED.load(Relaxed);
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let store = store.clone();
            tasks.spawn(
                async move { store.get_or_fetch_async(path.as_bytes(), fetch(store.clone(), path.into())).await },
            );
        }
        let answers = tasks.join_all().await;
        let mut bytes = 0;
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(object) => bytes += object.len(),
                Err(FetchError::Fetch(error)) => failed = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let said = failed.map_or_else(|| format!("{bytes} bytes"), |error| error.to_string());
        println!("{path}: {said}, origin asked {} times", ASKED.load(Relaxed) - before);
    }
    store.close_async().await?;
    Ok(())
}
