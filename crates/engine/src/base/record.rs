//! Statistics for the recorder of the crate `metrics`, whichever a program has installed.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::Stats;

impl Stats {
    /// Tells the recorder of the crate [`metrics`] all of this: counts as counters with absolute values, by the name
    /// `picaflor_store_NAME_total`; misses and refusals as `picaflor_store_misses_total` and
    /// `picaflor_store_refusals_total`, with a label `reason`; what there is now as gauges `picaflor_store_NAME`, with
    /// a label `place` where it is of one volume. All have the label `store`, which tells the stores of a program
    /// apart. To be called as often as they are to be fresh: the store itself calls no recorder.
    pub fn record(&self, store: &str) {
        let store = || store.to_owned();
        self.counts.each(|name, help, count| {
            describe_counter!(name, help);
            counter!(name, "store" => store()).absolute(count);
        });
        for (name, help, counts) in [
            ("picaflor_store_misses_total", "Gets that found nothing.", &self.misses),
            ("picaflor_store_refusals_total", "Puts that were refused.", &self.refusals),
        ] {
            describe_counter!(name, help);
            for (reason, count) in counts {
                counter!(name, "store" => store(), "reason" => reason.clone()).absolute(*count);
            }
        }
        let age = "Bytes that left since the opening, over bytes that live.";
        for (name, help, value) in [
            ("picaflor_store_objects", "Entries in the index.", self.objects as f64),
            ("picaflor_store_index_bytes", "Bytes of the index.", self.index_bytes as f64),
            ("picaflor_store_memory_objects", "Objects held in the memory tier.", self.memory_objects as f64),
            ("picaflor_store_memory_used_bytes", "Bytes of memory in use.", self.memory_used as f64),
            ("picaflor_store_memory_limit_bytes", "Bytes of memory allowed.", self.memory_limit as f64),
            ("picaflor_store_capacity_bytes", "Bytes of the devices that may be used.", self.capacity as f64),
            ("picaflor_store_storage_age", age, self.storage_age()),
        ] {
            describe_gauge!(name, help);
            gauge!(name, "store" => store()).set(value);
        }
        for volume in &self.volumes {
            for (name, help, value) in [
                ("picaflor_store_clusters", "Clusters in all.", u64::from(volume.clusters)),
                ("picaflor_store_clusters_free", "Clusters that can be granted.", u64::from(volume.clusters_free)),
                ("picaflor_store_clusters_aside", "Clusters that cannot be read.", u64::from(volume.clusters_aside)),
                ("picaflor_store_live_bytes", "Bytes of live objects, to within an eighth.", volume.live_bytes),
                ("picaflor_store_room_bytes", "Bytes that objects can take.", volume.room_bytes),
                ("picaflor_store_journal_pages", "Pages of the journal in use.", volume.journal_pages.0),
                ("picaflor_store_failed", "1 if it stopped writing.", u64::from(volume.failed.is_some())),
            ] {
                describe_gauge!(name, help);
                gauge!(name, "store" => store(), "place" => volume.place.clone()).set(value as f64);
            }
        }
    }
}
