//! The standard matrix: what the paper varies, for every candidate that can lie on compressed memory. Two cores, 24 GiB
//! of memory and less than six hours do it; what is done is kept, so it may be run in parts.

use super::{
    kind::Kind,
    sizes::Sizes,
    spec::{Force, Medium, Spec},
};

const GIB: u64 = 1 << 30;
/// Volumes of most cases.
const VOLUME: u64 = 4 * GIB;
/// A web object is a hundredth of the others, and so is its volume's share: each is forced.
const WEB_VOLUME: u64 = GIB / 2;
/// As much of the paper's disk, of 400 GB, as is whole GiB.
const DISK: u64 = 372 * GIB;
/// A half full and a nearly full volume (§5.4).
const FILLS: [f64; 2] = [50.0, 90.0];

const FILES: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];
const OTHERS: [Kind; 9] = [
    Kind::Sqlite,
    Kind::Lmdb,
    Kind::Postgres,
    Kind::RocksDb,
    Kind::PicaflorCache,
    Kind::Pmflf,
    Kind::Oba,
    Kind::Stream,
    Kind::Buddy,
];

fn megabytes(from: u64, to: u64) -> Sizes {
    Sizes { from: from << 20, to: to << 20, ..Sizes::default() }
}

/// The specs of the matrix, the quickest first: objects of 256 KiB to 10 MiB, of one length and of lengths that vary,
/// and web objects; then volumes of 40 GiB, and half full ones of 400 GB.
#[must_use]
pub fn standard(seed: u64) -> Vec<Spec> {
    let kibibytes = |kib: u64| Sizes { from: kib << 10, to: kib << 10, ..Sizes::default() };
    let objects = vec![kibibytes(256), kibibytes(512), megabytes(1, 1), megabytes(10, 10), megabytes(5, 15)];
    let any = Spec { fills: FILLS.into(), on: Medium::Zram, seed, ..Spec::default() };
    let many = |candidates: &[Kind]| {
        let candidates = candidates.to_vec();
        let web = Spec {
            objects: vec![Sizes::WEB],
            volumes: vec![WEB_VOLUME],
            candidates: candidates.clone(),
            ..any.clone()
        };
        [Spec { objects: objects.clone(), volumes: vec![VOLUME], candidates, ..any.clone() }, web]
    };
    // Forced after each request, as the paper's file system allocated with each; then told the length.
    let forced = |spec: Spec| Spec { forces: vec![Force::Each], announces: vec![false, true], ..spec };
    let told = |spec: Spec| Spec { announces: vec![false, true], ..spec };
    let mut all: Vec<Spec> = many(&OTHERS).into();
    all.extend(many(&[Kind::PicaflorStore]).map(told));
    all.extend(many(&FILES).map(forced));
    for (volume, fills) in [(40 * GIB, FILLS.to_vec()), (DISK, vec![50.0])] {
        let large = Spec { objects: vec![megabytes(10, 10)], volumes: vec![volume], fills, ..any.clone() };
        let files = Spec { candidates: vec![Kind::Ext4], forces: vec![Force::Each], ..large.clone() };
        all.extend([Spec { candidates: vec![Kind::PicaflorStore], announces: vec![true], ..large }, files]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_matrix_can_be_run_and_none_is_there_twice() {
        let cases: Vec<_> = standard(1).iter().flat_map(|spec| spec.cases().unwrap()).collect();
        assert!(cases.len() > 200, "{}", cases.len());
        for (at, case) in cases.iter().enumerate() {
            assert!(!cases[..at].contains(case), "{}", case.label());
        }
    }
}
