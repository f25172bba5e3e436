//! A limit on the memory of a process, page cache included, so that peers that lean on the page cache are given
//! what the others are given. It takes a control group, hence root; without one, the report says so.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A control group with a memory limit; removed when dropped.
pub struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// Makes the group. `name` must be unique on the machine.
    ///
    /// # Errors
    /// Without the right to, or without a memory controller.
    pub fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let old = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) =
            if old.is_dir() { (old, "memory.limit_in_bytes") } else { (Path::new("/sys/fs/cgroup"), "memory.max") };
        let folder = root.join(name);
        fs::create_dir(&folder)?;
        let group = Self { folder };
        fs::write(group.folder.join(limit), bytes.to_string())?;
        Ok(group)
    }

    /// The file that a process writes its number to when it joins.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The kernel may still be letting go of the last process.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Puts this process in the group whose door this is.
///
/// # Errors
/// When the kernel refuses.
pub fn join(door: &Path) -> io::Result<()> {
    fs::write(door, std::process::id().to_string())
}

/// Asks the kernel to forget all clean cached pages. Needs root; whether it worked.
pub fn drop_page_cache() -> bool {
    nix::unistd::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
