//! The module `picaflor._picaflor`: a store for Python on picaflor's public interface. `python/picaflor/__init__.pyi`
//! describes it to its users.
//!
//! Invariants: the interpreter's lock is not held while a call may wait; a body is handed out as a memoryview on the
//! store's own bytes, which the view pins.

mod error;
mod view;

use std::{path::PathBuf, time::Duration};

use parking_lot::RwLock;
use picaflor::{Durability, Expiry, Mode, Options, PutOptions};
use pyo3::{
    buffer::PyBuffer,
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyBytes, PyDict, PyMemoryView},
};

use crate::{error::failed, view::Body};

/// What a key may be: text goes in as UTF-8.
#[derive(FromPyObject)]
enum Key {
    Text(String),
    Bytes(PyBackedBytes),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What a body may be: anything with a buffer of bytes.
#[derive(FromPyObject)]
enum Buffer {
    Bytes(PyBackedBytes),
    Other(PyBuffer<u8>),
}

impl Buffer {
    /// Its bytes, where no Python code changes them any more.
    fn pinned(self, py: Python<'_>) -> PyResult<Pinned> {
        Ok(match self {
            Self::Bytes(bytes) => Pinned::Bytes(bytes),
            Self::Other(buffer) => Pinned::Copy(buffer.to_vec(py)?),
        })
    }
}

enum Pinned {
    Bytes(PyBackedBytes),
    Copy(Vec<u8>),
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// What a get returns: body, metadata, and when it expires. It pins its bytes.
#[pyclass(frozen)]
struct Object(picaflor::Object);

#[pymethods]
impl Object {
    /// The whole body, without a copy if it fits in a cluster.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        view::memory(py, py.detach(|| self.0.body()).map_err(failed)?)
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.key())
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.metadata())
    }

    /// Seconds since the Unix epoch, or None.
    #[getter]
    fn expires(&self) -> Option<f64> {
        self.0.expires().map(|millis| millis as f64 / 1000.0)
    }

    #[getter]
    fn group(&self) -> u32 {
        self.0.group()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __repr__(&self) -> String {
        format!("<picaflor.Object {:?}, {} bytes>", String::from_utf8_lossy(self.0.key()), self.0.len())
    }
}

/// A store of objects in one file, which one process has open at a time; any thread may call it. Keys are bytes or
/// text, bodies anything with a buffer of bytes. Each call that may wait has a twin named `_async`, for which no thread
/// waits.
#[pyclass(frozen)]
struct Store {
    /// None once it is closed.
    open: RwLock<Option<picaflor::Store>>,
}

impl Store {
    fn store(&self) -> PyResult<picaflor::Store> {
        self.open.read().clone().ok_or_else(|| failed(picaflor::Error::Closed))
    }
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name} is {value}: it must be a number of seconds, 0 or more")))
}

fn put_options(metadata: &[u8], ttl: Option<f64>, group: u32, neighbour: Option<&Key>) -> PyResult<PutOptions> {
    let expiry = ttl.map(|ttl| seconds("ttl", ttl).map(Expiry::After)).transpose()?.unwrap_or_default();
    let options = PutOptions::new().metadata(metadata.to_vec()).expiry(expiry).group(group);
    Ok(options.maybe_neighbour(neighbour.map(|key| key.as_ref().to_vec().into())))
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (path, *, capacity = 0, memory = 64 << 20, mode = "cache", durable_within = Some(1.0),
        ttl = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        capacity: u64,
        memory: u64,
        mode: &str,
        durable_within: Option<f64>,
        ttl: Option<f64>,
    ) -> PyResult<Self> {
        let mode = match mode {
            "cache" => Mode::Cache,
            "store" => Mode::Store,
            _ => return Err(PyValueError::new_err(format!("mode is '{mode}': it must be 'cache' or 'store'"))),
        };
        let durability = match durable_within {
            None => Durability::None,
            Some(0.0) => Durability::EveryPut,
            Some(time) => Durability::Bounded { time: seconds("durable_within", time)?, puts: u64::MAX },
        };
        let mut options = Options::new(path).capacity(capacity).memory(memory).mode(mode).durability(durability);
        if let Some(ttl) = ttl {
            options = options.default_ttl(seconds("ttl", ttl)?);
        }
        let store = py.detach(|| picaflor::Store::open(options)).map_err(failed)?;
        Ok(Self { open: RwLock::new(Some(store)) })
    }

    /// Puts an object, replacing the one before.
    #[pyo3(signature = (key, body, *, metadata = None, ttl = None, group = 0, neighbour = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn put(
        &self,
        py: Python<'_>,
        key: Key,
        body: Buffer,
        metadata: Option<PyBackedBytes>,
        ttl: Option<f64>,
        group: u32,
        neighbour: Option<Key>,
    ) -> PyResult<()> {
        let options = put_options(metadata.as_deref().unwrap_or_default(), ttl, group, neighbour.as_ref())?;
        let (store, body) = (self.store()?, body.pinned(py)?);
        py.detach(|| store.put_with(key.as_ref(), body.as_ref(), &options)).map_err(failed)
    }

    /// As put, for a task.
    #[pyo3(signature = (key, body, *, metadata = None, ttl = None, group = 0, neighbour = None))]
    async fn put_async(
        &self,
        key: Key,
        body: Buffer,
        metadata: Option<PyBackedBytes>,
        ttl: Option<f64>,
        group: u32,
        neighbour: Option<Key>,
    ) -> PyResult<()> {
        let options = put_options(metadata.as_deref().unwrap_or_default(), ttl, group, neighbour.as_ref())?;
        let body = Python::attach(|py| body.pinned(py))?;
        self.store()?.put_with_async(key.as_ref(), body.as_ref(), &options).await.map_err(failed)
    }

    /// Body, metadata and the rest; None if there is none.
    fn get_object(&self, py: Python<'_>, key: Key) -> PyResult<Option<Object>> {
        let store = self.store()?;
        Ok(py.detach(|| store.get(key.as_ref())).map_err(failed)?.map(Object))
    }

    /// As get_object, for a task.
    async fn get_object_async(&self, key: Key) -> PyResult<Option<Object>> {
        Ok(self.store()?.get_async(key.as_ref()).await.map_err(failed)?.map(Object))
    }

    /// The body as a memoryview on the store's own bytes, which it pins; None if there is none.
    fn get<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        self.get_object(py, key)?.map(|object| object.body(py)).transpose()
    }

    /// As get, for a task.
    async fn get_async(&self, key: Key) -> PyResult<Option<Py<PyMemoryView>>> {
        let Some(object) = self.store()?.get_async(key.as_ref()).await.map_err(failed)? else { return Ok(None) };
        let body = object.body_async().await.map_err(failed)?;
        Python::attach(|py| Ok(Some(view::memory(py, body)?.unbind())))
    }

    /// Deletes an object and says whether it was there.
    fn delete(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        let store = self.store()?;
        py.detach(|| store.delete(key.as_ref())).map_err(failed)
    }

    /// As delete, for a task.
    async fn delete_async(&self, key: Key) -> PyResult<bool> {
        self.store()?.delete_async(key.as_ref()).await.map_err(failed)
    }

    /// Returns when everything put and deleted before is durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store()?;
        py.detach(|| store.flush()).map_err(failed)
    }

    /// As flush, for a task.
    async fn flush_async(&self) -> PyResult<()> {
        self.store()?.flush_async().await.map_err(failed)
    }

    /// Makes everything durable and lets others open the file. Views stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(store) = self.open.write().take() else { return Ok(()) };
        py.detach(|| store.close()).map_err(failed)
    }

    /// As close, for a task.
    async fn close_async(&self) -> PyResult<()> {
        let open = self.open.write().take();
        match open {
            Some(store) => store.close_async().await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Whether there is an object with this key, for a task; `key in store` for others.
    async fn contains_async(&self, key: Key) -> PyResult<bool> {
        self.store()?.contains_async(key.as_ref()).await.map_err(failed)
    }

    /// As keys, for a task.
    async fn keys_async(&self) -> PyResult<Vec<Py<PyBytes>>> {
        let (mut keys, mut all) = (self.store()?.keys(), Vec::new());
        while let Some(entry) = keys.next_async().await {
            all.push(entry.key);
        }
        Ok(Python::attach(|py| all.iter().map(|key| PyBytes::new(py, key).unbind()).collect()))
    }

    /// All keys, in the order in which they lie on the device.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<Py<PyBytes>>> {
        let store = self.store()?;
        let keys: Vec<_> = py.detach(|| store.keys().map(|entry| entry.key).collect());
        Ok(keys.iter().map(|key| PyBytes::new(py, key).unbind()).collect())
    }

    /// What it holds, and why gets missed and puts were refused.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.store()?.stats();
        let all = PyDict::new(py);
        all.set_item("objects", stats.objects)?;
        all.set_item("capacity", stats.capacity)?;
        all.set_item("memory_limit", stats.memory_limit)?;
        all.set_item("memory_used", stats.memory_used)?;
        all.set_item("index_bytes", stats.index_bytes)?;
        for (name, counts) in [("misses", &stats.misses), ("refusals", &stats.refusals)] {
            let named = PyDict::new(py);
            counts.iter().try_for_each(|(name, count)| named.set_item(name.to_string(), *count))?;
            all.set_item(name, named)?;
        }
        Ok(all)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyMemoryView>> {
        let name = String::from_utf8_lossy(key.as_ref()).into_owned();
        self.get(py, key)?.ok_or_else(|| PyKeyError::new_err(name))
    }

    fn __setitem__(&self, py: Python<'_>, key: Key, body: Buffer) -> PyResult<()> {
        self.put(py, key, body, None, None, 0, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        let name = String::from_utf8_lossy(key.as_ref()).into_owned();
        if self.delete(py, key)? { Ok(()) } else { Err(PyKeyError::new_err(name)) }
    }

    fn __contains__(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        let store = self.store()?;
        py.detach(|| store.contains(key.as_ref())).map_err(failed)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.store()?.stats().objects as usize)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    async fn __aenter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    async fn __aexit__(&self, _error: Py<pyo3::types::PyTuple>) -> PyResult<()> {
        self.close_async().await
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

#[pymodule]
fn _picaflor(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Store>()?;
    module.add_class::<Object>()?;
    module.add_class::<Body>()?;
    let py = module.py();
    module.add("Error", py.get_type::<error::Error>())?;
    module.add("Full", py.get_type::<error::Full>())?;
    module.add("Refused", py.get_type::<error::Refused>())
}
