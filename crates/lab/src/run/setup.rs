//! What a run is a function of, and how its errors are named.

use picaflor::Error as StoreError;

use super::{hints::Hints, policies::Policies, workload::Workload};
use crate::{Error, method::Levels};

/// How requests become operations of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// Through these levels.
    Method(Levels),
    /// As a cache would be asked.
    Cache,
    /// The same, counted by page view after so large a share of the requests.
    Pages(f64),
}

/// Everything that a run is a function of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Row of the engine's table.
    pub preset: String,
    /// `memory`, the name of a device profile, or a folder of this machine, with a slash in its name. There a run is on
    /// the machine's time, and no function of its setup.
    pub device: String,
    /// Name of a file-system model between the store and a simulated device, if there is one.
    pub file_system: Option<String>,
    /// Device bytes that the store may use.
    pub capacity: u64,
    /// Bytes of memory that the store may use.
    pub memory: u64,
    /// Bytes of a cluster, if other than the engine's default.
    pub cluster: Option<u32>,
    /// Bytes of the pages that groups' clusters are divided into. Of several, a group gets the least in which half of
    /// the views of its site fit. None: a cluster is a page.
    pub pages: Vec<u32>,
    /// How it lays objects, where that is not the preset's way.
    pub policies: Policies,
    /// Open buffers, if other than the engine's default.
    pub buffers: Option<usize>,
    /// Longest object that shares an area, in blocks, if other than the engine's default.
    pub threshold: Option<u32>,
    /// Whether longer ones have a file each, beside the store's, instead of being alone in it: the preset's long files.
    pub files_above: bool,
    /// Whether each get is waited for where the preset would gather several.
    pub wait: bool,
    /// What is replayed.
    pub workload: Workload,
    /// How.
    pub replay: Replay,
    /// What the store is told of an object's company.
    pub hints: Hints,
    /// Bytes that a file-system model has for what it keeps in memory, if other than its own.
    pub page_cache: Option<u64>,
    /// Requests after which it ends.
    pub gets: u64,
    /// Operations of the store after which it ends.
    pub operations: Option<u64>,
    /// Of the workload, the store and the device.
    pub seed: u64,
}

/// An error of the store, with the name of the run.
pub(super) fn failed(setup: &Setup) -> impl Fn(StoreError) -> Error + use<'_> {
    move |source| Error::Store { name: name_of(setup), source }
}

pub(super) fn name_of(setup: &Setup) -> String {
    format!("{} on {}", setup.preset, setup.device)
}
