#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod head;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::HOST, request::Parts};
use http_body::Body;
use http_cache_semantics::{BeforeRequest, CachePolicy};
pub use picaflor;
use picaflor::{Error, Expiry, FetchError, Fetched, Object, Options, PutOptions, Store};
use tower_layer::Layer;
use tower_service::Service;

pub use crate::body::{BoxError, CacheBody};
use crate::{body::Collected, head::Head};

/// A layer that keeps responses to GET in a picaflor store, as RFC 9111 lets a shared cache, for as long as they are
/// fresh. Clones are one store.
#[derive(Clone)]
pub struct CacheLayer {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    body_max: usize,
}

impl CacheLayer {
    /// Opens a store.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub async fn open(options: Options) -> Result<Self, Error> {
        Ok(Self::new(Store::open_async(options).await?))
    }

    /// The same on a store that is open. Bodies up to 8 MiB are kept.
    pub fn new(store: Store) -> Self {
        Self { shared: Arc::new(Shared { store, body_max: 8 << 20 }) }
    }

    /// Keeps bodies up to so many bytes; one is in memory as a whole before its response goes on.
    pub fn body_max(self, bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { store: self.shared.store.clone(), body_max: bytes }) }
    }

    /// The store, for statistics, [`Store::flush`] and [`Store::close`].
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

impl<S> Layer<S> for CacheLayer {
    type Service = Cache<S>;

    fn layer(&self, inner: S) -> Cache<S> {
        Cache { inner, shared: Arc::clone(&self.shared) }
    }
}

/// The service that [`CacheLayer`] makes of another.
#[derive(Clone)]
pub struct Cache<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// A fetch that brought what is not to be kept: each caller asks for itself.
struct NotKept;

impl<S, B, R> Service<Request<B>> for Cache<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<CacheBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is called; its clone may not be.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        Box::pin(shared.answer(inner, request))
    }
}

impl Shared {
    async fn answer<S, B, R>(
        self: Arc<Self>,
        mut inner: S,
        request: Request<B>,
    ) -> Result<Response<CacheBody>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let key = key(&request);
        let (parts, body) = request.into_parts();
        let asked = parts.clone();
        let request = Request::from_parts(parts, body);
        if asked.method != Method::GET || asked.headers.contains_key("range") {
            let response = inner.call(request).await?;
            // RFC 9111, 4.4: what was changed is not as it was kept.
            if !asked.method.is_safe() && (response.status().is_success() || response.status().is_redirection()) {
                self.forget(&key).await;
            }
            return Ok(response.map(body::pass));
        }
        let object = self.store.get_async(&key).await.unwrap_or_else(|error| {
            log::warn!("picaflor: {} cannot be read: {error}", asked.uri);
            None
        });
        if let Some(object) = object {
            if let Some(response) = stored(&asked, object) {
                return Ok(response);
            }
            // Not for this request: another variant, or one that wants it anew. What comes replaces it.
            self.forget(&key).await;
        }
        let (mut own, mut request) = (None, Some(request));
        let fetch = async {
            let Some(request) = request.take() else { return Err(NotKept) };
            match inner.call(request).await {
                Ok(response) => self.keep(&asked, response).await.map_err(|response| {
                    own = Some(Ok(response));
                    NotKept
                }),
                Err(error) => {
                    own = Some(Err(error));
                    Err(NotKept)
                }
            }
        };
        let found = self.store.get_or_fetch_async(&key, fetch).await;
        if let Some(own) = own {
            return own;
        }
        let fetched_here = request.is_none();
        match found {
            // What was just fetched is for this request, whatever it says of age.
            Ok(object) if fetched_here => Ok(fetched(object)),
            Ok(object) => match (stored(&asked, object), request) {
                (Some(response), _) => Ok(response),
                (None, Some(request)) => Ok(inner.call(request).await?.map(body::pass)),
                (None, None) => Ok(broken("the store lost it")),
            },
            Err(error) => match request {
                Some(request) => Ok(inner.call(request).await?.map(body::pass)),
                None => Ok(broken(match error {
                    FetchError::Store(_) => "the store failed",
                    _ => "the fetch was abandoned",
                })),
            },
        }
    }

    /// What the store is to have of a response; or the response, if nothing.
    async fn keep<R>(&self, asked: &Parts, response: Response<R>) -> Result<Fetched, Response<CacheBody>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let policy = CachePolicy::new(asked, &response);
        let ttl = policy.time_to_live(SystemTime::now());
        let is_small = response.body().size_hint().lower() <= self.body_max as u64;
        if !policy.is_storable() || ttl.is_zero() || !is_small || response.status() == StatusCode::PARTIAL_CONTENT {
            return Err(response.map(body::pass));
        }
        let (parts, body) = response.into_parts();
        let whole = match body::collect(body, self.body_max).await {
            Collected::Whole(whole) => whole,
            Collected::Rest(body) => return Err(Response::from_parts(parts, body)),
        };
        match (Head { status: parts.status, headers: parts.headers.clone(), policy }).encode() {
            Some(metadata) => Ok(Fetched::with(whole, PutOptions::new().metadata(metadata).expiry(Expiry::After(ttl)))),
            None => Err(Response::from_parts(parts, body::whole(whole))),
        }
    }

    async fn forget(&self, key: &[u8]) {
        if let Err(error) = self.store.invalidate_async(key).await {
            log::error!("picaflor: {} may be served though it is invalid: {error}", String::from_utf8_lossy(key));
        }
    }
}

/// Host and target: what tells resources apart.
fn key<B>(request: &Request<B>) -> Vec<u8> {
    let uri = request.uri();
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let host = uri.authority().map(|authority| authority.as_str().as_bytes()).or(host).unwrap_or_default();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    [host.to_ascii_lowercase().as_slice(), target.as_bytes()].concat()
}

/// The answer that an object is, if it is one to this request.
fn stored(asked: &Parts, object: Object) -> Option<Response<CacheBody>> {
    let head = Head::decode(object.metadata())?;
    let BeforeRequest::Fresh(parts) = head.policy.before_request(asked, SystemTime::now()) else { return None };
    let mut response = Response::from_parts(parts, body::stored(&object));
    response.headers_mut().insert("cache-status", HeaderValue::from_static("picaflor; hit"));
    Some(response)
}

/// The answer that was just fetched.
fn fetched(object: Object) -> Response<CacheBody> {
    let Some(head) = Head::decode(object.metadata()) else { return broken("the store lost it") };
    let mut response = Response::new(body::stored(&object));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response.headers_mut().insert("cache-status", HeaderValue::from_static("picaflor; fwd=miss; stored"));
    response
}

fn broken(why: &'static str) -> Response<CacheBody> {
    let mut response = Response::new(body::whole(Bytes::from(format!("picaflor: {why}; ask again\n"))));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
