//! The recorder of the crate `metrics` is told what the statistics say.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{collections::HashMap, sync::Arc};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use picaflor::{Options, Store, device::MemoryDevice};

#[test]
fn a_recorder_is_told_counts_reasons_and_sizes() {
    let options = Options::on(Arc::new(MemoryDevice::new(32 << 20))).memory(8 << 20);
    let store = Store::open(options).unwrap();
    for i in 0..10u32 {
        store.put(&i.to_le_bytes(), b"body").unwrap();
        assert!(store.get(&i.to_le_bytes()).unwrap().is_some());
    }
    assert!(store.get(b"absent").unwrap().is_none());
    let recorder = DebuggingRecorder::new();
    let told = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || store.stats().record("pages"));
    let mut found = HashMap::new();
    for (key, _, _, value) in told.snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        assert!(labels.contains(&("store".into(), "pages".into())), "{key:?}");
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(gauge) => gauge.into_inner(),
            DebugValue::Histogram(_) => panic!("{key:?}"),
        };
        let reason = labels.iter().find(|(name, _)| name == "reason").map(|(_, reason)| format!(" {reason}"));
        found.insert(key.key().name().to_owned() + &reason.unwrap_or_default(), value);
    }
    let value = |name: &str| *found.get(name).unwrap_or_else(|| panic!("{name} is not among {found:?}"));
    assert_eq!((value("picaflor_store_puts_total"), value("picaflor_store_gets_total")), (10.0, 11.0));
    assert_eq!((value("picaflor_store_misses_total absent"), value("picaflor_store_objects")), (1.0, 10.0));
    assert_eq!(value("picaflor_store_refusals_total already expired"), 0.0);
    assert_eq!((value("picaflor_store_capacity_bytes"), value("picaflor_store_failed")), ((32 << 20) as f64, 0.0));
    assert!(value("picaflor_store_clusters") > value("picaflor_store_clusters_free") / 2.0);
    store.close().unwrap();
}
