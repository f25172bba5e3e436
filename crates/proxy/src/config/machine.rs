//! Sizes chosen from the machine when none were given: half of the free disk up to 16 GiB, a quarter of the
//! available memory up to 2 GiB, one worker a core.

use std::{
    fs,
    io::{Seek, SeekFrom},
    num::NonZero,
    os::unix::fs::FileTypeExt,
    path::Path,
};

use super::{Size, StoreConfig, file::ConfigError};

/// Cores this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// How the store was made, if there is one that can be looked at.
pub(super) fn made(path: &Path) -> Option<picaflor::About> {
    match picaflor::inspect(path) {
        Ok(picaflor::Inspection::Store(about)) => Some(about),
        _ => None,
    }
}

/// The folder in which the store is, and its file system.
fn folder_of(path: &Path) -> Result<(&Path, rustix::fs::StatVfs), ConfigError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let stat = rustix::fs::statvfs(folder).map_err(|e| {
        ConfigError::value("store.path", format!("{}: {e}; name a folder that exists", folder.display()))
    })?;
    Ok((folder, stat))
}

/// Refuses a file that its file system has no room for, where it is new or `grows`. What else is there, has its room
/// already; and a folder of files is made with its parents, and takes its room as it fills.
pub(super) fn room_for(store: &StoreConfig, grows: bool) -> Result<(), ConfigError> {
    let has = match fs::metadata(&store.path) {
        Ok(meta) if !meta.is_file() || !grows && meta.len() > 0 => return Ok(()),
        meta => meta.map_or(0, |meta| meta.len()),
    };
    let more = store.capacity.0.saturating_sub(has);
    if more == 0 || store.options().is_ok_and(|options| options.wants_folder()) {
        return Ok(());
    }
    let (folder, stat) = folder_of(&store.path)?;
    // What is kept for the system's own user counts: a user that may use it is not refused.
    let free = stat.f_bfree.saturating_mul(stat.f_frsize);
    if more > free {
        let than = if has == 0 { String::new() } else { format!("{} more than it has, ", Size(more)) };
        let why = format!(
            "{}, {than}and {} has {} MiB free; give less, or another place with store.path",
            store.capacity,
            folder.display(),
            free >> 20
        );
        return Err(ConfigError::no_room("store.capacity", store.capacity.to_string(), why));
    }
    Ok(())
}

/// Bytes of a block device.
pub(super) fn device_len(path: &Path) -> Option<Size> {
    let is_device = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    is_device.then(|| len_of(path)).flatten().map(Size)
}

fn len_of(path: &Path) -> Option<u64> {
    fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()
}

/// Of an existing file or device its own size, else chosen from what is free.
pub(super) fn store_capacity(path: &Path) -> Result<Size, ConfigError> {
    if let Ok(meta) = fs::metadata(path)
        && !meta.is_dir()
        && let Some(len) = len_of(path)
        && len > 0
    {
        return Ok(Size(len));
    }
    let (folder, stat) = folder_of(path)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let size = (free / 2).min(16 << 30) >> 20 << 20;
    if size < 64 << 20 {
        return Err(ConfigError::no_room(
            "store.capacity",
            "chosen".into(),
            format!("only {} bytes are free in {}; name another folder with store.path", free, folder.display()),
        ));
    }
    Ok(Size(size))
}

/// A quarter of what the machine, or the control group, has left.
pub(super) fn store_memory() -> Size {
    let available = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib << 10);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    Size((available.min(group) / 4).clamp(64 << 20, 2 << 30) >> 20 << 20)
}
