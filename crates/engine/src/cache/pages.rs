//! Pages: what a cluster is divided into for a group that wants less than a whole one read and held for one object
//! (Ledlie 2000, §4: pages of 16 to 256 KiB, whichever suits a group's objects and the order in which they are read).
//!
//! A cluster remains what is granted, written, journaled and reclaimed; its group has it to itself, so all its pages
//! are of one size. A frame lies in one page, or begins one if it is longer. So a read of the page around an entry
//! brings all objects that begin there, and no others.
//!
//! Invariants: how a cluster is divided is a hint for the reader, and wrong or forgotten costs a longer or a shorter
//! read, for what it brought is verified frame by frame; a page is resident at most once, and as long as one is,
//! reclaim leaves its cluster alone.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use picaflor_format::{frame::GRAIN, zone::CLUSTER_MIN};

use crate::{
    Error, Result, base::column::Column, base::group::page_bytes, base::medium::Medium, shared::Shared,
    space::PAGES_MAX, write::placement::Class,
};

/// Bytes of the smallest page.
pub(crate) const PAGE_MIN: u32 = CLUSTER_MIN;

/// Where the page lies that a cluster's reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRead {
    /// Offset in the cluster, and bytes to read: more than a page for an object that is longer.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Number of the page in its cluster, and its bytes; none where the cluster is one.
    pub(crate) page: Option<(u32, usize)>,
}

/// How each cluster is divided: log2 of the bytes of its pages, those of the cluster if it is one; 0: not known.
struct Divisions(Column<AtomicU8>);

impl Divisions {
    fn new(clusters: u32) -> Self {
        Self(Column::new(clusters, AtomicU8::default))
    }

    fn note(&self, cluster: u32, page: u32) {
        if let Some(known) = self.0.get(cluster) {
            known.store(if page == 0 { 0 } else { page.trailing_zeros() as u8 }, Relaxed);
        }
    }

    /// Bytes of its pages, if that is known.
    fn of(&self, cluster: u32) -> Option<u32> {
        page_bytes(self.0.get(cluster)?.load(Relaxed))
    }

    /// What a checkpoint keeps of it: eight clusters a word; nothing if no cluster has pages smaller than itself.
    pub(crate) fn image(&self, cluster: u32) -> Vec<u64> {
        let whole = cluster.trailing_zeros() as u8;
        if self.0.iter().all(|log2| [0, whole].contains(&log2.load(Relaxed))) {
            return Vec::new();
        }
        let all: Vec<u8> = self.0.iter().map(|log2| log2.load(Relaxed)).collect();
        let word = |eight: &[u8]| (0..).zip(eight).fold(0, |word, (at, log2)| word | u64::from(*log2) << (8 * at));
        all.chunks(8).map(word).collect()
    }

    /// Bytes of that image at most.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.0.len().next_multiple_of(8) as u64
    }

    pub(crate) fn restore(&self, image: &[u64]) {
        let bytes = image.iter().flat_map(|word| word.to_le_bytes());
        self.0.iter().zip(bytes).for_each(|(known, log2)| known.store(log2, Relaxed));
    }
}

/// Into which pages the clusters of a volume are divided.
pub(crate) struct Pages {
    divisions: Divisions,
    /// Bytes of a cluster.
    cluster: u32,
    /// Bytes of the unit in which the device reads.
    unit: usize,
    shared: Arc<Shared>,
}

impl Pages {
    /// Memory that a cluster's division takes, here and in [`crate::space::Space`].
    pub(crate) const BYTES_PER_CLUSTER: u64 = 1 + size_of::<u64>() as u64;

    pub(crate) fn new(medium: &Medium, shared: &Arc<Shared>) -> Self {
        let clusters = if shared.preset.has_pages() { medium.map().cluster_count() } else { 0 };
        Self {
            divisions: Divisions::new(clusters),
            cluster: medium.map().cluster,
            unit: medium.device.read_unit(),
            shared: Arc::clone(shared),
        }
    }

    /// So many more clusters, whose division is not known.
    pub(crate) fn lengthen(&self, by: u32) {
        self.divisions.0.lengthen(by, AtomicU8::default);
    }

    /// A cluster is divided into pages of so many bytes.
    pub(crate) fn note(&self, cluster: u32, page: u32) {
        self.divisions.note(cluster, page);
    }

    /// What a checkpoint keeps of it.
    pub(crate) fn image(&self) -> Vec<u64> {
        self.divisions.image(self.cluster)
    }

    /// Bytes of that image at most.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.divisions.image_bytes()
    }

    pub(crate) fn restore(&self, image: &[u64]) {
        self.divisions.restore(image);
    }

    /// Whether clusters may be divided into pages.
    pub(crate) fn has_pages(&self) -> bool {
        self.shared.preset.has_pages()
    }

    /// Bytes of the pages that the group of a class wants its clusters divided into.
    pub(crate) fn page_of(&self, class: Class) -> u32 {
        match class {
            Class::Group(group) => self.page_of_group(group),
            _ => self.cluster,
        }
    }

    pub(crate) fn page_of_group(&self, group: u32) -> u32 {
        self.shared.groups.page(group).filter(|_| self.has_pages()).map_or(self.cluster, |page| self.fit(page))
    }

    /// A page that may be: settings come from the device, and a group may have them from another store's options.
    fn fit(&self, page: u32) -> u32 {
        page.clamp(least_page(self.cluster), self.cluster)
    }

    /// Refuses pages that there cannot be.
    ///
    /// # Errors
    /// [`Error::Option`] with the reason.
    pub(crate) fn check_page(&self, page: u32) -> Result<()> {
        let (least, most) = (least_page(self.cluster), self.cluster);
        let why = if !self.has_pages() {
            "only a preset that gives each group clusters of its own divides them: damelo".into()
        } else if !page.is_power_of_two() || !(least..=most).contains(&page) {
            format!("{page} bytes, where a power of two from {least} to the {most} of a cluster can be")
        } else {
            return Ok(());
        };
        Err(Error::Option { name: "page", why })
    }

    /// What to read for an entry: the page in which it begins, and all of the object.
    pub(crate) fn page_around(&self, cluster: u32, offset: usize, grains: u32) -> PageRead {
        let whole = PageRead { offset: 0, len: self.cluster as usize, page: None };
        let Some(page) = self.divisions.of(cluster).filter(|page| *page < self.cluster) else {
            return whole;
        };
        let page = self.fit(page) as usize;
        let start = offset / page * page;
        let unit = self.unit;
        let end = (offset + grains as usize * GRAIN).next_multiple_of(unit);
        let end = end.max(start + page).min(self.cluster as usize);
        PageRead { offset: start, len: end - start, page: Some(((start / page) as u32, page)) }
    }

    /// A sealed cluster on the device says how it is divided: log2 of the bytes of its pages, 0 if it is not.
    pub(crate) fn note_division(&self, cluster: u32, log2: u8) {
        self.divisions.note(cluster, if log2 == 0 { self.cluster } else { page_bytes(log2).unwrap_or(0) });
    }

    /// What was forgotten of a cluster, the first of its objects that is read tells: what its group wants now is
    /// likely to be what it wanted.
    pub(crate) fn learn_page(&self, cluster: u32, group: u32) {
        if self.has_pages() && self.divisions.of(cluster).is_none() {
            self.divisions.note(cluster, self.page_of_group(group));
        }
    }
}

/// Bytes of the smallest page that a cluster of so many may be divided into.
fn least_page(cluster: u32) -> u32 {
    PAGE_MIN.max(cluster / PAGES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_keeps_how_clusters_are_divided_if_any_is() {
        let known = Divisions::new(19);
        (0..7).for_each(|cluster| known.note(cluster, 256 << 10));
        assert!(known.image(256 << 10).is_empty());
        known.note(3, 16 << 10);
        known.note(18, 64 << 10);
        let image = known.image(256 << 10);
        assert_eq!((image.len(), known.image_bytes()), (3, 24));
        assert_eq!(image[0] >> 24 & 0xff, 14);
        let restored = Divisions::new(19);
        restored.restore(&image);
        assert_eq!(
            [0, 3, 7, 18].map(|cluster| restored.of(cluster)),
            [18, 14, 0, 16].map(|log2| Some(1 << log2).filter(|_| log2 > 0))
        );
        assert_eq!(Divisions::new(0).of(5), None, "where nothing is divided nothing is noted");
    }

    #[test]
    fn a_cluster_has_no_more_pages_than_are_counted() {
        assert_eq!([16, 64, 256, 1024, 4096].map(|kib| least_page(kib << 10) >> 10), [16, 16, 16, 16, 64]);
    }
}
