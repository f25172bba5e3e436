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
    /// Blocks that all files of classes have had.
    pub(crate) blocks: u64,
    /// Pages of which something was sent at once, for each time that it was.
    pub(crate) packets: u64,
}

fn blocks_of(bytes: u64) -> usize {
    bytes.div_ceil(BLOCK) as usize
}

/// A file management of the paper's.
pub(crate) trait Manages {
    fn write(&mut self, url: u64, server: u32, bytes: u64);
    fn read(&mut self, url: u64);
    fn delete(&mut self, url: u64);
    /// All that was written so far is to be on the disk.
    fn commit(&mut self) {}
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

    /// Where a URL's slots begin, and end.
    pub(crate) fn place(&mut self, url: u64, bytes: u64) -> (usize, usize) {
        let slots = blocks_of(bytes);
        // "In this case, new URL write operations continue from the beginning of the file."
        let start = self.free_from(self.cursor, slots).or_else(|| self.free_from(0, slots)).expect("scratch space");
        let end = start + slots;
        self.taken[start..end].fill(true);
        self.cursor = end;
        self.urls.insert(url, (start, slots));
        (start, end)
    }

    /// URLs in the order in which they lie.
    pub(crate) fn in_order(&self) -> Vec<u64> {
        let mut urls: Vec<(usize, u64)> = self.urls.iter().map(|(url, (start, _))| (*start, *url)).collect();
        urls.sort_unstable();
        urls.into_iter().map(|(_, url)| url).collect()
    }
}

impl Manages for Stream {
    fn write(&mut self, url: u64, _: u32, bytes: u64) {
        let (start, end) = self.place(url, bytes);
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
        self.end = end;
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

/// Where the classes of BUDDY have their slots.
enum Space {
    /// "URLs that need one block of disk space are all stored in the same file. URLs that need two blocks of disk space
    /// are stored in another file, etc." Of each: its slots, and those of them that are free.
    Files(BTreeMap<usize, (usize, BTreeSet<usize>)>),
    /// What is not the paper's.
    Areas(Areas),
}

/// One disk for all classes, of which they are given areas of several slots: the first free blocks.
pub(crate) struct Areas {
    /// Blocks that are a class's.
    taken: Vec<bool>,
    /// Slots of an area of this class.
    slots: fn(usize) -> usize,
    /// Whether an area in which nothing lies is free again, for any class.
    go_back: bool,
    /// By first block: class, slots, URLs in them.
    cut: BTreeMap<usize, (usize, usize, usize)>,
    free: BTreeMap<usize, BTreeSet<usize>>,
    /// Every slot that a class ever used: class, first block.
    had: BTreeSet<(usize, usize)>,
}

impl Areas {
    pub(crate) fn new(disk: usize, slots: fn(usize) -> usize, go_back: bool) -> Self {
        let (cut, free, had) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { taken: vec![false; disk], slots, go_back, cut, free, had }
    }

    fn take(&mut self, class: usize) -> usize {
        if self.free.entry(class).or_default().is_empty() {
            let slots = (self.slots)(class);
            let fits = |at: &usize| !self.taken[*at..at + slots * class].contains(&true);
            let at = (0..=self.taken.len() - slots * class).find(fits).expect("room for an area");
            self.taken[at..at + slots * class].fill(true);
            self.cut.insert(at, (class, slots, 0));
            self.free.entry(class).or_default().extend((0..slots).map(|slot| at + slot * class));
        }
        let slot = self.free.get_mut(&class).and_then(BTreeSet::pop_first).expect("a slot of an area");
        self.cut.range_mut(..=slot).next_back().expect("its area").1.2 += 1;
        self.had.insert((class, slot));
        slot
    }

    fn give(&mut self, class: usize, slot: usize) {
        self.free.entry(class).or_default().insert(slot);
        let (&at, area) = self.cut.range_mut(..=slot).next_back().expect("its area");
        area.2 -= 1;
        let (_, slots, urls) = *area;
        if urls == 0 && self.go_back {
            self.cut.remove(&at);
            self.free.entry(class).or_default().retain(|slot| !(at..at + slots * class).contains(slot));
            self.taken[at..at + slots * class].fill(false);
        }
    }
}

impl Space {
    /// "BUDDY finds the first free slot on the appropriate file."
    fn take(&mut self, class: usize) -> usize {
        match self {
            Self::Areas(areas) => areas.take(class),
            Self::Files(files) => {
                let (slots, free) = files.entry(class).or_default();
                free.pop_first().unwrap_or_else(|| {
                    *slots += 1;
                    *slots - 1
                })
            }
        }
    }

    /// "BUDDY marks the corresponding slot in the appropriate file as free."
    fn give(&mut self, class: usize, slot: usize) {
        match self {
            Self::Areas(areas) => areas.give(class, slot),
            Self::Files(files) => drop(files.entry(class).or_default().1.insert(slot)),
        }
    }

    fn blocks(&self) -> usize {
        match self {
            Self::Areas(areas) => areas.had.iter().map(|(class, _)| class).sum(),
            Self::Files(files) => files.iter().map(|(class, (slots, _))| class * slots).sum(),
        }
    }
}

/// BUDDY, with a class for each number of blocks up to a threshold.
pub(crate) struct Buddy {
    threshold: usize,
    space: Space,
    /// Class and slot; none of one that has a file of its own.
    urls: HashMap<u64, (usize, Option<usize>)>,
    asked: Asked,
}

impl Buddy {
    pub(crate) fn new(threshold: usize) -> Self {
        Self { threshold, space: Space::Files(BTreeMap::new()), urls: HashMap::new(), asked: Asked::default() }
    }

    pub(crate) fn of_areas(threshold: usize, areas: Areas) -> Self {
        Self { space: Space::Areas(areas), ..Self::new(threshold) }
    }
}

impl Manages for Buddy {
    fn write(&mut self, url: u64, _: u32, bytes: u64) {
        let blocks = blocks_of(bytes);
        if blocks > self.threshold {
            // "URLs larger than this number are stored in separate files - one URL per file."
            self.asked.files_made += 1;
            self.urls.insert(url, (blocks, None));
            return;
        }
        let slot = self.space.take(blocks);
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
            Some((blocks, Some(slot))) => self.space.give(blocks, slot),
            Some((_, None)) => self.asked.files_removed += 1,
            None => {}
        }
    }

    fn asked(&self) -> Asked {
        Asked { blocks: self.space.blocks() as u64, ..self.asked }
    }
}
