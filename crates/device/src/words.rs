//! Words in memory of their own.
//!
//! A table that grows is made anew each time, a little longer. From an allocator's heap each of them leaves a hole that
//! the next does not fit: an index of 22 MB took 60. In a mapping of its own the old table goes back to the system
//! whole. Segments of an index are equally long, and outgrow the heap at about the same time: what they leave there is
//! as much as all of them, so that they do it while they are short.

use std::{
    alloc::{self, Layout},
    ops::Deref,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// What words in the heap begin at a multiple of: a cache line, in bytes.
const LINE: usize = 64;

/// Most mappings at once, of the 65,530 that Linux gives a process unless it is told otherwise.
const MAPPINGS_MAX: usize = 16 << 10;

static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A fixed number of words, zero at first. They begin at a multiple of a cache line.
pub struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
    mapped: bool,
}

// SAFETY: plain memory that it owns, as a `Box<[AtomicU64]>`.
unsafe impl Send for Words {}
// SAFETY: as a `Box<[AtomicU64]>`.
unsafe impl Sync for Words {}

impl Words {
    /// From this many bytes up, a multiple of a page, they are in a mapping of their own.
    pub const MAPPED_MIN: usize = 32 << 10;

    /// So many words. Running out of memory aborts, as for `Vec`.
    ///
    /// # Panics
    /// If they are longer than any memory.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        if len == 0 {
            return Self { start: NonNull::dangling(), len, mapped: false };
        }
        if let Some(start) = map(layout.size()) {
            return Self { start: start.cast(), len, mapped: true };
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { start, len, mapped: false }
    }

    fn layout(len: usize) -> Layout {
        let layout = Layout::array::<AtomicU64>(len).and_then(|layout| layout.align_to(LINE));
        layout.expect("words longer than memory")
    }
}

/// A mapping, where that is worth it and there is one to be had. Miri knows of none.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    if bytes < Words::MAPPED_MIN || cfg!(miri) {
        return None;
    }
    let more = |mappings: usize| (mappings < MAPPINGS_MAX).then_some(mappings + 1);
    MAPPINGS.fetch_update(Relaxed, Relaxed, more).ok()?;
    // SAFETY: a new mapping, which overlaps nothing.
    let mapped =
        unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    let mapped = mapped.ok().and_then(|mapped| NonNull::new(mapped.cast()));
    if mapped.is_none() {
        MAPPINGS.fetch_sub(1, Relaxed);
    }
    mapped
}

impl Drop for Words {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        if self.mapped {
            // SAFETY: the mapping is its own, of this length, and nothing refers to it any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), layout.size()) };
            MAPPINGS.fetch_sub(1, Relaxed);
        } else if self.len > 0 {
            // SAFETY: it came from the allocator with this layout, and nothing refers to it any more.
            unsafe { alloc::dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `len` initialised words begin there (or `len` is 0), and live as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_of_the_asked_length() {
        let long = Words::MAPPED_MIN / 8;
        for len in [0, 1, 8, 1000, long - 1, long, long + 1, 4 * long] {
            let words = Words::zeroed(len);
            assert_eq!((words.len(), words.mapped), (len, len >= long && !cfg!(miri)));
            assert!(words.iter().all(|word| word.load(Relaxed) == 0));
            assert!(words.iter().enumerate().all(|(at, word)| word.swap(at as u64, Relaxed) == 0));
            assert_eq!(words.as_ptr() as usize % if len == 0 { 8 } else { LINE }, 0);
        }
    }
}
