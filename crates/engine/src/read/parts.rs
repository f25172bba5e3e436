//! The parts of a volume that all others stand on.

use std::sync::Arc;

use crate::{
    base::medium::Medium, cache::catalog::Catalog, cache::residents::Residents, log::recorder::Log,
    read::verify::Frames, shared::Shared, space::Space,
};

#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) medium: Arc<Medium>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<Log>,
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) residents: Arc<Residents>,
    pub(crate) frames: Arc<Frames>,
}
