//! What to rebuild, and in which order, when something changes: a persistent dependence graph of fragments and pages.
//!
//! The object dependence graph of Iyengar, Jin and Challenger 2003, section 4, on hash tables on disk
//! ([`picaflor_table::htod`]). A node is a fragment or a page, and has the names of what it is built from;
//! [`Graph::publish`] answers with everything that is built from what changed, each after what it is built from.
//!
//! Nodes lie in groups of about sixteen, one entry of a table each, so that the grain of the device fits them: the
//! paper lost three quarters of its edge files to a grain of one edge. The dependents of a node lie in a group
//! beside those of its neighbours while they are few, and in chunks of their own when they are many.
//!
//! Invariants: what a node is built from stands in its own record, written at once: that is the graph. Dependents are
//! found through sets that are written, and durable, before the record that they come from; one that a crash left
//! without its record is not believed. The graph has no cycle, at no moment that a crash could find.
#![forbid(unsafe_code)]

mod build;
mod change;
mod groups;
mod image;
mod order;
mod publish;
mod spill;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use picaflor_device::Device;
use picaflor_table::{
    blocks::{BlockOptions, BlockStats},
    htod::{Durable, HashTables, HtodOptions, Table},
};

pub use build::Built;
pub use change::Change;

use self::{
    groups::{Groups, INDEX_PART},
    image::Image,
};

/// How a graph is opened.
#[derive(Debug, Clone)]
pub struct GraphOptions {
    /// Bytes of records and of index pages in memory, three quarters and one. Default 64 MiB.
    pub memory: usize,
    /// About how many nodes there will be; of a graph that is made by this opening. With many more, calls take longer.
    /// Default 100,000.
    pub nodes: u32,
    /// Seed of the hash of its tables, of a graph that is made by this opening, for runs that are to repeat. Default
    /// random.
    pub seed: Option<u64>,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { memory: 64 << 20, nodes: 100_000, seed: None }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The hash tables failed.
    #[error(transparent)]
    Store(#[from] picaflor_table::Error),
    /// These would depend on each other; nothing was changed.
    #[error("a cycle: {}", .0.join(" is built from "))]
    Cycle(Vec<String>),
    /// A node is to be built from something that is not in the graph.
    #[error("{0} is not in the graph; add it first, or earlier in the same call")]
    Unknown(String),
    /// A record is not what was written.
    #[error("record {at} of the graph is damaged: {why}; make the graph again from its source")]
    Damaged {
        /// Which one.
        at: String,
        /// What does not fit.
        why: String,
    },
    /// A graph was to be built where there is one.
    #[error("there is a graph already; build on a blank device, or change what is there")]
    NotBlank,
    /// A build was cut short.
    #[error("this graph was not built to its end; make the device blank and build it again")]
    HalfBuilt,
    /// A build takes each node once.
    #[error("{0} comes twice, or is to be removed; a graph is built from each node once")]
    Order(String),
    /// What is laid aside during a build could not be.
    #[error("laying aside what does not fit in memory: {0}")]
    Spill(std::io::Error),
    /// No more nodes than 2^32.
    #[error("the graph has all the nodes it can have")]
    Full,
}

/// The result of the graph's calls.
pub type Result<T, E = GraphError> = std::result::Result<T, E>;

/// A dependence graph. Readers do not wait for each other.
pub struct Graph {
    tables: HashTables,
    groups: Groups,
    expiries: Table,
    image: Mutex<Image>,
    /// Held shared by readers, alone by who changes the graph.
    turn: RwLock<()>,
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
}
