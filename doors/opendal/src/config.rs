//! The builder, and the settings that it may come from: pairs of strings, or a URI.

use std::time::Duration;

use opendal_core::{
    Builder, Configurator, Error, ErrorKind, OperatorUri, Result,
    raw::{Service, normalize_root},
};
use picaflor::{Durability, Mode, Options, Store};
use serde::{Deserialize, Serialize};

use crate::{Backend, failed};

/// Builds the service: `Operator::new(Picaflor::new(options))`.
#[derive(Default)]
pub struct Picaflor {
    from: From,
    root: String,
}

/// Where the store comes from.
#[derive(Default)]
enum From {
    #[default]
    Nothing,
    Config(PicaflorConfig),
    Options(Box<Options>),
    Store(Store),
}

impl Picaflor {
    /// A service on the store with these options, which [`Builder::build`] opens, on this thread.
    pub fn new(options: Options) -> Self {
        Self { from: From::Options(Box::new(options)), root: String::new() }
    }

    /// The same on a store that is open; the application keeps a handle for statistics, [`Store::flush`] and
    /// [`Store::close`].
    pub fn on(store: Store) -> Self {
        Self { from: From::Store(store), root: String::new() }
    }

    /// Paths begin at this one. Default `/`.
    pub fn root(self, path: &str) -> Self {
        Self { root: path.into(), ..self }
    }
}

impl Builder for Picaflor {
    type Config = PicaflorConfig;

    fn build(self) -> Result<impl Service> {
        let (store, name) = match self.from {
            From::Nothing => return Err(Error::new(ErrorKind::ConfigInvalid, "picaflor: `path` is missing")),
            From::Store(store) => (store, "store".into()),
            From::Options(options) => open(*options)?,
            From::Config(config) => open(config.options()?)?,
        };
        Ok(Backend { store, root: normalize_root(&self.root), name })
    }
}

fn open(options: Options) -> Result<(Store, String)> {
    let name = match options.places.first() {
        Some(picaflor::Place::Path(path)) => path.display().to_string(),
        _ => "device".into(),
    };
    Ok((Store::open(options).map_err(failed)?, name))
}

/// Settings by name, for `Operator::from_iter::<Picaflor>`, `Operator::from_config`, and URIs:
/// `picaflor:///var/cache/pages.store?capacity=1073741824`.
#[derive(Default, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PicaflorConfig {
    /// The store: a file, a block device or a folder. Needed.
    pub path: Option<String>,
    /// Paths begin at this one. Default `/`.
    pub root: Option<String>,
    /// Hard cap of device bytes. Default 1 GiB for a new file.
    pub capacity: Option<u64>,
    /// Hard cap of memory in bytes. Default 256 MiB.
    pub memory: Option<u64>,
    /// `cache`, the default, evicts; `store` says that it is full. Fixed when the store is made.
    pub mode: Option<String>,
    /// Milliseconds after which a write is durable; 0: when it returns. Default 1,000.
    pub durable_within: Option<u64>,
}

impl PicaflorConfig {
    fn options(&self) -> Result<Options> {
        let invalid = |why: &str| Error::new(ErrorKind::ConfigInvalid, why);
        let path = self.path.as_ref().ok_or_else(|| invalid("picaflor: `path` is missing"))?;
        let mode = match self.mode.as_deref() {
            None | Some("cache") => Mode::Cache,
            Some("store") => Mode::Store,
            Some(other) => return Err(invalid(&format!("picaflor: mode `{other}` is neither `cache` nor `store`"))),
        };
        let mut options = Options::new(path).mode(mode);
        if let Some(bytes) = self.capacity {
            options = options.capacity(bytes);
        }
        if let Some(bytes) = self.memory {
            options = options.memory(bytes);
        }
        Ok(match self.durable_within {
            None => options,
            Some(0) => options.durability(Durability::EveryPut).delete_bounds(Duration::ZERO, 1),
            Some(within) => {
                let time = Duration::from_millis(within);
                options.durability(Durability::Bounded { time, puts: u64::MAX }).delete_bounds(time, 1000)
            }
        })
    }
}

impl Configurator for PicaflorConfig {
    type Builder = Picaflor;

    fn from_uri(uri: &OperatorUri) -> Result<Self> {
        let mut settings = uri.options().clone();
        if let Some(path) = uri.root().filter(|path| !path.is_empty()) {
            settings.insert("path".into(), format!("/{}", path.trim_start_matches('/')));
        }
        Self::from_iter(settings)
    }

    fn into_builder(self) -> Picaflor {
        Picaflor { root: self.root.clone().unwrap_or_default(), from: From::Config(self) }
    }
}
