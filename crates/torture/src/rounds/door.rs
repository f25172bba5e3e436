//! One door to a store for threads and for tasks: the calls of the one, or the futures of the other.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use picaflor::{Object, Put, PutOptions, Result, Store};

/// How a store is called.
#[derive(Clone)]
pub(super) enum Door {
    /// By calls that return when it is done.
    Thread(Store),
    /// By futures.
    Task(Store),
}

impl Door {
    pub(super) async fn put(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        match self {
            Self::Thread(store) => store.put_with(key, body, options),
            Self::Task(store) => store.put_with_async(key, body, options).await,
        }
    }

    pub(super) async fn put_many(&self, puts: &[(Vec<u8>, Vec<u8>, PutOptions)]) -> Result<()> {
        let puts: Vec<_> = puts.iter().map(|(key, body, options)| Put::with(key, body, options)).collect();
        match self {
            Self::Thread(store) => store.put_many(&puts),
            Self::Task(store) => store.put_many_async(&puts).await,
        }
    }

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Object>> {
        match self {
            Self::Thread(store) => store.get(key),
            Self::Task(store) => store.get_async(key).await,
        }
    }

    /// The whole body of an object.
    pub(super) async fn body(&self, object: &Object) -> Result<Bytes> {
        if let Self::Thread(_) = self {
            return object.body();
        }
        object.body_async().await
    }

    pub(super) async fn delete(&self, key: &[u8]) -> Result<()> {
        match self {
            Self::Thread(store) => store.delete(key).map(drop),
            Self::Task(store) => store.delete_async(key).await.map(drop),
        }
    }

    pub(super) async fn invalidate(&self, key: &[u8]) -> Result<()> {
        match self {
            Self::Thread(store) => store.invalidate(key),
            Self::Task(store) => store.invalidate_async(key).await,
        }
    }

    pub(super) async fn flush(&self) -> Result<()> {
        match self {
            Self::Thread(store) => store.flush(),
            Self::Task(store) => store.flush_async().await,
        }
    }

    pub(super) fn store(&self) -> &Store {
        match self {
            Self::Thread(store) | Self::Task(store) => store,
        }
    }

    /// Lets other tasks run.
    pub(super) async fn rest(&self) {
        if let Self::Task(_) = self {
            tokio::task::yield_now().await;
        }
    }
}

/// What a future through [`Door::Thread`] comes to, which never waits to be woken.
pub(super) fn at_once<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
}
