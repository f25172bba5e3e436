//! A volume that a file system is made on for the run, and mounted: a loop device on a file in the folder that was
//! given, or compressed memory (zram), which holds volumes larger than the disk and the memory of the machine, for
//! bodies are zeros between their marks there. It is unmounted and removed when the run ends, fails or is interrupted;
//! what a run left that was killed, the next one removes.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{self, Command, Output},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_proxy::config::Size;

use crate::{Error, Result, age::spec::Medium};

/// What ext4 would make in the background, when it is mounted.
const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";
/// Nothing is kept back for root, nor made later in the background; blocks and inodes of small volumes are as on large
/// ones.
pub(super) const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-i", "16384", "-E", LAZY];
pub(super) const XFS: &[&str] = &["mkfs.xfs", "-q", "-f"];
/// One copy of the metadata, as on a device that is no disk.
pub(super) const BTRFS: &[&str] = &["mkfs.btrfs", "-q", "-f", "-m", "single"];
/// For the files of a database or an engine: few inodes, so that nearly all of the volume is theirs.
pub(super) const FEW_FILES: &[&str] = &["mkfs.ext4", "-q", "-F", "-m", "0", "-T", "largefile4", "-E", LAZY];

/// Folders of runs, with the number of the process in the name.
const PREFIX: &str = "picaflor-lab-age-";
/// Makes and removes devices of compressed memory.
const ZRAM: &str = "/sys/class/zram-control";
/// In the folder of a run: the number of its device of compressed memory.
const NUMBER: &str = "zram";
/// Bytes of a volume to one of compressed memory, with objects in all of its pages: each of 4 KiB takes some 150 bytes,
/// and 16 of a table.
const COMPRESSED: u64 = 24;

/// Folders of this process that have a file system mounted in them.
static MOUNTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether this process may make and mount file systems: it is root, and has loop devices, which a container may not.
#[must_use]
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && command("losetup", &["--find"]).is_ok()
}

/// Whether volumes of so many bytes can be made on compressed memory, as far as that shows before.
pub(in crate::age) fn check_zram(largest: u64) -> Result<()> {
    if !rustix::process::geteuid().is_root() || !Path::new(ZRAM).exists() {
        let why = "needs root and the kernel's zram: run as root after `modprobe zram`, or leave it out";
        return Err(Error::experiment("--on zram", why));
    }
    has_memory("MemTotal:", largest)
}

/// Whether there is the memory that a volume takes, by this line of the kernel's.
fn has_memory(line: &str, volume: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().next()?.parse::<u64>().ok());
    let (there, needed) = (kib.map_or(u64::MAX, |kib| kib << 10), volume / COMPRESSED);
    if there >= needed {
        return Ok(());
    }
    let [there, needed, volume] = [there >> 20 << 20, needed >> 20 << 20, volume].map(Size);
    let why = format!("{there} of memory, and a volume of {volume} takes {needed} of it: lower --volume");
    Err(Error::experiment("--on zram", why))
}

/// Unmounts what this process has mounted and removes it, for one that is about to end in the middle of a run. Calls of
/// the run fail from then on, and it waits for that end where it would unmount.
pub fn unmount_all() {
    let mut mounts = MOUNTS.lock();
    mounts.drain(..).for_each(|folder| remove(&folder));
    std::mem::forget(mounts);
}

fn remove(folder: &Path) {
    let mount = folder.join("mount");
    // Lazily: a file of it may still be open. A loop device goes with the last use of the file system; compressed
    // memory is given back once there is no such use.
    let _ = Command::new("umount").arg("--lazy").arg(&mount).output();
    if let Ok(number) = fs::read_to_string(folder.join(NUMBER)) {
        let gone = || fs::write(Path::new(ZRAM).join("hot_remove"), &number).is_ok();
        (0..100).find(|_| {
            gone() || {
                thread::sleep(Duration::from_millis(20));
                false
            }
        });
    }
    // The run may make a file in what is a folder like any other now, while others are removed.
    (0..100).find(|_| fs::remove_dir_all(folder).is_ok() || !folder.exists());
}

/// Removes what processes have left that are no more.
fn remove_left(within: &Path) -> io::Result<()> {
    for entry in fs::read_dir(within)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Runs a command of the system.
fn command(name: &str, arguments: &[&str]) -> Result<Output> {
    let done = Command::new(name).args(arguments).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let package = match name {
                "mkfs.xfs" => "xfsprogs",
                "mkfs.btrfs" => "btrfs-progs",
                "mkfs.ext4" => "e2fsprogs",
                _ => "mount and util-linux",
            };
            Error::experiment(name, format!("there is no such command: install {package}"))
        }
        _ => Error::experiment(name, error.to_string()),
    })?;
    if done.status.success() {
        return Ok(done);
    }
    // What follows the first line is how the command is used.
    let said = String::from_utf8_lossy(&done.stderr);
    let why = said.trim().lines().next().unwrap_or("it failed and did not say why");
    Err(Error::experiment(name, format!("{}: {why}", arguments.join(" "))))
}

/// A volume with a file system on it, mounted. All of it goes when this is dropped.
pub(in crate::age) struct Volume {
    folder: PathBuf,
    /// What the volume's bytes are read from.
    bytes: PathBuf,
    /// Number of the device.
    device: u64,
}

impl Drop for Volume {
    fn drop(&mut self) {
        remove(&self.folder);
        MOUNTS.lock().retain(|folder| *folder != self.folder);
    }
}

impl Volume {
    /// A volume of so many bytes, with what `make` makes on it: a command and its options, which is given the device.
    pub(super) fn new(on: Medium, len: u64, within: &Path, make: &[&str]) -> Result<Self> {
        remove_left(within).map_err(Error::file("listing", within))?;
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", process::id())).tempdir_in(within);
        let folder = folder.map_err(Error::file("making a folder in", within))?.keep();
        MOUNTS.lock().push(folder.clone());
        let mut volume = Self { bytes: folder.join("image"), folder, device: 0 };
        let place = volume.mount();
        fs::create_dir(&place).map_err(Error::file("making", &place))?;
        let device = match on {
            Medium::Folder => attach(&volume.bytes, len)?,
            Medium::Zram => {
                volume.bytes = compressed(&volume.folder, len)?;
                volume.bytes.to_string_lossy().into_owned()
            }
        };
        // What is deleted on compressed memory gives its room back.
        let mount = if on == Medium::Zram { "discard" } else { "defaults" };
        let mounted = command(make[0], &[&make[1..], &[device.as_str()]].concat())
            .and_then(|_| command("mount", &["-o", mount, &device, &place.to_string_lossy()]));
        volume.device = fs::metadata(&device).map_or(0, |device| device.rdev());
        if on == Medium::Folder {
            // In use by now, so it goes when the file system is unmounted; if it is not, at once.
            mounted.and(command("losetup", &["--detach", &device]))?;
        } else {
            mounted?;
        }
        Ok(volume)
    }

    /// Where its file system is.
    pub(super) fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// What its bytes are to be read from, as they are on the device now.
    pub(super) fn bytes(&self) -> Result<&Path> {
        if self.folder.join(NUMBER).exists() {
            // What was read of the device before is in memory still, however it was written to since.
            command("blockdev", &["--flushbufs", &self.bytes.to_string_lossy()])?;
        }
        Ok(&self.bytes)
    }

    /// Bytes written to the device so far.
    pub(super) fn written(&self) -> Option<u64> {
        let (major, minor) = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        // Sectors written, of 512 bytes.
        text.split_whitespace().nth(6)?.parse::<u64>().ok().map(|sectors| sectors * 512)
    }
}

/// A loop device on a file of so many bytes: past the memory of the file system below, where that can be.
fn attach(image: &Path, len: u64) -> Result<String> {
    let file = File::create_new(image).map_err(Error::file("making", image))?;
    file.set_len(len).map_err(Error::file("making", image))?;
    let path = image.to_string_lossy();
    let direct = command("losetup", &["--find", "--show", "--direct-io=on", &path]);
    let done = direct.or_else(|_| command("losetup", &["--find", "--show", &path]))?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// A device of compressed memory of so many bytes. Its number is kept in the folder before it holds anything.
fn compressed(folder: &Path, len: u64) -> Result<PathBuf> {
    has_memory("MemAvailable:", len)?;
    let add = Path::new(ZRAM).join("hot_add");
    let number = fs::read_to_string(&add).map_err(Error::file("reading", &add))?;
    let number = number.trim();
    let kept = folder.join(NUMBER);
    fs::write(&kept, number).map_err(Error::file("writing", &kept))?;
    let size = PathBuf::from(format!("/sys/block/zram{number}/disksize"));
    fs::write(&size, len.to_string()).map_err(Error::file("writing", &size))?;
    Ok(PathBuf::from(format!("/dev/zram{number}")))
}
