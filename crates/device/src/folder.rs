//! Files under names, for layouts that keep one file per object: a real folder here, a modelled file system
//! in the lab.
//!
//! Invariants:
//! - a path is relative, of plain names parted by `/`; nothing outside the folder is ever named;
//! - under a name there is a whole file or none: it is written under a temporary name and renamed. After a crash of
//!   the machine a file that no [`Folder::sync`] followed may be empty or in part, so contents carry checksums;
//! - one opener at a time, across processes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::file_core::named;
use crate::open::{PRIVATE, lock};

/// Where files live. Paths are relative, of names parted by `/`, as `00/1f/3a`; a name that starts with `.new-` is
/// refused.
pub trait Folder: Send + Sync {
    /// Makes a directory whose parent exists. Fine if it is there.
    ///
    /// # Errors
    /// Any error of the medium; `NotFound` without a parent; `InvalidInput` for a path that is none.
    fn make_dir(&self, path: &str) -> io::Result<()>;

    /// Creates the file, or replaces it whole. Not durable before the next [`Folder::sync`].
    ///
    /// # Errors
    /// As [`Folder::make_dir`]. After an error the name holds what it held before, or the new file.
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// The whole file.
    ///
    /// # Errors
    /// As [`Folder::make_dir`]; `NotFound` if there is none.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// Removes the file. Not durable before the next [`Folder::sync`].
    ///
    /// # Errors
    /// As [`Folder::read`].
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Tells `each` the path and length in bytes of every file, in no order. What is written or removed
    /// meanwhile may be told or not.
    ///
    /// # Errors
    /// Any error of the medium.
    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()>;

    /// Makes everything that completed before this call durable.
    ///
    /// # Errors
    /// An error means that nothing is known of any change since the last successful sync.
    fn sync(&self) -> io::Result<()>;

    /// What runs behind the seam, for logs and reports.
    fn backend(&self) -> String;
}

/// Temporary names start so.
const TEMPORARY: &str = ".new-";

/// A folder of the system's own file system. Symbolic links in it are the owner's affair: they are followed.
#[derive(Debug)]
pub struct RealFolder {
    root: PathBuf,
    /// Holds the lock; also what `syncfs` is called on.
    directory: File,
    /// Which folders this opening made, innermost first.
    made: Vec<PathBuf>,
    /// Nanoseconds since 1970 at opening: tells this opener's temporary names from those a crash left.
    opened: u128,
    next: AtomicU64,
    /// Permissions of new files.
    mode: u32,
}

impl RealFolder {
    /// Opens the folder, making it and its parents if missing, for its owner alone.
    ///
    /// # Errors
    /// Naming the folder: `ResourceBusy` if another holds it, or any error of the system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_with(path, PRIVATE)
    }

    /// As [`RealFolder::open`]. New files have the permissions `mode`, and new folders may be searched by users that
    /// may read these; the umask takes away of both. What is there keeps its own.
    ///
    /// # Errors
    /// As [`RealFolder::open`].
    pub fn open_with(path: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let root = path.as_ref().to_owned();
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = root.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        fs::DirBuilder::new().recursive(true).mode(of_folder(mode)).create(&root).map_err(|error| {
            match error.kind() {
                io::ErrorKind::AlreadyExists => io::Error::new(
                    io::ErrorKind::NotADirectory,
                    format!("{}: a file stands where a folder is wanted, one file for each object", root.display()),
                ),
                _ => named(&root, "make", None, error),
            }
        })?;
        let directory = File::open(&root).map_err(|error| named(&root, "open", None, error))?;
        if !directory.metadata().map_err(|error| named(&root, "stat", None, error))?.is_dir() {
            return Err(refused(&root, "not a folder"));
        }
        lock(&root, &directory, false)?;
        let opened = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(Self { root, directory, made, opened, next: AtomicU64::new(0), mode })
    }

    /// Takes away the folders that this opening made, and the files `written`; what was there before is not touched,
    /// nor a folder in which others have put something. For an opening that finds that there is to be no store after
    /// all. Nothing of it may be used afterwards.
    pub fn unmake(&self, written: &[&str]) {
        let Some(root) = self.made.first() else { return };
        for name in written {
            // What cannot be removed keeps its folder, and that is all it does.
            let _ = fs::remove_file(root.join(name));
        }
        let _ = self.made.iter().try_for_each(fs::remove_dir);
    }

    /// The path this folder was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    fn place(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path).map_err(|why| refused(&self.root.join(path), why))?;
        Ok(self.root.join(path))
    }

    fn mine(&self, name: &str) -> bool {
        name.strip_prefix(TEMPORARY)
            .and_then(|rest| rest.split_once('-'))
            .is_some_and(|(opened, _)| opened.parse() == Ok(self.opened))
    }

    /// One directory of a listing: its files are told, its directories queued, what a crash left is removed.
    fn list_dir(&self, dir: &str, each: &mut dyn FnMut(&str, u64), dirs: &mut Vec<String>) -> io::Result<()> {
        let place = self.root.join(dir);
        let failed = |error| named(&place, "list", None, error);
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with(TEMPORARY) {
                if !self.mine(&name) {
                    // It does no harm beyond its space, so failing to remove it is no failure of the listing.
                    let _ = fs::remove_file(entry.path());
                }
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => dirs.push(path),
                Ok(metadata) if metadata.is_file() => each(&path, metadata.len()),
                Ok(_) => {}
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

impl Folder for RealFolder {
    fn make_dir(&self, path: &str) -> io::Result<()> {
        let place = self.place(path)?;
        match fs::DirBuilder::new().mode(of_folder(self.mode)).create(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => Ok(()),
            outcome => outcome.map_err(|error| named(&place, "make", None, error)),
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let place = self.place(path)?;
        let name = format!("{TEMPORARY}{}-{}", self.opened, self.next.fetch_add(1, Ordering::Relaxed));
        // Beside its final name, so that the file system's own neighbourhood of a directory is kept.
        let temporary = place.with_file_name(name);
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(self.mode).open(&temporary)?;
            file.write_all(bytes)?;
            drop(file);
            fs::rename(&temporary, &place)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            named(&place, "write", None, error)
        })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let place = self.place(path)?;
        fs::read(&place).map_err(|error| named(&place, "read", None, error))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let place = self.place(path)?;
        fs::remove_file(&place).map_err(|error| named(&place, "remove", None, error))
    }

    /// Also removes the temporary files that a crash left behind. Files whose names are not UTF-8 are not told:
    /// they are not from here.
    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            self.list_dir(&dir, each, &mut dirs)?;
        }
        Ok(())
    }

    /// Syncs the whole file system that the folder is on: one call, however many files changed.
    fn sync(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.directory).map_err(|error| named(&self.root, "sync", None, error.into()))
    }

    fn backend(&self) -> String {
        "folder".to_owned()
    }
}

/// Permissions of a folder whose files have these: those who may read them may find them.
fn of_folder(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

/// Refuses what is not a relative path of plain names, or could be a temporary one.
///
/// # Errors
/// Why not.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    if !path.split('/').all(plain) || !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err("not a relative path of plain names");
    }
    if path.split('/').any(|name| name.starts_with(TEMPORARY)) {
        return Err("names that start with .new- are kept for files being written");
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn listing(folder: &RealFolder) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        folder.list(&mut |path, len| assert_eq!(found.insert(path.to_owned(), len), None)).unwrap();
        found
    }

    #[test]
    fn files_are_written_replaced_read_listed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(dir.path().join("a/b")).unwrap();
        folder.make_dir("00").unwrap();
        folder.make_dir("00").unwrap();
        folder.make_dir("00/1f").unwrap();
        folder.write("top", b"one").unwrap();
        folder.write("00/1f/deep", b"").unwrap();
        folder.write("top", b"three").unwrap();
        folder.sync().unwrap();
        assert_eq!(folder.read("top").unwrap(), b"three");
        assert_eq!(folder.read("00/1f/deep").unwrap(), b"");
        assert_eq!(listing(&folder), BTreeMap::from([("top".to_owned(), 5), ("00/1f/deep".to_owned(), 0)]));
        folder.remove("top").unwrap();
        for error in [folder.read("top").unwrap_err(), folder.remove("top").unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().contains("a/b/top"), "{error}");
        }
        assert_eq!(folder.write("none/x", b"x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(folder.make_dir("none/x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(listing(&folder).len(), 1);
    }

    #[test]
    fn a_path_that_escapes_is_refused_by_every_verb() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("outside"), b"x").unwrap();
        let folder = RealFolder::open(dir.path().join("inside")).unwrap();
        for path in ["../outside", "/etc/hostname", "a/../../outside", "", "a//b", "a/", ".", "a\0b", ".new-1-2"] {
            let errors = [
                folder.read(path).unwrap_err(),
                folder.write(path, b"y").unwrap_err(),
                folder.remove(path).unwrap_err(),
                folder.make_dir(path).unwrap_err(),
            ];
            assert!(errors.iter().all(|error| error.kind() == io::ErrorKind::InvalidInput), "{path:?}: {errors:?}");
        }
        assert_eq!(fs::read(dir.path().join("outside")).unwrap(), b"x");
    }

    #[test]
    fn what_was_made_is_taken_back_and_what_others_put_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(dir.path().join("a/b")).unwrap();
        folder.write("mine", b"x").unwrap();
        folder.unmake(&["mine", "never-written"]);
        assert!(!dir.path().join("a").exists());
        let folder = RealFolder::open(dir.path().join("a/b")).unwrap();
        folder.write("mine", b"x").unwrap();
        fs::write(dir.path().join("a/b/theirs"), b"y").unwrap();
        folder.unmake(&["mine"]);
        assert_eq!(listing(&folder), BTreeMap::from([("theirs".to_owned(), 1)]));
    }

    #[test]
    fn what_is_made_is_its_owners_alone_or_as_it_is_asked_for() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        let opened = RealFolder::open(dir.path().join("a")).unwrap();
        opened.make_dir("in").unwrap();
        opened.write("in/x", b"x").unwrap();
        assert_eq!([mode("a"), mode("a/in"), mode("a/in/x")], [0o700, 0o700, 0o600]);
        fs::create_dir(dir.path().join("b")).unwrap();
        let before = mode("b");
        let opened = RealFolder::open_with(dir.path().join("b"), 0o700).unwrap();
        opened.write("x", b"x").unwrap();
        assert_eq!((mode("b"), mode("b/x")), (before, 0o700), "a folder that is there keeps its own");
        assert_eq!((of_folder(0o600), of_folder(0o640), of_folder(0o644)), (0o700, 0o750, 0o755));
    }

    #[test]
    fn one_opener_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(dir.path()).unwrap();
        let error = RealFolder::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        drop(folder);
        RealFolder::open(dir.path()).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = RealFolder::open(&file).unwrap_err();
        assert!(error.to_string().contains("a file stands where a folder is wanted"), "{error}");
    }

    #[test]
    fn a_listing_removes_what_a_crash_left_and_not_what_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(dir.path()).unwrap();
        folder.make_dir("d").unwrap();
        let left = dir.path().join("d/.new-17-0");
        let ours = dir.path().join(format!("d/.new-{}-7", folder.opened));
        fs::write(&left, b"half").unwrap();
        fs::write(&ours, b"half").unwrap();
        assert!(listing(&folder).is_empty());
        assert!(!left.exists() && ours.exists());
    }

    #[test]
    fn a_reader_never_sees_half_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RealFolder::open(dir.path()).unwrap();
        folder.write("x", &[0; 100_000]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..60).for_each(|round| folder.write("x", &[round; 100_000]).unwrap()));
            for _ in 0..60 {
                let bytes = folder.read("x").unwrap();
                assert!(bytes.len() == 100_000 && bytes.iter().all(|&byte| byte == bytes[0]));
            }
        });
    }
}
