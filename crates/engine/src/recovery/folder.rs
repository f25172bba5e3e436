//! A place that is a folder: the superblocks are files in it, and so is the word that the last run closed the store.
//! What the other files are the layout knows that lies there.

use std::{io, path::Path};

use picaflor_device::Folder;
use picaflor_format::superblock::Superblock;

/// Written in turn, as on a device: of a file that no sync followed a crash may leave nothing.
pub(crate) const SUPERBLOCKS: [&str; 2] = ["store-a", "store-b"];
/// Says that the last run closed the store.
pub const CLEAN: &str = "clean";
/// In a folder of long objects: the store, and which volume of it, that they are of.
const OWNER: &str = "store";
/// Files of a store that has no objects yet.
pub(super) const EMPTY: [&str; 4] = [SUPERBLOCKS[0], SUPERBLOCKS[1], CLEAN, OWNER];

/// What a folder for long objects says of itself.
pub(super) struct Marked {
    /// The store, and the number of the volume, that it is of.
    pub(super) owner: Option<(u128, u32)>,
    /// Other files in it.
    pub(super) files: u64,
}

/// Whose long objects a folder holds.
///
/// # Errors
/// Those of the folder.
pub(super) fn marked(folder: &dyn Folder) -> io::Result<Marked> {
    let mut files = 0;
    folder.list(&mut |path, _| files += u64::from(path != OWNER))?;
    let owner = match folder.read(OWNER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let owner = match owner.split_first_chunk() {
        Some((store, volume)) => volume.try_into().ok().map(|v| (u128::from_le_bytes(*store), u32::from_le_bytes(v))),
        None => None,
    };
    Ok(Marked { owner, files })
}

/// Says whose long objects it holds, durably; before the device says that it has such a folder.
///
/// # Errors
/// Those of the folder.
pub(super) fn mark(folder: &dyn Folder, (store, volume): (u128, u32)) -> io::Result<()> {
    if marked(folder)?.owner == Some((store, volume)) {
        return Ok(());
    }
    folder.write(OWNER, &[&store.to_le_bytes()[..], &volume.to_le_bytes()].concat())?;
    folder.sync()
}

/// Writes the superblock, durably; nothing is closed any more. Its epoch vouches for what earlier ones wrote, which
/// a killed process may have left to the kernel alone: so that is durable first.
///
/// # Errors
/// Those of the folder.
pub(super) fn write_superblock(folder: &dyn Folder, seq: u64, block: &[u8]) -> io::Result<()> {
    folder.sync()?;
    folder.write(SUPERBLOCKS[seq as usize % 2], block)?;
    match folder.remove(CLEAN) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    folder.sync()
}

/// The bytes of both superblocks, empty where there is none.
///
/// # Errors
/// Those of the folder; `AlreadyExists` if it holds files and no superblock.
pub(super) fn read_superblocks(folder: &dyn Folder) -> io::Result<[Vec<u8>; 2]> {
    let read = |name: &str| match folder.read(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    };
    let blocks = [read(SUPERBLOCKS[0])?, read(SUPERBLOCKS[1])?];
    let mut files = 0;
    folder.list(&mut |path, _| files += u64::from(!SUPERBLOCKS.contains(&path)))?;
    let why = "it holds files and no store; choose an empty folder";
    match files > 0 && blocks.iter().all(Vec::is_empty) {
        true => Err(io::Error::new(io::ErrorKind::AlreadyExists, why)),
        false => Ok(blocks),
    }
}

/// The superblock of the store in the folder at this path, if there is one.
pub(super) fn superblock_at(path: &Path) -> Option<Superblock> {
    if !path.is_dir() {
        return None;
    }
    newest(|name| std::fs::read(path.join(name)).unwrap_or_default())
}

/// The same in this folder.
pub(super) fn superblock_in(folder: &dyn Folder) -> Option<Superblock> {
    newest(|name| folder.read(name).unwrap_or_default())
}

fn newest(read: impl Fn(&str) -> Vec<u8>) -> Option<Superblock> {
    let blocks = SUPERBLOCKS.iter().filter_map(|name| Superblock::decode(&read(name)).ok());
    blocks.max_by_key(|block| block.seq)
}
