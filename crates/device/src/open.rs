//! Opening a file or block device: what it is, which process has it, how large, and where its blocks lie.
//!
//! Steps, in order:
//! 1. open, with `O_DIRECT` unless the file system refuses it;
//! 2. lock, so that one store has one writer;
//! 3. learn size and alignment, and refuse what does not fit the options;
//! 4. if the file is new, preallocate it and make its name durable.
//!
//! What fails leaves the path as it was: a file that was made for it is removed, one that was empty is empty again.
//!
//! Why preallocate, and how (ext4 on a cloud NVMe volume; one write, then `fdatasync`, mean times):
//!
//! | the blocks were                   | 256 KiB write + sync | 4 KiB write + sync |
//! |-----------------------------------|----------------------|--------------------|
//! | `fallocate`d, never written       | 165 + 187 us         | 66 + 201 us        |
//! | `FALLOC_FL_ZERO_RANGE`, the same  | 180 + 218 us         |                    |
//! | written before                    | 132 +  63 us         | 64 +  63 us        |
//!
//! The first write to a reserved block also converts its extent, and the sync then pays for a journal
//! commit: 130 us more, once per place. Writing everything at creation avoids that, at 1.5 GB/s: 0.17 s
//! for 256 MiB, 11 minutes for 1 TB. A log that goes round its file pays the conversion in the first
//! lap only, and less in all than the zeros would have cost. So small files are written, large ones
//! reserved; `FALLOC_FL_WRITE_ZEROES` is refused by most devices of today.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::AlignedBuf;
use crate::file_core::{Access, Before, FileCore, named};

/// What carries out submitted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring`, or the thread pool where the system refuses it.
    #[default]
    Auto,
    /// `io_uring`, or an error where the system refuses it.
    IoUring,
    /// Threads that call `pread` and `pwrite`.
    Pool,
}

/// How the blocks of a new regular file are obtained; the numbers are at the top of `open.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preallocate {
    /// [`Preallocate::Write`] up to [`Preallocate::AUTO_WRITE_MAX`], above it [`Preallocate::Reserve`].
    #[default]
    Auto,
    /// Reserve, then write zeros once: slow to create, every sync is cheap from the start.
    Write,
    /// Reserve only: created at once; the first write of each place makes the next sync dearer.
    Reserve,
}

impl Preallocate {
    /// Largest file that `Auto` writes full, in bytes: a fifth of a second on a fast device.
    pub const AUTO_WRITE_MAX: u64 = 256 << 20;
}

/// How [`FileDevice::open`](crate::FileDevice::open) opens a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Usable bytes. `None`: the whole existing file or device. A larger one is used up to this. Default `None`.
    pub capacity: Option<u64>,
    /// Make the regular file if it is missing or empty; needs a capacity. Default false.
    pub create: bool,
    /// Refuse writes; the lock is then shared with other readers. Default false.
    pub read_only: bool,
    /// Smallest unit of writing, in bytes; at least what the medium demands, which is the unit of reading. The
    /// default of 4096 suits nearly all of them, so a file can move from one to another.
    pub block_size: usize,
    /// Bypass the page cache where the file system allows it: the engine has its own cache, and a
    /// second copy of each page costs memory and time. Default true.
    pub direct: bool,
    /// What carries out submitted requests. Default `Auto`.
    pub backend: Backend,
    /// How a new file gets its blocks. Default `Auto`.
    pub preallocate: Preallocate,
    /// Permissions of a new file, of which the umask takes away; one that is there keeps its own. Default 0600.
    pub mode: u32,
}

/// Permissions of what is made unless told otherwise: the owner's alone.
pub const PRIVATE: u32 = 0o600;

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            capacity: None,
            create: false,
            read_only: false,
            block_size: 4096,
            direct: true,
            backend: Backend::Auto,
            preallocate: Preallocate::Auto,
            mode: PRIVATE,
        }
    }
}

/// Bytes written at once when a new file is filled: large enough for full bandwidth.
const FILL: usize = 1 << 20;

/// Opens and, if new, prepares the file.
pub(crate) fn open(path: &Path, options: &OpenOptions, progress: &mut dyn FnMut(u64, u64)) -> io::Result<FileCore> {
    check_options(path, options)?;
    let (file, direct, before) = open_locked(path, options)?;
    // Locked until the path is as it was.
    let held = file.try_clone().map_err(|error| named(path, "open", None, error))?;
    let core = describe(path, options, (file, direct, before)).inspect_err(|_| before.restore(path, &held))?;
    if core.capacity() == 0 {
        fill_new(&core, options, progress).inspect_err(|_| before.restore(path, &held))?;
    }
    Ok(core)
}

/// The file, why it is not `O_DIRECT` if it is not, and what was there.
type Opened = (File, Result<(), &'static str>, Before);

fn open_locked(path: &Path, options: &OpenOptions) -> io::Result<Opened> {
    loop {
        let absent = fs::symlink_metadata(path).is_err();
        let (file, direct) = open_file(path, options)?;
        lock(path, &file, options.read_only)?;
        let metadata = file.metadata().map_err(|error| named(path, "stat", None, error))?;
        if metadata.is_file() && metadata.nlink() == 0 {
            // The process that had the lock failed to make it, and removed it.
            continue;
        }
        let before = match metadata.is_file() && metadata.len() == 0 && !options.read_only {
            true if absent && options.create => Before::Nothing,
            true => Before::EmptyFile,
            false => Before::Something,
        };
        return Ok((file, direct, before));
    }
}

/// What is known of it; the capacity is 0 where it is to be made.
fn describe(path: &Path, options: &OpenOptions, (file, direct, before): Opened) -> io::Result<FileCore> {
    let metadata = file.metadata().map_err(|error| named(path, "stat", None, error))?;
    let is_block_device = metadata.file_type().is_block_device();
    let alignment = alignment(&file, is_block_device);
    let access = match (direct, alignment.refuses_direct) {
        (Ok(()), false) => Access::Direct,
        (Ok(()), true) => {
            leave_direct(path, &file)?;
            Access::Buffered("the file system refuses O_DIRECT")
        }
        (Err(why), _) => Access::Buffered(why),
    };
    if !options.block_size.is_multiple_of(alignment.offset) {
        let what = format!("block size {} is too small: the medium demands {}", options.block_size, alignment.offset);
        return Err(refused(path, what));
    }
    let length = if is_block_device {
        block_device_len(path, &file)?
    } else if metadata.is_file() {
        metadata.len()
    } else {
        return Err(refused(path, "neither a regular file nor a block device".to_owned()));
    };
    let is_new = !is_block_device && length == 0 && options.create && !options.read_only;
    Ok(FileCore {
        capacity: AtomicU64::new(if is_new { 0 } else { fit_capacity(path, options, length)? }),
        block_size: options.block_size,
        read_unit: alignment.offset.max(512).min(options.block_size),
        memory_align: if matches!(access, Access::Direct) { alignment.memory } else { 1 },
        file,
        path: path.to_owned(),
        access,
        read_only: options.read_only,
        is_block_device,
        before,
        gate: std::sync::Arc::default(),
        sync_failure: OnceLock::new(),
    })
}

fn check_options(path: &Path, options: &OpenOptions) -> io::Result<()> {
    let block = options.block_size;
    if !block.is_power_of_two() || block < 512 {
        return Err(refused(path, format!("block size {block} is not a power of two from 512 up")));
    }
    match options.capacity {
        Some(0) => Err(refused(path, "a capacity of 0 holds nothing".to_owned())),
        Some(capacity) if !capacity.is_multiple_of(block as u64) => {
            Err(refused(path, format!("capacity {capacity} is not a multiple of the block size {block}")))
        }
        None if options.create && !path.exists() => Err(refused(path, "a new file needs a capacity".to_owned())),
        _ => Ok(()),
    }
}

/// The open file, and why it is not `O_DIRECT` if it is not.
fn open_file(path: &Path, options: &OpenOptions) -> io::Result<(File, Result<(), &'static str>)> {
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(refused(path, "a directory, not a file or block device".to_owned()));
    }
    let is_block_device = existing.is_some_and(|metadata| metadata.file_type().is_block_device());
    let mut flags = OFlags::empty();
    if is_block_device && !options.read_only {
        // On a block device (and only there) this means: not while it is mounted or otherwise in use.
        flags |= OFlags::EXCL;
    }
    let with = |flags: OFlags| {
        fs::OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create && !options.read_only && !is_block_device)
            .truncate(false)
            .mode(options.mode)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    };
    // A block device is busy for a process that was just killed as a file is locked for it.
    let with = |flags: OFlags| {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match with(flags) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(in_use(path)),
                opened => return opened.map_err(|error| named(path, "open", None, error)),
            }
        }
    };
    if !options.direct {
        return Ok((with(flags)?, Err("as asked")));
    }
    match with(flags | OFlags::DIRECT) {
        Ok(file) => Ok((file, Ok(()))),
        // What open(2) says of a file system without direct I/O.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok((with(flags)?, Err("the file system refuses O_DIRECT")))
        }
        Err(error) => Err(error),
    }
}

/// How long another's lock is waited out: the kernel lets go of the files of an `io_uring` a moment after the
/// process that was killed is gone, on a busy machine a second later, and a restart at once must not be
/// told that it still runs.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// One writer, or any number of readers (`shared`), across processes. The lock goes when the file is closed,
/// also by `kill -9`.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another holds it for longer than three seconds.
pub fn lock(path: &Path, file: &File, shared: bool) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match if shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::WouldBlock) => return Err(in_use(path)),
            Err(fs::TryLockError::Error(error)) => return Err(named(path, "lock", None, error)),
        }
    }
}

/// What the medium demands of direct I/O, in bytes.
struct Alignment {
    memory: usize,
    offset: usize,
    refuses_direct: bool,
}

fn alignment(file: &File, is_block_device: bool) -> Alignment {
    // STATX_DIOALIGN, Linux 6.1; an older kernel leaves the bit out of the answer.
    let dio_align = StatxFlags::from_bits_retain(0x2000);
    if let Ok(stat) = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, dio_align)
        && stat.stx_mask & dio_align.bits() != 0
    {
        return Alignment {
            memory: (stat.stx_dio_mem_align as usize).max(1),
            offset: (stat.stx_dio_offset_align as usize).max(1),
            refuses_direct: stat.stx_dio_offset_align == 0,
        };
    }
    let sector = if is_block_device { rustix::fs::ioctl_blksszget(file).ok() } else { None };
    // Not known: 512 is what nearly every file system asks for, and the default block is 4096.
    let offset = sector.map_or(512, |bytes| bytes as usize);
    Alignment { memory: offset.max(512), offset, refuses_direct: false }
}

/// Takes `O_DIRECT` off a file that was opened with it.
fn leave_direct(path: &Path, file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file).and_then(|flags| rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT));
    flags.map_err(|error| named(path, "leave O_DIRECT", None, error.into()))
}

fn block_device_len(path: &Path, file: &File) -> io::Result<u64> {
    // The end of a block device is its size; its metadata says 0.
    rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
        .map_err(|error| named(path, "find the size", None, error.into()))
}

/// The usable bytes of what exists already.
fn fit_capacity(path: &Path, options: &OpenOptions, length: u64) -> io::Result<u64> {
    let block = options.block_size as u64;
    match options.capacity {
        Some(wanted) if wanted > length => {
            Err(refused(path, format!("{length} bytes long, shorter than the capacity of {wanted} bytes")))
        }
        Some(wanted) => Ok(wanted),
        None if length == 0 => Err(refused(path, "empty, and no capacity was given".to_owned())),
        None if !length.is_multiple_of(block) => {
            Err(refused(path, format!("{length} bytes long, not a multiple of the block size {block}")))
        }
        None => Ok(length),
    }
}

/// Gives a new file its blocks and makes it, and its name, durable.
fn fill_new(core: &FileCore, options: &OpenOptions, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    let Some(total) = options.capacity else {
        return Err(refused(&core.path, "a new file needs a capacity".to_owned()));
    };
    fill(core, 0..total, options.preallocate, progress)?;
    core.capacity.store(total, Relaxed);
    sync_parent(&core.path)
}

/// Makes a regular file shorter: see [`Device::shrink`](crate::Device::shrink).
pub(crate) fn shrink(core: &FileCore, capacity: u64) -> io::Result<()> {
    if capacity < core.capacity() && !core.is_block_device && !core.read_only {
        core.file.set_len(capacity).map_err(|error| core.error("shrink", error))?;
        core.capacity.store(capacity, Relaxed);
    }
    Ok(())
}

/// Makes a regular file longer, as a new one is made: see [`Device::grow`](crate::Device::grow).
pub(crate) fn grow(core: &FileCore, capacity: u64, how: Preallocate) -> io::Result<()> {
    let before = core.capacity();
    if capacity <= before {
        return Ok(());
    }
    let wrong = |kind, what: String| Err(core.error("grow", io::Error::new(kind, what)));
    if core.read_only {
        return wrong(io::ErrorKind::PermissionDenied, "opened read-only".to_owned());
    }
    if core.is_block_device {
        return wrong(io::ErrorKind::Unsupported, format!("a device of {before} bytes"));
    }
    if !capacity.is_multiple_of(core.block_size as u64) {
        let what = format!("{capacity} is not a multiple of the block size {}", core.block_size);
        return wrong(io::ErrorKind::InvalidInput, what);
    }
    let length = core.file.metadata().map_err(|error| core.error("stat", error))?.len();
    let filled = fill(core, length.min(capacity)..capacity, how, &mut |_, _| {});
    // Where it fails, the room that was had is given back.
    filled.inspect_err(|_| drop(core.file.set_len(length)))?;
    core.capacity.store(capacity, Relaxed);
    Ok(())
}

/// Gives a part of a file, up to its new end, its blocks, durably.
fn fill(core: &FileCore, part: Range<u64>, how: Preallocate, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    let total = part.end - part.start;
    if total == 0 {
        return Ok(());
    }
    let reserved = match rustix::fs::fallocate(&core.file, FallocateFlags::empty(), part.start, total) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => false,
        Err(error) => return Err(core.error("reserve space", error.into())),
    };
    let small = total <= Preallocate::AUTO_WRITE_MAX;
    // A file system that cannot reserve must be asked for the blocks by writing them.
    if !reserved || how == Preallocate::Write || (how == Preallocate::Auto && small) {
        let zeros = AlignedBuf::zeroed(FILL);
        let mut done = 0;
        while done < total {
            progress(done, total);
            let len = (total - done).min(FILL as u64);
            core.write_aligned(part.start + done, &zeros[..len as usize])?;
            done += len;
        }
        progress(total, total);
    }
    core.file.sync_all().map_err(|error| core.error("sync", error))
}

/// A new name is durable only when its directory is.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|error| named(parent, "sync the directory", None, error))
}

fn refused(path: &Path, what: String) -> io::Error {
    named(path, "open", None, io::Error::new(io::ErrorKind::InvalidInput, what))
}

fn in_use(path: &Path) -> io::Error {
    let what = "in use by another process, or opened twice by this one";
    named(path, "open", None, io::Error::new(io::ErrorKind::ResourceBusy, what))
}
