//! Memory as the kernel counts it, beside our own count.

use std::fs;

/// Most bytes of memory that this process has had resident; none where the kernel does not say.
#[must_use]
pub fn most() -> Option<u64> {
    of("VmHWM:")
}

/// Bytes of memory that this process has resident now; none where the kernel does not say.
#[must_use]
pub fn now() -> Option<u64> {
    of("VmRSS:")
}

fn of(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
