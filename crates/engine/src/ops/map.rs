//! How full the clusters of each device are, for a picture of the store.

use picaflor_format::frame::GRAIN;

use crate::handle::Store;

/// The clusters of one device, where objects lie in clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterMap {
    /// Path or device.
    pub place: String,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// By cluster, in the order of addresses: bytes of objects in it that are alive. 0 where it is free, or has part of
    /// a checkpoint.
    pub live: Vec<u32>,
}

impl Store {
    /// The clusters of each device, but where objects lie in places of their own. Reads counters in memory, and waits,
    /// as [`Store::stats`], for the opening to end.
    pub fn cluster_maps(&self) -> Vec<ClusterMap> {
        let of_clusters = self.recovered_volumes().iter().filter(|volume| volume.catalog.places.is_none());
        let maps = of_clusters.map(|volume| ClusterMap {
            place: volume.medium.place.clone(),
            cluster: volume.medium.map().cluster,
            live: (0..volume.space.count()).map(|id| volume.space.live.grains(id) * GRAIN as u32).collect(),
        });
        maps.collect()
    }
}
