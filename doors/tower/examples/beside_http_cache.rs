//! This layer beside http-cache's, for the table of the README.

use std::{
    convert::Infallible,
    error::Error,
    fmt::Display,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use doors_kit::beside::{Arguments, Door, run};
use http::{Request, Response, StatusCode, header::CACHE_CONTROL};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use http_cache_tower::{CACacheManager, HttpCacheLayer, RedbManager};
use picaflor_tower::{CacheLayer, picaflor::Options};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

/// What the service within answers next: a body, or that there is none.
type Next = Arc<Mutex<Option<Vec<u8>>>>;

struct Layer<S>(S, Next);

impl<S, B> Layer<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Display> + Clone,
    B: Body<Error: Display>,
{
    /// The length of the answer, if there was one.
    async fn ask(&self, number: usize) -> Result<Option<usize>, Box<dyn Error>> {
        let request = Request::get(format!("http://example.org/object/{number}")).body(Full::default())?;
        let answer = self.0.clone().oneshot(request).await.map_err(|error| error.to_string())?;
        let is_there = answer.status() == StatusCode::OK;
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok(is_there.then_some(body.to_bytes().len()))
    }
}

impl<S, B> Door for Layer<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Display> + Clone,
    B: Body<Error: Display>,
{
    async fn put(&self, number: usize, body: Vec<u8>) -> Result<(), Box<dyn Error>> {
        *self.1.lock().map_err(|_| "poisoned")? = Some(body);
        self.ask(number).await?;
        Ok(())
    }

    async fn get(&self, number: usize) -> Result<Option<usize>, Box<dyn Error>> {
        self.ask(number).await
    }
}

fn answer(next: &Next) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = next.lock().ok().and_then(|mut next| next.take());
    let mut answer = Response::new(Full::default());
    let control = if let Some(body) = body {
        *answer.body_mut() = body.into();
        "max-age=600"
    } else {
        *answer.status_mut() = StatusCode::NOT_FOUND;
        "no-store"
    };
    answer.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static(control));
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read("picaflor|picaflor-in-memory|redb|cacache")?;
    let next = Next::default();
    let within = {
        let next = Arc::clone(&next);
        service_fn(move |_: Request<Full<Bytes>>| std::future::ready(answer(&next)))
    };
    let open = |memory| CacheLayer::open(Options::new(arguments.folder.join("store")).capacity(4 << 30).memory(memory));
    let service = ServiceBuilder::new();
    match arguments.name.as_str() {
        "picaflor" => {
            let service = service.layer(open(64 << 20).await?).service(within);
            run(&Layer(service, next), &arguments).await
        }
        "picaflor-in-memory" => {
            let service = service.layer(open(1 << 30).await?).service(within);
            run(&Layer(service, next), &arguments).await
        }
        "redb" => {
            let manager = RedbManager::new(arguments.folder.join("redb")).map_err(|error| error.to_string())?;
            let service = service.layer(HttpCacheLayer::new(manager)).service(within);
            run(&Layer(service, next), &arguments).await
        }
        _ => {
            let manager = CACacheManager::new(arguments.folder.clone(), false);
            let service = service.layer(HttpCacheLayer::new(manager)).service(within);
            run(&Layer(service, next), &arguments).await
        }
    }
}
