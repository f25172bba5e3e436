//! Aligned memory that direct I/O can use, and the pool it goes home to.
//!
//! Invariants:
//! - the address of an [`AlignedBuf`] is a multiple of [`ALIGN`] and its bytes are always initialised;
//! - a buffer owns its memory alone: the pool holds only memory that no buffer refers to;
//! - the pool never keeps more idle bytes than it was told to: half of them by length, half as pages.
//!
//! Why a pool: a fresh 256 KiB buffer costs a zeroing pass and up to 64 page faults, more than the
//! system call that fills it.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::page_alloc::{self, ALIGN, PageAlloc};

/// Heap bytes whose address is a multiple of [`ALIGN`]; the memory returns to its [`BufPool`], if it
/// has one, when the buffer is dropped, also when a [`Bytes`] owned it.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Bytes allocated at `ptr`; 0 for a buffer without memory, whose `ptr` then dangles.
    capacity: usize,
    home: Option<Arc<PoolInner>>,
}

// SAFETY: the buffer owns its bytes alone and hands out references by the usual borrow rules, as a
// `Box<[u8]>` does; the pool behind `home` is `Send + Sync`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; `&AlignedBuf` gives only shared access to plain bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of length 0 that owns no memory.
    #[must_use]
    pub const fn empty() -> Self {
        Self { ptr: NonNull::dangling(), len: 0, capacity: 0, home: None }
    }

    /// `len` zero bytes. The length may be anything; direct I/O wants a multiple of the block size.
    ///
    /// # Panics
    /// If `len` is above `isize::MAX` rounded down to pages. Running out of memory aborts, as for `Vec`.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self::empty();
        }
        let capacity = len.next_multiple_of(ALIGN);
        Self { ptr: allocate_zeroed(capacity), len, capacity, home: None }
    }

    /// A copy of `bytes` at an aligned address.
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of memory held, at least [`len`](slice::len): what a memory budget should count.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shortens the buffer to `len`; does nothing if it is already shorter. The memory stays held.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Freezes the buffer into [`Bytes`] without copying; slices at block offsets stay aligned.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        match self.home.take() {
            Some(pool) => pool.put(Memory { ptr: self.ptr, capacity: self.capacity }),
            // SAFETY: `ptr` came from `allocate_zeroed(capacity)`, which used the same layout, and this is its only
            // owner. The layout was valid then, so it is now.
            None => unsafe {
                alloc::dealloc(self.ptr.as_ptr(), Layout::from_size_align_unchecked(self.capacity, ALIGN));
            },
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len <= capacity` initialised bytes (or dangling and `len` 0),
        // and no `&mut` to them exists while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<AlignedBuf> for Bytes {
    fn from(buf: AlignedBuf) -> Self {
        buf.into_bytes()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .field("pooled", &self.home.is_some())
            .finish()
    }
}

/// Lends buffers and keeps returned memory for the next taker. Clones share the same memory.
///
/// Sizes are rounded up to four steps per power of two (4, 8, 12, 16, 20, 24, 28, 32, 40 KiB ...), so a
/// buffer holds at most a quarter more memory than it was asked for, and buffers of similar lengths
/// share idle memory. Above [`BufPool::MAX_POOLED`] buffers are plain allocations.
#[derive(Clone)]
pub struct BufPool {
    inner: Arc<PoolInner>,
}

impl BufPool {
    /// Longest buffer that is kept for reuse, in bytes.
    pub const MAX_POOLED: usize = 4 << 20;

    /// What the memory of [`BufPool::copy`] is a multiple of, in bytes.
    pub const COPY_STEP: usize = 128;

    /// A pool that keeps at most `max_idle_bytes` of memory that no one is using.
    #[must_use]
    pub fn new(max_idle_bytes: usize) -> Self {
        let classes = class_of(Self::MAX_POOLED) + 1;
        let idle = (0..classes).map(|_| Mutex::new(Vec::new())).collect();
        let copies = (0..COPIES).map(|_| Mutex::new(Vec::new())).collect();
        let max_idle_bytes = max_idle_bytes / 2;
        let pages = Mutex::new(PageAlloc::new(max_idle_bytes));
        Self {
            inner: Arc::new(PoolInner {
                idle,
                copies,
                pages,
                idle_bytes: AtomicUsize::new(0),
                turn: AtomicUsize::new(0),
                max_idle_bytes,
            }),
        }
    }

    /// A buffer of `len` bytes. **Its contents are not zeroed**: they are zeros the first time and
    /// afterwards whatever an earlier holder left there, so write before you read or publish.
    ///
    /// # Panics
    /// As [`AlignedBuf::zeroed`].
    #[must_use]
    pub fn take(&self, len: usize) -> AlignedBuf {
        if len == 0 || len > Self::MAX_POOLED {
            return AlignedBuf::zeroed(len);
        }
        let class = class_of(len);
        let Memory { ptr, capacity } = self.inner.get(class);
        AlignedBuf { ptr, len, capacity, home: Some(Arc::clone(&self.inner)) }
    }

    /// A copy of `bytes`, in memory that comes home like a buffer's: for what is kept of a longer read. Not aligned,
    /// and less than [`BufPool::COPY_STEP`] bytes longer than it need be.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Bytes {
        let steps = bytes.len().div_ceil(Self::COPY_STEP);
        if steps == 0 || steps > COPIES {
            return Bytes::copy_from_slice(bytes);
        }
        let memory = self.inner.copies[steps - 1].lock().pop();
        let mut memory = match memory {
            Some(memory) => {
                self.inner.idle_bytes.fetch_sub(memory.len(), Ordering::Relaxed);
                memory
            }
            None => vec![0; steps * Self::COPY_STEP].into_boxed_slice(),
        };
        memory[..bytes.len()].copy_from_slice(bytes);
        Bytes::from_owner(Copied { memory, len: bytes.len(), home: Arc::clone(&self.inner) })
    }

    /// Bytes of memory that a buffer of [`BufPool::take`] holds, and what owns it once it is [`Bytes`].
    #[must_use]
    pub const fn taken(len: usize) -> usize {
        let pooled = len > 0 && len <= Self::MAX_POOLED;
        OWNER + if pooled { class_len(class_of(len)) } else { len.next_multiple_of(ALIGN) }
    }

    /// Bytes of memory that a copy holds.
    #[must_use]
    pub const fn copied(len: usize) -> usize {
        let steps = len.div_ceil(Self::COPY_STEP);
        OWNER + if steps <= COPIES { ALLOCATED + steps * Self::COPY_STEP } else { len }
    }

    /// Bytes kept for the next takers.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        self.inner.idle_bytes.load(Ordering::Relaxed) + self.inner.pages.lock().spare_bytes()
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool")
            .field("idle_bytes", &self.idle_bytes())
            .field("max_idle_bytes", &self.inner.max_idle_bytes)
            .finish()
    }
}

/// Idle memory by length.
type Idle<T> = Box<[Mutex<Vec<T>>]>;

struct PoolInner {
    /// Idle memory per size class; most recently used last, because it is warm in the CPU's cache.
    idle: Idle<Memory>,
    /// The same for copies, by their length in steps. An allocator that splits and joins its chunks for each of them
    /// took a sixteenth of the processor that a get takes.
    copies: Idle<Box<[u8]>>,
    /// Where the memory of buffers comes from; every buffer keeps this alive.
    pages: Mutex<PageAlloc>,
    /// Sum of the capacities in `idle` and `copies`, plus what is about to be added.
    idle_bytes: AtomicUsize,
    /// Which length is to lose one next.
    turn: AtomicUsize,
    max_idle_bytes: usize,
}

impl PoolInner {
    fn get(&self, class: usize) -> Memory {
        let capacity = class_len(class);
        let Some(memory) = self.idle[class].lock().pop() else {
            return Memory { ptr: self.pages.lock().take(capacity), capacity };
        };
        self.idle_bytes.fetch_sub(capacity, Ordering::Relaxed);
        memory
    }

    fn put(&self, memory: Memory) {
        if self.has_room(memory.capacity) {
            self.idle[class_of(memory.capacity)].lock().push(memory);
        } else {
            self.free(memory);
        }
    }

    /// Reserves room for so many idle bytes, so that the bound holds however many threads return at once. Where there
    /// is none, lengths lose one each in turn: what is kept in the end is of the lengths that are asked for now.
    fn has_room(&self, bytes: usize) -> bool {
        let more = |idle: usize| idle.checked_add(bytes).filter(|&sum| sum <= self.max_idle_bytes);
        let reserve = || self.idle_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        let lengths = self.idle.len() + self.copies.len();
        let tries = if bytes <= self.max_idle_bytes { lengths } else { 0 };
        for _ in 0..tries {
            if reserve() {
                return true;
            }
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % lengths;
            let freed = match turn.checked_sub(self.idle.len()) {
                None => {
                    let one = self.idle[turn].lock().pop();
                    one.map_or(0, |memory| self.free(memory))
                }
                Some(steps) => self.copies[steps].lock().pop().map_or(0, |memory| memory.len()),
            };
            self.idle_bytes.fetch_sub(freed, Ordering::Relaxed);
        }
        false
    }

    /// Gives memory back to the page allocator: how much it was.
    fn free(&self, memory: Memory) -> usize {
        // SAFETY: it came from these chunks as it is, and no buffer refers to it.
        unsafe { page_alloc::put_back(&self.pages, memory.ptr, memory.capacity) };
        memory.capacity
    }
}

/// Longest copy whose memory is kept for reuse, in steps: 8 KiB.
const COPIES: usize = 64;

/// Bytes that an allocator takes beside those it was asked for, of the usual ones.
const ALLOCATED: usize = 16;

/// Bytes of what owns the memory of a copy or of a buffer: see [`Bytes::from_owner`].
const OWNER: usize = 48 + ALLOCATED;

/// What owns the memory of a copy.
struct Copied {
    memory: Box<[u8]>,
    len: usize,
    home: Arc<PoolInner>,
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if self.home.has_room(memory.len()) {
            self.home.copies[memory.len() / BufPool::COPY_STEP - 1].lock().push(memory);
        }
    }
}

/// Memory of a pool's chunks that no buffer refers to.
struct Memory {
    ptr: NonNull<u8>,
    capacity: usize,
}

// SAFETY: plain owned memory, as a `Box<[u8]>`.
unsafe impl Send for Memory {}

/// `capacity` (not 0) zeroed bytes at a multiple of `ALIGN`.
fn allocate_zeroed(capacity: usize) -> NonNull<u8> {
    debug_assert!(capacity != 0);
    let layout = Layout::from_size_align(capacity, ALIGN).expect("buffer longer than memory");
    // SAFETY: the size is not 0: every caller rounds a non-zero length up.
    let ptr = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(ptr).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// The smallest class whose buffers hold `len` bytes (`len` not 0).
///
/// Classes 0..4 are 1..=4 pages; from there each power of two is split in four.
const fn class_of(len: usize) -> usize {
    let last_page = (len - 1) / ALIGN;
    if last_page < 4 {
        return last_page;
    }
    let exponent = last_page.ilog2() as usize;
    let step = exponent - 2;
    (exponent - 1) * 4 + ((last_page >> step) & 3)
}

/// Bytes held by a buffer of this class.
const fn class_len(class: usize) -> usize {
    let pages = if class < 4 {
        class + 1
    } else {
        let step = class / 4 - 1;
        (4 + class % 4 + 1) << step
    };
    pages * ALIGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_tight_and_agree_both_ways() {
        let kib: Vec<usize> = (0..20).map(|class| class_len(class) / 1024).collect();
        let steps = [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256];
        assert_eq!(kib, steps);
        for len in (1..BufPool::MAX_POOLED).step_by(509) {
            let size = class_len(class_of(len));
            let pages = len.next_multiple_of(ALIGN);
            assert!(size >= pages && size <= pages + pages / 4, "{len} got {size}");
            assert_eq!(class_of(size), class_of(len));
        }
        assert_eq!(class_len(class_of(BufPool::MAX_POOLED)), BufPool::MAX_POOLED);
    }

    #[test]
    fn a_buffer_is_aligned_zeroed_and_of_the_asked_length() {
        for len in [1, 512, 4096, 12_288, 1 << 20] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % ALIGN, 0);
            assert!(buf.iter().all(|&b| b == 0));
        }
        assert!(AlignedBuf::zeroed(0).is_empty());
        assert_eq!(&AlignedBuf::copy_from(b"abc")[..], b"abc");
    }

    #[test]
    fn memory_comes_home_also_from_bytes() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.take(10_000);
        buf[0] = 7;
        let address = buf.as_ptr();
        let whole = buf.into_bytes();
        let part = whole.slice(4096..8192);
        assert_eq!(part.as_ptr() as usize, address as usize + 4096);
        drop(whole);
        assert_eq!(pool.idle_bytes(), 0, "a slice still holds the memory");
        drop(part);
        assert_eq!(pool.idle_bytes(), 12_288);
        let again = pool.take(12_000);
        assert_eq!((again.as_ptr(), again[0]), (address, 7), "reused, not zeroed");
    }

    #[test]
    fn a_copys_memory_comes_home_for_the_next_of_its_length() {
        let pool = BufPool::new(1 << 20);
        let copy = pool.copy(&[7; 1000]);
        assert_eq!(&copy[..], [7; 1000]);
        let (address, part) = (copy.as_ptr(), copy.slice(10..20));
        drop(copy);
        assert_eq!(pool.idle_bytes(), 0, "a slice still holds the memory");
        drop(part);
        assert_eq!(pool.idle_bytes(), 1024);
        let again = pool.copy(&[8; 900]);
        assert_eq!((again.as_ptr(), &again[..], pool.idle_bytes()), (address, &[8; 900][..], 0));
        for len in [0, 1, 128, 129, 8192, 8193, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(pool.copy(&bytes), bytes);
        }
        let kept = pool.idle_bytes();
        assert_eq!(kept, 128 + 256 + 8192, "what is empty or long is not kept, and the shortest served twice");
        let full = BufPool::new(2000);
        drop(full.copy(&[1; 1000]));
        assert_eq!(full.idle_bytes(), 0, "no room");
    }

    #[test]
    fn idle_memory_is_bounded() {
        let pool = BufPool::new(6 * 4096);
        let bufs: Vec<_> = (0..8).map(|_| pool.take(4096)).collect();
        drop(bufs);
        assert_eq!(pool.idle_bytes(), 6 * 4096);
        drop(pool.take(BufPool::MAX_POOLED + 1));
        assert_eq!(pool.idle_bytes(), 6 * 4096);
        assert_eq!(pool.inner.idle_bytes.load(Ordering::Relaxed), 3 * 4096);
        for _ in 0..20 {
            drop(pool.take(8192));
        }
        assert!(pool.inner.idle[1].lock().len() == 1 && pool.idle_bytes() <= 6 * 4096, "what is asked for is kept");
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let pool = BufPool::new(4096);
        let mut buf = pool.take(4096);
        drop(pool);
        buf[4095] = 1;
        assert_eq!(buf[4095], 1);
    }

    #[test]
    fn threads_share_a_pool() {
        let bound = 8 * 4096;
        let pool = BufPool::new(bound);
        std::thread::scope(|scope| {
            for id in 0..4u8 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for round in 0..200 {
                        let mut buf = pool.take(4096 * (1 + round % 3));
                        buf.fill(id);
                        assert!(buf.iter().all(|&b| b == id));
                        drop((buf, pool.copy(&[id; 700])));
                        assert!(pool.idle_bytes() <= bound, "at every moment");
                    }
                });
            }
        });
        assert!(pool.idle_bytes() <= bound);
    }
}
