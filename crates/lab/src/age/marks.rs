//! Marks: each KB of an object begins with 32 bytes that say whose it is, which version, and which KB of it. So a
//! volume is read like any file, and what lies where is known without asking the store (Sears & van Ingen, §5.3).
//!
//! Two marks that follow one another lie together if less than a block of 4 KiB is between their pieces: headers and
//! tables of a store do not part an object, for one read passes over them. A mark that a page boundary cuts is missed
//! by itself, and those around it say that nothing is parted there. Where a store fills its pages in an order of its
//! own, what lies in one page, or in that and the next, lies together.

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use memchr::memmem::Finder;

use super::{
    extents::{BLOCK, Extent},
    load::{Load, Version},
    spec::Medium,
};
use crate::{Error, Result, synth::mix};

/// Bytes of an object to a mark.
const PIECE: u64 = 1 << 10;
/// Bytes of a mark: what it begins with, object, version, number of the piece, sum of these.
const MARK: usize = 32;
const MAGIC: [u8; 8] = *b"\xf1lab-age";
/// Bytes that are searched at a time.
const WINDOW: usize = 4 << 20;

fn check(object: u32, version: u32, piece: u64) -> u64 {
    mix(mix(u64::from(object) << 32 | u64::from(version)) ^ piece)
}

/// What lies between marks: bytes that no store can make smaller, or on compressed memory zeros.
pub(super) struct Bodies(Vec<u8>);

impl Bodies {
    pub(super) fn new(longest: u64, on: Medium) -> Self {
        let word = |at| if on == Medium::Zram { 0 } else { mix(at) };
        Self((0..longest.div_ceil(8)).flat_map(|at| word(at).to_le_bytes()).collect())
    }

    /// Makes the body of this version.
    pub(super) fn make(&self, of: &Version, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&self.0[..of.len as usize]);
        for (number, piece) in (0..).zip(into.chunks_mut(PIECE as usize)) {
            if let Some(place) = piece.get_mut(..MARK) {
                place[..8].copy_from_slice(&MAGIC);
                place[8..12].copy_from_slice(&of.object.to_le_bytes());
                place[12..16].copy_from_slice(&of.version.to_le_bytes());
                place[16..24].copy_from_slice(&u64::to_le_bytes(number));
                place[24..32].copy_from_slice(&check(of.object, of.version, number).to_le_bytes());
            }
        }
    }

    /// Whether these bytes are the body of this version.
    pub(super) fn is(of: &Version, body: &[u8]) -> bool {
        body.len() as u64 == of.len
            && (0..).zip(body.chunks(PIECE as usize)).all(|(number, piece)| {
                piece.len() < MARK || Mark::read(piece).is_some_and(|mark| mark.is_of(of) && mark.piece == number)
            })
    }
}

struct Mark {
    object: u32,
    version: u32,
    piece: u64,
}

impl Mark {
    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (marked, piece, sum) = (word(8)?, word(16)?, word(24)?);
        let (object, version) = (marked as u32, (marked >> 32) as u32);
        let whole = bytes.starts_with(&MAGIC) && sum == check(object, version, piece);
        whole.then_some(Self { object, version, piece })
    }

    fn is_of(&self, of: &Version) -> bool {
        (self.object, self.version) == (of.object, of.version)
    }
}

/// Pieces of one object that lie together.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u64,
    last: u64,
    offset: u64,
    /// Where its last piece is.
    end: u64,
}

/// What the marks of a volume say, by object.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) objects: HashMap<u32, Found>,
}

/// An object on the volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Where its parts are, in their order.
    pub(super) extents: Vec<Extent>,
    /// Pieces that were not found.
    pub(super) missing: u64,
    /// Pieces that it has.
    pub(super) pieces: u64,
}

/// Reads a file or device and finds what lives.
pub(super) fn scan(path: &Path, load: &Load) -> Result<Seen> {
    let mut search = Search::new(load, None);
    search.read(path, 0)?;
    Ok(search.finish())
}

/// The same with several files; `page`: of pages of so many bytes, in which pieces lie in any order.
pub(super) fn scan_files(paths: &[PathBuf], page: Option<u64>, load: &Load) -> Result<Seen> {
    let mut search = Search::new(load, page);
    // A page, or a block, between two files: nothing goes on from one to the next.
    let apart = page.unwrap_or(BLOCK);
    paths.iter().try_fold(0, |base, path| Ok(search.read(path, base)?.next_multiple_of(apart) + apart))?;
    Ok(search.finish())
}

struct Search<'a> {
    load: &'a Load,
    runs: HashMap<u32, Vec<Run>>,
    /// The object whose run is the last one.
    now: Option<u32>,
    /// Bytes of a page, where pieces are in order only by page.
    page: Option<u64>,
    /// Marks of the page that is being read.
    in_page: Vec<(u64, Mark)>,
}

impl<'a> Search<'a> {
    fn new(load: &'a Load, page: Option<u64>) -> Self {
        Self { load, runs: HashMap::new(), now: None, page, in_page: Vec::new() }
    }

    /// Looks at a file that begins at this offset of the volume. Returns where it ends.
    fn read(&mut self, path: &Path, base: u64) -> Result<u64> {
        let mut file = File::open(path).map_err(Error::file("opening", path))?;
        let finder = Finder::new(&MAGIC);
        let mut window = vec![0; WINDOW + MARK];
        let (mut kept, mut offset) = (0, base);
        loop {
            let mut filled = kept;
            while filled < window.len() {
                match file.read(&mut window[filled..]).map_err(Error::file("reading", path))? {
                    0 => break,
                    more => filled += more,
                }
            }
            let bytes = &window[..filled];
            finder.find_iter(bytes).for_each(|at| self.at(offset + at as u64, &bytes[at..]));
            if filled < window.len() {
                self.end_page();
                return Ok(offset + filled as u64);
            }
            // A mark that the end cuts is seen whole the next time; one that ends with the window was seen.
            kept = MARK - 1;
            offset += (filled - kept) as u64;
            window.copy_within(filled - kept.., 0);
        }
    }

    fn at(&mut self, offset: u64, bytes: &[u8]) {
        let Some(mark) = Mark::read(bytes) else { return };
        let lives = self.load.version(mark.object).is_some_and(|version| mark.is_of(&version));
        if !lives {
            return;
        }
        let Some(page) = self.page else { return self.note(offset, &mark) };
        if self.in_page.first().is_some_and(|first| first.0 / page != offset / page) {
            self.end_page();
        }
        self.in_page.push((offset, mark));
    }

    /// Notes the marks of a page in the order of their pieces.
    fn end_page(&mut self) {
        let mut marks = std::mem::take(&mut self.in_page);
        marks.sort_by_key(|(_, mark)| (mark.object, mark.piece));
        let mut places: Vec<u64> = marks.iter().map(|one| one.0).collect();
        places.sort_unstable();
        places.into_iter().zip(&marks).for_each(|(place, (_, mark))| self.note(place, mark));
    }

    fn note(&mut self, offset: u64, mark: &Mark) {
        let page = self.page;
        let runs = self.runs.entry(mark.object).or_default();
        let last = runs.last_mut().filter(|_| page.is_some() || self.now == Some(mark.object));
        let run = Run { first: mark.piece, last: mark.piece, offset, end: offset };
        match last.filter(|last| follows(last, mark.piece, offset, page)) {
            Some(last) => (last.last, last.end) = (mark.piece, offset),
            None => runs.push(run),
        }
        self.now = Some(mark.object);
    }

    fn finish(mut self) -> Seen {
        let mut seen = Seen::default();
        for version in self.load.live() {
            let runs = self.runs.remove(&version.object).unwrap_or_default();
            let (extents, missing) = cover(runs, version.len);
            seen.objects.insert(version.object, Found { extents, missing, pieces: pieces(version.len) });
        }
        seen
    }
}

/// Whether a piece lies where the run goes on; one piece between them may have been missed.
fn follows(run: &Run, piece: u64, offset: u64, page: Option<u64>) -> bool {
    let steps = piece.wrapping_sub(run.last);
    let gap = (offset - run.end).checked_sub(steps.wrapping_mul(PIECE));
    let lies_there =
        page.map_or_else(|| gap.is_some_and(|gap| gap < BLOCK), |page| offset / page - run.end / page <= 1);
    (1..=2).contains(&steps) && lies_there
}

/// Pieces with a mark.
fn pieces(len: u64) -> u64 {
    len / PIECE + u64::from(len % PIECE >= MARK as u64)
}

/// The fewest runs that have all of an object, and how many pieces none has. Where a store has moved an object, its old
/// place may still have the same bytes: whichever leaves it in fewer parts counts.
fn cover(mut runs: Vec<Run>, len: u64) -> (Vec<Extent>, u64) {
    runs.sort_by_key(|run| (run.first, std::cmp::Reverse(run.last)));
    let (mut extents, mut missing, mut next) = (Vec::new(), 0, 0);
    let end = pieces(len);
    while next < end {
        let here = runs.iter().filter(|run| run.first <= next && run.last >= next).max_by_key(|run| run.last);
        let Some(run) = here.or_else(|| runs.iter().find(|run| run.first > next)) else {
            missing += end - next;
            break;
        };
        missing += run.first.saturating_sub(next);
        let from = run.first.max(next);
        let offset = run.offset + (from - run.first) * PIECE;
        // Its last piece may be the object's last one, and short.
        let tail = (len - run.last * PIECE).min(PIECE);
        extents.push(Extent { offset, len: (run.end + tail).saturating_sub(offset).max(tail) });
        next = run.last + 1;
    }
    (extents, missing)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::age::spec::Spec;

    /// A load of eight objects of this length, and their bodies.
    fn eight(len: u64) -> (Load, Vec<Vec<u8>>) {
        let text = format!("{len}");
        let spec = Spec {
            objects: vec![text.parse().unwrap()],
            volumes: vec![16 << 20],
            fills: vec![(len * 8 + 1024) as f64 / f64::from(16 << 20) * 100.0],
            ..Spec::default()
        };
        let mut load = Load::new(&spec.cases().unwrap()[0]);
        while load.fill().is_some() {}
        let bodies = Bodies::new(len, Medium::Folder);
        let made = load.live().map(|version| {
            let mut body = Vec::new();
            bodies.make(&version, &mut body);
            assert!(Bodies::is(&version, &body));
            body
        });
        let made = made.collect();
        (load, made)
    }

    /// Where objects are in a file of these parts, and how many pieces were not found.
    fn seen(load: &Load, parts: &[&[u8]]) -> (Vec<Vec<Extent>>, u64) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        parts.iter().for_each(|part| file.write_all(part).unwrap());
        let mut found = scan(file.path(), load).unwrap().objects;
        let found: Vec<Found> = (0..8).map(|object| found.remove(&object).unwrap()).collect();
        let missing = found.iter().map(|one| one.missing).sum();
        (found.into_iter().map(|one| one.extents).collect(), missing)
    }

    #[test]
    fn parts_are_counted_where_they_lie() {
        let (load, bodies) = eight(256 << 10);
        let (a, b) = (&bodies[0][..], &bodies[1][..]);
        let zeros = vec![0; 8 << 10];
        let (found, missing) = seen(&load, &[&a[..100 << 10], &zeros, &a[100 << 10..], b]);
        assert_eq!(found[0].len(), 2);
        assert_eq!(found[0][1], Extent { offset: 108 << 10, len: 156 << 10 });
        assert_eq!(found[1], [Extent { offset: 264 << 10, len: 256 << 10 }]);
        assert_eq!(missing, 6 * 256);
        // In another order, it is parted although nothing lies between.
        assert_eq!(seen(&load, &[&a[128 << 10..], &a[..128 << 10]]).0[0].len(), 2);
        // A header of a page does not part it; a block does.
        let header = [0; 100];
        assert_eq!(seen(&load, &[&a[..64 << 10], &header, &a[64 << 10..]]).0[0].len(), 1);
        assert_eq!(seen(&load, &[&a[..64 << 10], &[0; 4096], &a[64 << 10..]]).0[0].len(), 2);
    }

    #[test]
    fn a_mark_that_is_cut_parts_nothing_and_an_old_version_is_no_one() {
        let (mut load, bodies) = eight(256 << 10);
        let a = &bodies[0][..];
        let cut = (64 << 10) + 5;
        let (found, missing) = seen(&load, &[&a[..cut], &[0; 4], &a[cut..]]);
        assert_eq!((found[0].len(), missing), (1, 7 * 256));
        // The same object twice, once parted: the whole one counts.
        let (found, _) = seen(&load, &[&a[..1 << 17], &[0; 8192], &a[1 << 17..], &[0; 8192], a]);
        assert_eq!(found[0].len(), 1);
        while load.version(0).is_some_and(|version| version.version == 1) {
            load.churn();
        }
        assert!(seen(&load, &[a]).0[0].is_empty());
        let now = load.version(0).unwrap();
        assert!(!Bodies::is(&now, a));
    }

    #[test]
    fn pages_that_fill_from_their_end_part_nothing() {
        let (load, bodies) = eight(32 << 10);
        // Rows of 2 KB, four to a page, the first of them last; and a page that another object shares.
        let pages = |body: &[u8]| {
            let page = |rows: &[u8]| rows.chunks(2048).rev().collect::<Vec<_>>().concat();
            body.chunks(8192).map(page).collect::<Vec<_>>()
        };
        let [a, b] = [pages(&bodies[0]), pages(&bodies[1])];
        let found = |parts: &[&[Vec<u8>]]| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("pages");
            std::fs::write(&path, parts.concat().concat()).unwrap();
            let seen = scan_files(&[path], Some(8192), &load).unwrap();
            [0, 1].map(|object| (seen.objects[&object].extents.len(), seen.objects[&object].missing))
        };
        assert_eq!(found(&[&a, &b]), [(1, 0), (1, 0)]);
        assert_eq!(found(&[&a[..2], &b, &a[2..]]), [(2, 0), (1, 0)]);
        let shared = [&a[3][4096..], &b[0][4096..]].concat();
        assert_eq!(found(&[&a[..3], &[shared], &b[1..]]), [(1, 4), (2, 4)], "half of a page of each is missing");
    }

    #[test]
    fn marks_across_the_windows_edge_are_seen_once() {
        let (load, bodies) = eight(256 << 10);
        for before in [WINDOW - 16, WINDOW - 1, WINDOW, WINDOW + 31] {
            let (found, _) = seen(&load, &[&vec![0; before], &bodies[0]]);
            assert_eq!(found[0], [Extent { offset: before as u64, len: 256 << 10 }], "{before}");
        }
        let (load, bodies) = eight((100 << 10) + 40);
        assert_eq!(seen(&load, &[&bodies[0]]).0[0], [Extent { offset: 0, len: (100 << 10) + 40 }]);
    }
}
