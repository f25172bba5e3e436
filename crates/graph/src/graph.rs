//! The graph: its tables, groups and image, from opening to closing.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use picaflor_device::Device;
use picaflor_table::{
    blocks::{BlockOptions, BlockStats},
    htod::{Durable, HashTables, HtodOptions, Table},
};

use crate::{
    base::{GraphError, GraphOptions, Result},
    groups::{Groups, INDEX_PART},
    image::Image,
};

/// Where the settings say that a graph is being built.
pub(crate) const BUILDING: &[u8] = b"building";

/// A dependence graph. Readers do not wait for each other.
pub struct Graph {
    pub(crate) tables: HashTables,
    pub(crate) groups: Groups,
    pub(crate) expiries: Table,
    pub(crate) image: Mutex<Image>,
    /// Held shared by readers, alone by what changes the graph.
    pub(crate) turn: RwLock<()>,
}

/// A node, as [`Graph::node`] tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Whether it is a page.
    pub page: bool,
    /// When it is to be rebuilt at the latest, in seconds since 1970.
    pub expiry: Option<u64>,
    /// What it is built from.
    pub dependencies: Vec<String>,
}

impl Graph {
    /// Opens the graph on a device, or makes one where it is blank.
    ///
    /// # Errors
    /// As [`HashTables::open`]; [`GraphError::Damaged`].
    pub fn open(device: Arc<dyn Device>, options: &GraphOptions) -> Result<Self> {
        let (cache, durable) = (options.memory / INDEX_PART, Durable::AtCommit);
        let htod = HtodOptions { cache, durable, seed: options.seed, ..HtodOptions::default() };
        let (tables, _) = HashTables::open(device, BlockOptions::default(), htod)?;
        Self::refuse_half_built(&tables.table("settings")?)?;
        let groups = Groups::open(&tables, options)?;
        let expiries = tables.table("expiries")?;
        let image = Mutex::new(Image::open(&tables, &groups)?);
        Ok(Self { tables, groups, expiries, image, turn: RwLock::new(()) })
    }

    /// Closes it, so that the next opening need not look, and finds at hand what is in memory now. Without this it
    /// opens as after a crash.
    ///
    /// # Errors
    /// [`GraphError::Store`].
    pub fn close(self) -> Result<()> {
        self.image.lock().write(&self.tables, &self.groups)?;
        Ok(self.tables.close()?)
    }

    /// Frees what the last crash left behind; see [`HashTables::mend`]. Nothing waits for it.
    ///
    /// # Errors
    /// [`GraphError::Store`].
    pub fn mend(&self) -> Result<u64> {
        Ok(self.tables.mend()?.freed)
    }

    /// How full the device is.
    ///
    /// # Errors
    /// [`GraphError::Store`].
    pub fn space(&self) -> Result<BlockStats> {
        Ok(self.tables.space()?)
    }

    /// Bytes of records in memory.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.groups.cached_bytes()
    }

    /// Refuses what a build left that was cut short.
    pub(crate) fn refuse_half_built(settings: &Table) -> Result<()> {
        if settings.contains(BUILDING)? { Err(GraphError::HalfBuilt) } else { Ok(()) }
    }
}
