//! Statistics for the recorder of the crate `metrics`, whichever a program has installed.

use metrics::{counter, gauge};

use crate::Stats;

impl Stats {
    /// Tells the recorder of the crate [`metrics`] all of this: counts as counters with absolute values, by the name
    /// `picaflor_store_NAME_total`; misses and refusals as `picaflor_store_misses_total` and
    /// `picaflor_store_refusals_total`, with a label `reason`; what there is now as gauges `picaflor_store_NAME`, with
    /// a label `place` where it is of one volume. All have the label `store`, which tells the stores of a program
    /// apart. To be called as often as they are to be fresh: the store itself calls no recorder.
    pub fn record(&self, store: &str) {
        let store = || store.to_owned();
        self.counts.each(|name, count| counter!(name, "store" => store()).absolute(count));
        for (reason, count) in &self.misses {
            counter!("picaflor_store_misses_total", "store" => store(), "reason" => reason.clone()).absolute(*count);
        }
        for (reason, count) in &self.refusals {
            counter!("picaflor_store_refusals_total", "store" => store(), "reason" => reason.clone()).absolute(*count);
        }
        for (name, value) in [
            ("picaflor_store_objects", self.objects),
            ("picaflor_store_index_bytes", self.index_bytes),
            ("picaflor_store_memory_objects", self.memory_objects),
            ("picaflor_store_memory_used_bytes", self.memory_used),
            ("picaflor_store_memory_limit_bytes", self.memory_limit),
            ("picaflor_store_capacity_bytes", self.capacity),
        ] {
            gauge!(name, "store" => store()).set(value as f64);
        }
        gauge!("picaflor_store_storage_age", "store" => store()).set(self.storage_age());
        for volume in &self.volumes {
            for (name, value) in [
                ("picaflor_store_clusters", u64::from(volume.clusters)),
                ("picaflor_store_clusters_free", u64::from(volume.clusters_free)),
                ("picaflor_store_clusters_aside", u64::from(volume.clusters_aside)),
                ("picaflor_store_live_bytes", volume.live_bytes),
                ("picaflor_store_room_bytes", volume.room_bytes),
                ("picaflor_store_journal_pages", volume.journal_pages.0),
                ("picaflor_store_failed", u64::from(volume.failed.is_some())),
            ] {
                gauge!(name, "store" => store(), "place" => volume.place.clone()).set(value as f64);
            }
        }
    }
}
