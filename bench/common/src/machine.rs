//! The machine a result was measured on, and its block device's own counters.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// One line that names the machine: processor, cores, memory, kernel, file system of the folder.
pub fn describe(folder: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
            .map_or(String::from("?"), |(_, value)| value.trim().to_owned())
    };
    let processor = after(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory: u64 =
        after(&read("/proc/meminfo"), "MemTotal").split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processor}, {cores} cores, {} GiB, Linux {}, {} on {}",
        memory >> 20,
        kernel.trim(),
        file_system(folder).unwrap_or_else(|| "?".into()),
        block_device(folder).map_or_else(|_| "?".into(), |device| device.name()),
    )
}

/// Kind of the file system that holds a folder.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut parts = line.split(' ').skip(1);
            Some((parts.next()?, parts.next()?))
        })
        .filter(|(at, _)| folder.starts_with(at))
        .max_by_key(|(at, _)| at.len())
        .map(|(_, kind)| kind.to_owned())
}

/// A block device known to the kernel.
pub struct BlockDevice(PathBuf);

/// The device that holds a folder.
///
/// # Errors
/// When the folder is on no block device, as on an overlay or a memory file system.
pub fn block_device(folder: &Path) -> Result<BlockDevice> {
    let number = fs::metadata(folder).with_context(|| folder.display().to_string())?.dev();
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let device = link.canonicalize().with_context(|| format!("{} is on no block device", folder.display()))?;
    Ok(BlockDevice(device))
}

impl BlockDevice {
    /// Its short name.
    pub fn name(&self) -> String {
        self.0.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Bytes written to it since boot, by everybody.
    pub fn written(&self) -> u64 {
        let stat = fs::read_to_string(self.0.join("stat")).unwrap_or_default();
        // Field 7 is sectors written, of 512 bytes whatever the device's own.
        stat.split_whitespace().nth(6).and_then(|sectors| sectors.parse::<u64>().ok()).unwrap_or(0) * 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores() {
        let line = describe(Path::new("/"));
        assert!(line.contains(" cores, ") && line.contains("Linux "), "{line}");
    }
}
