//! Where a pool's memory comes from: runs of pages, cut from chunks of huge pages.
//!
//! The kernel looks up and holds each page of a buffer for as long as the device works on it, gives the device a piece
//! of its own for each that does not lie beside the next, and a processor keeps the addresses of few at hand. Cut from
//! pages of 2 MiB, in alternation with what the allocator gave: 1.1 to 1.5 times the puts of a load, 1.02 to 1.2 times
//! the gets of one task with 32 in flight. What keeps it from more is what comes back: with no bound on what is kept,
//! it was 1.25 times the gets.
//!
//! Invariants:
//! - no two runs that are out overlap, and each lies in one chunk;
//! - a run comes from pages that hold memory if there are enough in a row, and from the oldest chunk of those that
//!   have room, so that the others empty. Nothing depends on addresses: the same requests leave the same behind;
//! - pages that are in no run but hold memory are *spare*, and never more than was allowed. Beyond half of that an
//!   empty chunk goes back to the system whole; beyond all of it single runs go, whose pages are small ones ever after.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Range;
use std::ptr::{self, NonNull};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Alignment of every [`crate::AlignedBuf`], in bytes. No common device asks direct I/O for more.
pub const ALIGN: usize = 4096;

/// A huge page, in bytes.
pub(crate) const HUGE: usize = 2 << 20;

/// What a chunk's length and address are multiples of.
const CHUNK: usize = HUGE;

/// The page allocator of a pool.
pub(crate) struct PageAlloc {
    /// The oldest first.
    chunks: Vec<Chunk>,
    /// Whether to ask for huge pages: the first byte touched then costs memory for a whole one.
    huge: bool,
    /// Pages that are spare, and how many may be.
    spare: usize,
    spare_max: usize,
}

impl PageAlloc {
    /// PageAlloc that keep at most so many bytes which are in no run.
    pub(crate) fn new(spare_bytes: usize) -> Self {
        // A pool that may not keep one huge page does not need them.
        Self { chunks: Vec::new(), huge: spare_bytes >= CHUNK, spare: 0, spare_max: spare_bytes / ALIGN }
    }

    /// Bytes that are in no run but hold memory.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare * ALIGN
    }

    /// `len` initialised bytes at a multiple of [`ALIGN`], which `len` is one of too; not 0. Running out of memory
    /// aborts, as for `Vec`.
    pub(crate) fn take(&mut self, len: usize) -> NonNull<u8> {
        let pages = len / ALIGN;
        if let Some(run) = self.chunks.iter_mut().find_map(|chunk| chunk.take_spare(pages)) {
            self.spare -= pages;
            return run;
        }
        let taken = self.chunks.iter_mut().find_map(|chunk| chunk.take(pages));
        let (run, spare) = taken.unwrap_or_else(|| {
            let mut chunk = Chunk::map(len.next_multiple_of(CHUNK), self.huge);
            let taken = chunk.take(pages).unwrap_or_else(|| unreachable!("a new chunk holds what it was made for"));
            self.chunks.push(chunk);
            taken
        });
        self.spare -= spare;
        run
    }

    /// Notes that a run came back, `gone` if its pages hold no memory any more. Returns a chunk that is empty now and
    /// is to be unmapped.
    fn put(&mut self, run: NonNull<u8>, len: usize, gone: bool) -> Result<Option<Chunk>, Beyond> {
        let find = |(at, chunk): (usize, &Chunk)| chunk.offset_of(run).map(|offset| (at, offset / ALIGN));
        let Some((at, first)) = self.chunks.iter().enumerate().find_map(find) else { return Ok(None) };
        let chunk = &mut self.chunks[at];
        let pages = first..first + len / ALIGN;
        let spare = self.spare + if gone { 0 } else { pages.len() };
        let whole = spare > self.spare_max / 2 && chunk.free + pages.len() == chunk.pages();
        if whole {
            self.spare -= chunk.spare_pages;
            return Ok(Some(self.chunks.remove(at)));
        }
        if spare > self.spare_max {
            return Err(Beyond);
        }
        chunk.out.set(pages.clone(), false);
        chunk.free += pages.len();
        if !gone {
            self.spare = spare;
            chunk.add_spare(pages);
        }
        Ok(None)
    }
}

/// There is no room for the memory of a run that came back: it goes to the system first.
struct Beyond;

/// Takes back what [`PageAlloc::take`] gave. What goes to the system does so with nothing locked: it interrupts the
/// other processors, and what waits for a buffer meanwhile is a thread of another get.
///
/// # Safety
/// The run must be out, of this length, and not be used any more.
pub(crate) unsafe fn put_back(alloc: &Mutex<PageAlloc>, run: NonNull<u8>, len: usize) {
    let emptied = alloc.lock().put(run, len, false);
    if emptied.is_err() {
        // SAFETY: these pages are not used, by the caller's word, and until it is noted that they are back no caller is
        // given them; they read as zeros from now on. That fails for no mapping of this kind.
        let _ = unsafe { madvise(run.as_ptr().cast(), len, Advice::LinuxDontNeed) };
        let _emptied = alloc.lock().put(run, len, true);
    }
}

/// One mapping, unmapped on drop: nothing of it may be out by then.
struct Chunk {
    start: NonNull<u8>,
    /// Pages that are in a run.
    out: Set,
    /// Pages in no run.
    free: usize,
    /// Those of them that hold memory, and how many they are.
    spare: Set,
    spare_pages: usize,
}

// SAFETY: plain memory that the chunk owns, as a `Box<[u8]>`.
unsafe impl Send for Chunk {}

impl Chunk {
    /// A chunk of `len` bytes, a multiple of [`CHUNK`].
    fn map(len: usize, huge: bool) -> Self {
        let failed = || -> ! { handle_alloc_error(Layout::new::<[u8; CHUNK]>()) };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // Longer by what the start may lie short of its multiple.
        // SAFETY: a new mapping, which overlaps nothing.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), len + CHUNK, protection, flags) };
        let mapped = mapped.unwrap_or_else(|_| failed()).cast::<u8>();
        let before = mapped.align_offset(CHUNK);
        // SAFETY: `before` is below `CHUNK`, so all of this is within the mapping. Its ends are given back, so that
        // what remains is exactly the chunk; if the system refuses, they stay mapped and unused.
        let start = unsafe {
            let start = mapped.add(before);
            if before > 0 {
                let _ = munmap(mapped.cast(), before);
            }
            let _ = munmap(start.add(len).cast(), CHUNK - before);
            if huge {
                // A kernel without huge pages refuses: then these are small ones.
                let _ = madvise(start.cast(), len, Advice::LinuxHugepage);
            }
            start
        };
        let pages = len / ALIGN;
        Self {
            start: NonNull::new(start).unwrap_or_else(|| failed()),
            out: Set::of(pages),
            free: pages,
            spare: Set::of(pages),
            spare_pages: 0,
        }
    }

    fn pages(&self) -> usize {
        self.out.0.len() * 64
    }

    /// Where in the chunk this is, if it is.
    fn offset_of(&self, run: NonNull<u8>) -> Option<usize> {
        let offset = run.addr().get().checked_sub(self.start.addr().get())?;
        (offset < self.pages() * ALIGN).then_some(offset)
    }

    /// The first run of so many pages that are spare.
    fn take_spare(&mut self, pages: usize) -> Option<NonNull<u8>> {
        if self.spare_pages < pages {
            return None;
        }
        let run = first_run(pages, self.spare.0.iter().copied())?;
        self.drop_spare(run.clone());
        Some(self.hand_out(run))
    }

    /// The first run of so many free pages, and how many of them were spare.
    fn take(&mut self, pages: usize) -> Option<(NonNull<u8>, usize)> {
        if self.free < pages {
            return None;
        }
        let run = first_run(pages, self.out.0.iter().map(|out| !out))?;
        let spare = self.drop_spare(run.clone());
        Some((self.hand_out(run), spare))
    }

    fn add_spare(&mut self, run: Range<usize>) {
        self.spare_pages += run.len();
        self.spare.set(run, true);
    }

    /// How many pages of the run were spare; none is now.
    fn drop_spare(&mut self, run: Range<usize>) -> usize {
        let spare = self.spare.count(run.clone());
        self.spare_pages -= spare;
        self.spare.set(run, false);
        spare
    }

    fn hand_out(&mut self, run: Range<usize>) -> NonNull<u8> {
        self.free -= run.len();
        self.out.set(run.clone(), true);
        // SAFETY: the run is of pages of this chunk.
        unsafe { self.start.add(run.start * ALIGN) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping is the chunk's own, and nothing of it is out.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.pages() * ALIGN) };
    }
}

/// A set of a chunk's pages: a bit for each.
struct Set(Box<[u64]>);

impl Set {
    /// None of so many pages, a multiple of 64.
    fn of(pages: usize) -> Self {
        Self(vec![0; pages / 64].into_boxed_slice())
    }

    fn has(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    fn set(&mut self, run: Range<usize>, value: bool) {
        for page in run {
            let bit = 1 << (page % 64);
            if value { self.0[page / 64] |= bit } else { self.0[page / 64] &= !bit }
        }
    }

    fn count(&self, run: Range<usize>) -> usize {
        run.filter(|page| self.has(*page)).count()
    }
}

/// The first run of so many ones in words of 64 bits each, the lowest bit first.
fn first_run(ones: usize, words: impl Iterator<Item = u64>) -> Option<Range<usize>> {
    let mut start = 0;
    for (number, word) in words.enumerate() {
        let end = (number + 1) * 64;
        let mut at = end - 64;
        while at < end {
            let rest = word >> (at % 64);
            if rest & 1 == 0 {
                at = end.min(at + rest.trailing_zeros() as usize);
                start = at;
                continue;
            }
            at = end.min(at + rest.trailing_ones() as usize);
            if at - start >= ones {
                return Some(start..start + ones);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 256 << 10;

    #[test]
    fn runs_fill_the_oldest_chunk_first() {
        let mut alloc = Mutex::new(PageAlloc::new(1 << 20));
        let runs: Vec<_> = (0..16).map(|_| alloc.get_mut().take(LEN)).collect();
        assert_eq!((alloc.get_mut().chunks.len(), alloc.get_mut().spare_bytes()), (2, 0));
        assert!(runs.iter().all(|run| (run.as_ptr() as usize).is_multiple_of(ALIGN)));
        for run in [runs[15], runs[0]] {
            // SAFETY: it is out, and not in use.
            unsafe { put_back(&alloc, run, LEN) };
        }
        assert_eq!(alloc.get_mut().spare_bytes(), 2 * LEN);
        let small = alloc.get_mut().take(12 << 10);
        assert_eq!(small, runs[0]);
        // SAFETY: a page of the run that is free.
        let rest = unsafe { small.add(12 << 10) };
        assert_eq!(alloc.get_mut().take(LEN - (12 << 10)), rest);
        assert_eq!(alloc.get_mut().take(LEN), runs[15]);
        assert_eq!(alloc.get_mut().spare_bytes(), 0);
    }

    #[test]
    fn what_comes_back_beyond_the_bound_goes_to_the_system() {
        let mut alloc = Mutex::new(PageAlloc::new(LEN));
        let runs: Vec<_> = (0..8).map(|_| alloc.get_mut().take(LEN)).collect();
        for run in &runs {
            // SAFETY: it is out, and ours.
            unsafe { run.as_ptr().write(7) };
        }
        for run in &runs[..2] {
            // SAFETY: it is out, and not in use.
            unsafe { put_back(&alloc, *run, LEN) };
        }
        assert_eq!(alloc.get_mut().spare_bytes(), LEN, "the second went");
        let again = [alloc.get_mut().take(LEN), alloc.get_mut().take(LEN)];
        assert_eq!(again[..], runs[..2]);
        // SAFETY: they are out, and ours.
        let kept = unsafe { [again[0].as_ptr().read(), again[1].as_ptr().read()] };
        assert_eq!(kept, [7, 0]);
        for run in runs {
            // SAFETY: it is out, and not in use.
            unsafe { put_back(&alloc, run, LEN) };
        }
        assert_eq!((alloc.get_mut().chunks.len(), alloc.get_mut().spare_bytes()), (0, 0), "an empty chunk went whole");
    }

    #[test]
    fn what_is_longer_than_a_chunk_has_one_of_its_own() {
        let mut alloc = Mutex::new(PageAlloc::new(4 * CHUNK));
        let long = alloc.get_mut().take(3 << 20);
        assert_eq!(long.as_ptr() as usize % CHUNK, 0);
        // SAFETY: it is out, and ours.
        unsafe {
            long.as_ptr().add((3 << 20) - 1).write(1);
            put_back(&alloc, long, 3 << 20);
        }
        assert_eq!((alloc.get_mut().chunks.len(), alloc.get_mut().spare_bytes()), (1, 3 << 20));
    }

    #[test]
    fn runs_of_ones_are_found_across_words() {
        let words = [0xf0, 0, 3 << 62, 1, u64::MAX];
        let found = |ones| first_run(ones, words.into_iter());
        assert_eq!([found(4), found(3), found(1)], [Some(4..8), Some(4..7), Some(4..5)]);
        assert_eq!([found(5), found(64)], [Some(256..261), Some(256..320)]);
        assert_eq!(first_run(3, [3 << 62, 1].into_iter()), Some(62..65));
        assert_eq!([found(65), first_run(1, [0; 3].into_iter())], [None, None]);
    }

    #[test]
    fn runs_never_overlap() {
        let mut alloc = Mutex::new(PageAlloc::new(1 << 20));
        let mut out: Vec<(usize, usize)> = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = (random >> 33) as usize;
            if out.len() < 40 || (out.len() < 300 && pick.is_multiple_of(2)) {
                let len = (1 + pick / 2 % 90) * ALIGN;
                let run = alloc.get_mut().take(len).as_ptr() as usize;
                assert!(out.iter().all(|(other, size)| run + len <= *other || other + size <= run));
                out.push((run, len));
            } else {
                let (run, len) = out.swap_remove(pick % out.len());
                // SAFETY: it is out, and not in use.
                unsafe { put_back(&alloc, NonNull::new(run as *mut u8).unwrap(), len) };
            }
            assert!(alloc.get_mut().spare_bytes() <= 1 << 20);
        }
        let taken: usize = out.iter().map(|(_, len)| len / ALIGN).sum();
        let free: usize = alloc.get_mut().chunks.iter().map(|chunk| chunk.free).sum();
        let whole: usize = alloc.get_mut().chunks.iter().map(Chunk::pages).sum();
        assert_eq!(taken + free, whole);
        let spare: usize = alloc.get_mut().chunks.iter().map(|chunk| chunk.spare.count(0..chunk.pages())).sum();
        assert_eq!(spare, alloc.get_mut().spare);
    }
}
