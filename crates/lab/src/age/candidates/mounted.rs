//! A file system that is made for the run: on a loop device, on a file in the folder that was given. It is unmounted
//! and removed when the run ends, fails or is interrupted; what a run left that was killed, the next one removes.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{self, Command, Output},
};

use parking_lot::Mutex;

use super::{
    candidate::{Candidate, Located, Manner, Write, Wrote},
    folder::Files,
};
use crate::{
    Error, Result,
    age::{kind::Kind, load::Load, marks, spec::Case},
};

/// What ext4 would make in the background, when it is mounted.
const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";

/// Folders of runs, with the number of the process in the name.
const PREFIX: &str = "picaflor-lab-age-";

/// Folders of this process that have a file system mounted in them.
static MOUNTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether this process may make and mount file systems: it is root, and has loop devices, which a container may not.
#[must_use]
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && command("losetup", &["--find"]).is_ok()
}

/// Unmounts what this process has mounted and removes it, for one that is about to end in the middle of a run. The run,
/// whose calls fail from then on, waits for that end where it would unmount.
pub fn unmount_all() {
    let mut mounts = MOUNTS.lock();
    mounts.drain(..).for_each(|folder| remove(&folder));
    std::mem::forget(mounts);
}

fn remove(folder: &Path) {
    let mount = folder.join("mount");
    // Lazily: a file of it may still be open. The loop device goes with the last use of the file system.
    let _ = Command::new("umount").arg("--lazy").arg(&mount).output();
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

/// A folder that is unmounted and removed when this is dropped.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        remove(&self.0);
        MOUNTS.lock().retain(|folder| *folder != self.0);
    }
}

pub(super) struct Mounted {
    files: Files,
    image: PathBuf,
    loop_device: u64,
    _mount: Mount,
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

impl Mounted {
    pub(super) fn new(case: &Case, within: &Path) -> Result<Self> {
        let kind = case.candidate;
        if !can_mount() {
            let why = "making and mounting a file system needs root and loop devices: run as root, or age `folder`";
            return Err(Error::experiment(kind.name(), why));
        }
        remove_left(within).map_err(Error::file("listing", within))?;
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", process::id())).tempdir_in(within);
        let folder = folder.map_err(Error::file("making a folder in", within))?.keep();
        MOUNTS.lock().push(folder.clone());
        let mount = Mount(folder.clone());
        let (image, place) = (folder.join("image"), folder.join("mount"));
        let file = File::create_new(&image).map_err(Error::file("making", &image))?;
        file.set_len(case.volume).map_err(Error::file("making", &image))?;
        fs::create_dir(&place).map_err(Error::file("making", &place))?;
        let (make, how): (&str, &[&str]) = match kind {
            // Nothing is kept back for root, nor made later in the background; blocks and inodes of small volumes are
            // as on large ones.
            Kind::Ext4 => ("mkfs.ext4", &["-q", "-F", "-m", "0", "-b", "4096", "-i", "16384", "-E", LAZY]),
            Kind::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            // One copy of the metadata, as on a device that is no disk.
            _ => ("mkfs.btrfs", &["-q", "-f", "-m", "single"]),
        };
        let device = attach(&image)?;
        let mounted = command(make, &[how, &[device.as_str()]].concat())
            .and_then(|_| command("mount", &[&device, &place.to_string_lossy()]));
        let number = fs::metadata(&device).map_or(0, |device| device.rdev());
        // In use by now, so it goes when the file system is unmounted; if it is not, at once.
        let detached = command("losetup", &["--detach", &device]);
        mounted.and(detached)?;
        Ok(Self { files: Files::new(&place)?, image, loop_device: number, _mount: mount })
    }
}

/// A loop device on a file: past the memory of the file system below, where that can be.
fn attach(image: &Path) -> Result<String> {
    let path = image.to_string_lossy();
    let direct = command("losetup", &["--find", "--show", "--direct-io=on", &path]);
    let done = direct.or_else(|_| command("losetup", &["--find", "--show", &path]))?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

impl Candidate for Mounted {
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote> {
        self.files.write(writes, manner)
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.files.delete(object)
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        self.files.read(object, into)
    }

    fn settle(&mut self) -> Result<()> {
        self.files.settle()
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        let told = self.files.locate(load)?.told;
        Ok(Located { marks: Some(marks::scan(&self.image, load)?), told })
    }

    fn written(&mut self) -> Option<u64> {
        let (major, minor) = (rustix::fs::major(self.loop_device), rustix::fs::minor(self.loop_device));
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        // Sectors written, of 512 bytes.
        text.split_whitespace().nth(6)?.parse::<u64>().ok().map(|sectors| sectors * 512)
    }
}
