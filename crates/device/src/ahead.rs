//! What can be told about memory: to the processor, what is soon wanted; to the system, what is wanted no more.

/// Starts bringing the cache line of `what` nearer. Costs next to nothing, and waits for nothing: worth it where a
/// line that nobody used lately is wanted a microsecond from now.
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
