//! Memory as the kernel counts it, beside our own count: of this process at any time, and of one store under many small
//! objects, which is what strains the difference between the two.

use std::{fs, path::PathBuf, process};

use picaflor::{Options, Store};

/// What the kernel may count for a store whose memory is capped at `memory`: that, a tenth of it, and what a process
/// takes that does nothing.
#[must_use]
pub const fn bound(memory: u64) -> u64 {
    memory + memory / 10 + (16 << 20)
}

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

/// Bytes of memory that another process has resident now; none where the kernel does not say.
#[must_use]
pub fn of_process(id: u32) -> Option<u64> {
    within(&format!("/proc/{id}/status"), "VmRSS:")
}

fn of(name: &str) -> Option<u64> {
    within("/proc/self/status", name)
}

fn within(path: &str, name: &str) -> Option<u64> {
    let status = fs::read_to_string(path).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// A store to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Strain {
    /// Cap of memory, in bytes.
    pub memory: u64,
    /// Objects put.
    pub objects: u64,
    /// Bytes of each body.
    pub len: usize,
}

/// What was strained, lightest first.
pub const STRAINS: [Strain; 3] = [
    Strain { memory: 8 << 20, objects: 200_000, len: 100 },
    Strain { memory: 8 << 20, objects: 20_000, len: 8000 },
    Strain { memory: 64 << 20, objects: 2_500_000, len: 100 },
];

/// Bytes resident and counted, at their most, while a cache in a file is filled, and read now and then.
///
/// # Errors
/// What went wrong, in words.
pub fn strained(strain: &Strain) -> Result<(u64, u64), String> {
    let path = std::env::temp_dir().join(format!("picaflor-torture-{}.store", process::id()));
    let _remove = Remove(path.clone());
    let store =
        Store::open(Options::new(&path).capacity(1 << 30).memory(strain.memory)).map_err(|why| why.to_string())?;
    let body = vec![7; strain.len];
    let (mut resident, mut counted) = (0, 0);
    for number in 0..strain.objects {
        let key = |number: u64| format!("http://example.org/{number}");
        store.put(key(number).as_bytes(), &body).map_err(|why| why.to_string())?;
        if number % 7 == 0 {
            drop(store.get(key(number / 2).as_bytes()).map_err(|why| why.to_string())?);
        }
        if number % 4096 == 0 || number + 1 == strain.objects {
            resident = resident.max(now().ok_or("the kernel does not say what is resident")?);
            counted = counted.max(store.stats().memory_used);
        }
    }
    store.close().map_err(|why| why.to_string())?;
    Ok((resident, counted))
}

/// Removes a file at the end, however it comes.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        // Who ends a run by force finds it in the folder for such files.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_what_is_touched() {
        let (Some(before), Some(most_before)) = (now(), most()) else { return };
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = now().unwrap_or(0);
        assert!(after >= before + (60 << 20), "{before} {after}");
        assert!(most().unwrap_or(0) >= most_before.max(after), "{most_before}");
        drop(touched);
    }
}
