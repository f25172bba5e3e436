//! What was judged in a soak, and what was excused, each by its name.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// What an answer was judged as.
#[derive(Clone, Copy)]
pub(super) enum Class {
    /// Requests made.
    Asked,
    /// Answers out of the store.
    Hit,
    /// Body bytes that were compared.
    Bytes,
    /// Whole bodies.
    Whole,
    /// Ranges.
    Part,
    /// 304.
    Unchanged,
    /// Answers to HEAD.
    Head,
    /// Bodies that were left in the middle.
    Left,
    /// Bodies that were read slowly.
    Slow,
    /// Purges acknowledged.
    Purged,
    /// POSTs acknowledged.
    Invalidated,
    /// Replacements that raised a floor.
    Replaced,
    /// Excuse: it failed, and the origin did at that time, or does so often for this key.
    Origin,
    /// Excuse: its body ended visibly short, and the origin was failing.
    Cut,
    /// Excuse: the same, and the origin had another version by then.
    CutChanged,
    /// Excuse: a purge was answered with 500 while the device was failing.
    Unpurged,
    /// Excuse: a replacement overlapped with other fetches of its key, or with a failing device.
    NotAlone,
}

const NAMES: [&str; 17] = [
    "asked",
    "hits",
    "bytes",
    "whole bodies",
    "ranges",
    "unchanged",
    "heads",
    "left in the middle",
    "read slowly",
    "purged",
    "invalidated",
    "replaced",
    "failed with the origin",
    "cut with the origin",
    "cut, changed meanwhile",
    "not purged, device failed",
    "replaced, not alone",
];

/// How often each was so.
#[derive(Default)]
pub(super) struct Tally([AtomicU64; NAMES.len()]);

impl Tally {
    pub(super) fn one(&self, class: Class) {
        self.add(class, 1);
    }

    pub(super) fn add(&self, class: Class, n: u64) {
        self.0[class as usize].fetch_add(n, Relaxed);
    }

    pub(super) fn get(&self, class: Class) -> u64 {
        self.0[class as usize].load(Relaxed)
    }

    /// What was judged and what was excused, but for what was asked and its bytes.
    pub(super) fn words(&self) -> String {
        let word = |class: usize| format!("{} {}", self.0[class].load(Relaxed), NAMES[class]);
        let judged: Vec<_> = (Class::Whole as usize..Class::Origin as usize).map(word).collect();
        let excused: Vec<_> = (Class::Origin as usize..NAMES.len()).map(word).collect();
        let mut words = String::new();
        let _ = write!(words, "judged: {}; excused: {}", judged.join(", "), excused.join(", "));
        words
    }
}
