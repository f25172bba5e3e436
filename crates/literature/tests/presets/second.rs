//! STREAM and BUDDY written down a second time, from the text of Markatos et al. 1999 alone (§3.4, §3.5) and without a
//! line of the engine's: what is asked of the disk, and where on it.
//!
//! What the paper leaves open is taken as the engine says that it takes it: an object passes by free runs that are too
//! short for it, and lies in one piece (`places/space/next_fit.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bytes of a slot, the paper's disk block.
pub(crate) const BLOCK: u64 = 512;

/// What was asked of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) writes: u64,
    pub(crate) written: u64,
    /// URL-reads.
    pub(crate) reads: u64,
    pub(crate) read: u64,
    /// Reads of pages that are written in part.
    pub(crate) page_reads: u64,
    /// Writes that do not begin where the one before ended.
    pub(crate) breaks: u64,
    /// Files of their own that were made, and removed.
    pub(crate) files_made: u64,
    pub(crate) files_removed: u64,
    /// Blocks that all files of classes have.
    pub(crate) blocks: u64,
}

fn blocks_of(bytes: u64) -> usize {
    bytes.div_ceil(BLOCK) as usize
}

/// A file management of the paper's.
pub(crate) trait Manages {
    fn write(&mut self, url: u64, bytes: u64);
    fn read(&mut self, url: u64);
    fn delete(&mut self, url: u64);
    fn asked(&self) -> Asked;
}

/// "The web proxy stores all URLs in a single file organized in slots of 512 bytes long."
pub(crate) struct Stream {
    taken: Vec<bool>,
    cursor: usize,
    urls: HashMap<u64, (usize, usize)>,
    /// Slots of a page of the operating system.
    page: usize,
    end: usize,
    asked: Asked,
}

impl Stream {
    pub(crate) fn new(slots: usize, page: u64) -> Self {
        Self {
            taken: vec![false; slots],
            cursor: 0,
            urls: HashMap::new(),
            page: (page / BLOCK) as usize,
            end: 0,
            asked: Asked::default(),
        }
    }

    /// The next free slots from here to the end of the file.
    fn free_from(&self, from: usize, slots: usize) -> Option<usize> {
        let mut run = 0;
        for at in from..self.taken.len() {
            run = if self.taken[at] { 0 } else { run + 1 };
            if run == slots {
                return Some(at + 1 - slots);
            }
        }
        None
    }
}

impl Manages for Stream {
    fn write(&mut self, url: u64, bytes: u64) {
        let slots = blocks_of(bytes);
        // "In this case, new URL write operations continue from the beginning of the file."
        let start = self.free_from(self.cursor, slots).or_else(|| self.free_from(0, slots)).expect("scratch space");
        let end = start + slots;
        self.taken[start..end].fill(true);
        self.asked.writes += 1;
        self.asked.breaks += u64::from(start != self.end);
        // "If a process writes a small amount of data in a page that is not in the main memory cache, the operating
        // system will read the page from the disk, make all updates in main memory, and then write the page."
        let (first, last) = (start / self.page, (end - 1) / self.page);
        let (cuts_first, cuts_last) = (!start.is_multiple_of(self.page), !end.is_multiple_of(self.page));
        self.asked.page_reads += match first == last {
            true => u64::from(cuts_first || cuts_last),
            false => u64::from(cuts_first) + u64::from(cuts_last),
        };
        self.asked.written += ((last + 1 - first) * self.page) as u64 * BLOCK;
        (self.cursor, self.end) = (end, end);
        self.urls.insert(url, (start, slots));
    }

    fn read(&mut self, url: u64) {
        let (start, slots) = self.urls[&url];
        let pages = (start + slots).div_ceil(self.page) - start / self.page;
        self.asked.reads += 1;
        self.asked.read += (pages * self.page) as u64 * BLOCK;
    }

    fn delete(&mut self, url: u64) {
        if let Some((start, slots)) = self.urls.remove(&url) {
            self.taken[start..start + slots].fill(false);
        }
    }

    fn asked(&self) -> Asked {
        self.asked
    }
}

/// "URLs that need one block of disk space are all stored in the same file. URLs that need two blocks of disk space are
/// stored in another file, etc."
pub(crate) struct Buddy {
    threshold: usize,
    /// Of each class: slots of its file, and those of them that are free.
    classes: BTreeMap<usize, (usize, BTreeSet<usize>)>,
    /// Class and slot; none of one that has a file of its own.
    urls: HashMap<u64, (usize, Option<usize>)>,
    asked: Asked,
}

impl Buddy {
    pub(crate) fn new(threshold: usize) -> Self {
        Self { threshold, classes: BTreeMap::new(), urls: HashMap::new(), asked: Asked::default() }
    }
}

impl Manages for Buddy {
    fn write(&mut self, url: u64, bytes: u64) {
        let blocks = blocks_of(bytes);
        if blocks > self.threshold {
            // "URLs larger than this number are stored in separate files - one URL per file."
            self.asked.files_made += 1;
            self.urls.insert(url, (blocks, None));
            return;
        }
        // "BUDDY finds the first free slot on the appropriate file."
        let (slots, free) = self.classes.entry(blocks).or_default();
        let slot = free.pop_first().unwrap_or_else(|| {
            *slots += 1;
            *slots - 1
        });
        self.asked.writes += 1;
        self.asked.written += blocks as u64 * BLOCK;
        self.urls.insert(url, (blocks, Some(slot)));
    }

    fn read(&mut self, url: u64) {
        if let (blocks, Some(_)) = self.urls[&url] {
            self.asked.reads += 1;
            self.asked.read += blocks as u64 * BLOCK;
        }
    }

    fn delete(&mut self, url: u64) {
        match self.urls.remove(&url) {
            Some((blocks, Some(slot))) => drop(self.classes.entry(blocks).or_default().1.insert(slot)),
            Some((_, None)) => self.asked.files_removed += 1,
            None => {}
        }
    }

    fn asked(&self) -> Asked {
        let blocks = self.classes.iter().map(|(blocks, (slots, _))| (blocks * slots) as u64).sum();
        Asked { blocks, ..self.asked }
    }
}
