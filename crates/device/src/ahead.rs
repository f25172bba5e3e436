//! What can be told about memory: to the processor, what is soon wanted; to the system, what is wanted no more.

use rustix::mm::{Advice, madvise};

use crate::page_alloc::HUGE;

/// Starts bringing the cache line of `what` nearer. Costs next to nothing, and waits for nothing: worth it where a
/// line that was not used lately is wanted a microsecond from now.
#[inline]
pub fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// From here on the allocator takes memory from the system for one piece, and gives it back with it: glibc's threshold
/// grows no further than 32 MiB.
const OWN_MAPPING: usize = 32 << 20;
/// An empty vector with room for so many bytes. Where that is a mapping of its own it is of huge pages, if the system
/// has them where it is asked: to touch it for the first time, a page of 4 KiB after the other, takes longer than to
/// read as much from a fast device.
pub fn with_room(bytes: usize) -> Vec<u8> {
    let mut room = Vec::with_capacity(bytes);
    if bytes > OWN_MAPPING {
        let spare = room.spare_capacity_mut();
        let start = spare.as_mut_ptr().cast::<u8>();
        let before = start.align_offset(HUGE);
        let len = spare.len().saturating_sub(before) / HUGE * HUGE;
        if len > 0 {
            // SAFETY: whole huge pages of memory that is the vector's own and mapped; the advice changes none of it.
            // A kernel without them refuses, and then these are small ones.
            let _ = unsafe { madvise(start.add(before).cast(), len, Advice::LinuxHugepage) };
        }
    }
    room
}

/// Gives memory that was freed back to the system, where the allocator keeps it otherwise. For after work that needed
/// much and is done with it; takes about a millisecond for each ten megabytes.
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: the signature is glibc's; it touches only what is free, under the allocator's own locks.
        unsafe { malloc_trim(0) };
    }
}

/// Has the threads of this process share so many arenas of the allocator. Left alone, glibc makes up to eight for each
/// processor, and what one thread frees is of no use to those of another arena: where threads hand buffers to each
/// other, each arena keeps what it once took. For a program to say as it starts; a library's threads are not its own.
pub fn share_arenas(most: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// `M_ARENA_MAX` of glibc's `malloc.h`.
        const ARENA_MAX: i32 = -8;
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        // SAFETY: the signature is glibc's; it sets a number, under the allocator's own lock.
        unsafe { mallopt(ARENA_MAX, i32::try_from(most.max(1)).unwrap_or(i32::MAX)) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = most;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_however_much_is_asked_for() {
        for bytes in [0, 1, OWN_MAPPING, OWN_MAPPING + 1, OWN_MAPPING + 2 * HUGE + 5] {
            let mut room = with_room(bytes);
            assert!(room.is_empty() && room.capacity() >= bytes);
            room.resize(bytes, 7);
            assert!(room.iter().all(|byte| *byte == 7));
        }
    }
}
