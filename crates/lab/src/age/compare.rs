//! By what aged volumes are compared.

use super::run::{Aged, Sample};

/// Names of the simulated disks, in their order.
pub(super) fn disks(all: &[Aged]) -> Vec<&str> {
    let samples = all.iter().flat_map(|aged| &aged.samples);
    samples.map(|sample| &sample.disks).max_by_key(|disks| disks.len()).into_iter().flatten().map(|d| &*d.0).collect()
}

pub(super) fn on_disk(sample: &Sample, disk: &str) -> Option<f64> {
    sample.disks.iter().find(|one| one.0 == disk)?.1
}

/// Cases that are compared: of the same objects on a volume of the same size, as full.
pub(super) fn groups(all: &[Aged]) -> Vec<(String, Vec<&Aged>)> {
    let mut groups: Vec<(String, Vec<&Aged>)> = Vec::new();
    for aged in all {
        let what = aged.case.what();
        match groups.iter_mut().find(|group| group.0 == what) {
            Some(group) => group.1.push(aged),
            None => groups.push((what, vec![aged])),
        }
    }
    groups
}

pub(super) fn mean_of(sample: &Sample) -> Option<f64> {
    sample.fragments.as_ref().map(|fragments| fragments.mean)
}
