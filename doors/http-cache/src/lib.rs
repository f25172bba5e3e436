#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use async_trait::async_trait;
use bytes::Bytes;
use http_cache::{BoxError, CacheManager, HttpResponse};
use http_cache_semantics::CachePolicy;
pub use picaflor;
use picaflor::{Error, Options, PutOptions, Store};
use serde::{Deserialize, Serialize};

/// A cache manager on a picaflor store. Clones are one store.
///
/// What the store cannot give is a miss, and what it refuses is not kept: neither fails a request. Both are logged, and
/// the store counts the reasons. Only a delete that fails is an error, for what was to be invalid would be served.
#[derive(Clone)]
pub struct PicaflorManager {
    store: Store,
}

/// What lies beside a body.
#[derive(Serialize, Deserialize)]
struct Head {
    /// With no body.
    response: HttpResponse,
    policy: CachePolicy,
}

impl PicaflorManager {
    /// Opens a store.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub async fn open(options: Options) -> Result<Self, Error> {
        Ok(Self::new(Store::open_async(options).await?))
    }

    /// The same on a store that is open.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// The store, for statistics, [`Store::flush`] and [`Store::close`].
    pub fn store(&self) -> &Store {
        &self.store
    }

    async fn read(&self, key: &str) -> Result<Option<(HttpResponse, CachePolicy)>, BoxError> {
        let Some(object) = self.store.get_async(key.as_bytes()).await? else { return Ok(None) };
        let Head { mut response, policy } = rmp_serde::from_slice(object.metadata())?;
        response.body = object.body_async().await?.into();
        Ok(Some((response, policy)))
    }

    async fn write(&self, key: &str, response: HttpResponse, policy: CachePolicy) -> (HttpResponse, Option<BoxError>) {
        let mut head = Head { response, policy };
        let body = Bytes::from(std::mem::take(&mut head.response.body));
        let error = match rmp_serde::to_vec_named(&head) {
            Ok(metadata) => {
                let options = PutOptions::new().metadata(metadata);
                self.store.put_with_async(key.as_bytes(), &body, &options).await.err().map(BoxError::from)
            }
            Err(error) => Some(error.into()),
        };
        head.response.body = body.into();
        (head.response, error)
    }
}

#[async_trait]
impl CacheManager for PicaflorManager {
    async fn get(&self, cache_key: &str) -> http_cache::Result<Option<(HttpResponse, CachePolicy)>> {
        Ok(self.read(cache_key).await.unwrap_or_else(|error| {
            log::warn!("picaflor: {cache_key} cannot be read: {error}");
            None
        }))
    }

    async fn put(
        &self,
        cache_key: String,
        response: HttpResponse,
        policy: CachePolicy,
    ) -> http_cache::Result<HttpResponse> {
        let (response, error) = self.write(&cache_key, response, policy).await;
        if let Some(error) = error {
            log::warn!("picaflor: {cache_key} is not kept: {error}");
            // What it replaces is not to be served in its stead.
            self.delete(&cache_key).await.unwrap_or_else(|error| log::warn!("picaflor: {cache_key}: {error}"));
        }
        Ok(response)
    }

    async fn delete(&self, cache_key: &str) -> http_cache::Result<()> {
        self.store.invalidate_async(cache_key.as_bytes()).await?;
        Ok(())
    }
}
