//! What is at a place, without opening it: so that a tool can open a store as it was made.
//!
//! Reads the two superblocks, and what tells blank from lost ones, under the lock that readers share; never writes.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use picaflor_format::{
    BLOCK, Corrupt, VERSION, has_remains,
    superblock::Superblock,
    zone::{BEGINNING, Map, SUPERBLOCKS},
};

use crate::{Error, Mode, Result, recovery::folder, recovery::superblock::lost_superblocks};

/// What [`inspect`] found.
#[derive(Debug, Clone)]
pub enum Inspection {
    /// Nothing: a store can be made here.
    Blank,
    /// Bytes of something that is no store.
    Foreign,
    /// A store, or one of the places of one.
    Store(About),
}

/// How a store was made.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct About {
    /// Path of this place.
    pub place: String,
    /// Identity of the store, the same at all its places.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_hex"))]
    pub store: u128,
    /// The mode to open it in.
    pub mode: Mode,
    /// Device bytes in use at this place.
    pub capacity: u64,
    /// Those that it was made with; more since, if it has grown.
    pub made_with: u64,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// Which of the store's places this is, from 0 on, and of how many.
    pub number: (u32, u32),
    /// How many times it was opened for writing.
    pub openings: u64,
    /// Version of the format.
    pub version: u32,
    /// The preset that it was opened with for writing last; of a store that does not say, the first that leaves such
    /// bytes.
    pub preset: &'static str,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) segment_bits: u32,
}

#[cfg(feature = "serde")]
fn as_hex<S: serde::Serializer>(store: &u128, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{store:032x}"))
}

/// Looks at a file, a block device or a folder and says how the store there was made.
///
/// # Errors
/// [`Error::Io`] if it cannot be read or another process has it open for writing, [`Error::Version`] for a store of
/// another format, [`Error::Damaged`] for one whose superblocks do not verify or that has been cut short.
pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection> {
    let path = path.as_ref();
    let place = path.display().to_string();
    let (bytes, len) = read(path).map_err(|error| Error::io(format!("opening {place}"), error))?;
    let mut newest: Option<Superblock> = None;
    let mut why = Corrupt::Magic;
    for slot in 0..2 {
        let at = Map::superblock(slot) as usize;
        match Superblock::decode(bytes.get(at..).unwrap_or_default()) {
            Ok(found) if newest.is_none_or(|known| known.seq < found.seq) => newest = Some(found),
            Ok(_) | Err(Corrupt::Magic | Corrupt::Short) => {}
            Err(Corrupt::Version(found)) => return Err(Error::Version { place, found, supported: VERSION }),
            Err(found) => why = found,
        }
    }
    match newest {
        Some(found) if found.capacity > len => Err(Error::Damaged {
            place,
            why: format!("it had {} bytes and now has {len}", found.capacity),
            mend: "restore the file's length, or remove it to start empty".into(),
        }),
        Some(found) => Ok(Inspection::Store(About {
            place,
            store: found.store,
            mode: if found.mode == Mode::Store as u32 { Mode::Store } else { Mode::Cache },
            capacity: found.capacity,
            made_with: found.first_capacity(),
            cluster: found.cluster,
            number: found.volume,
            openings: found.epoch,
            version: VERSION,
            preset: found.made_by(),
            segment_bits: found.segment_bits,
        })),
        None if bytes.iter().take(SUPERBLOCKS.len as usize).all(|byte| *byte == 0) => {
            if has_remains(&bytes) {
                Err(lost_superblocks(&place))
            } else {
                Ok(Inspection::Blank)
            }
        }
        None if why == Corrupt::Magic => Ok(Inspection::Foreign),
        None => Err(Error::Damaged {
            place,
            why: format!("neither superblock verifies: {why}"),
            mend: "restore it from a copy, or remove it to start empty".into(),
        }),
    }
}

/// The same of a folder, which has no length to be cut to.
fn read_folder(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let mut bytes = Vec::with_capacity(2 * BLOCK);
    for (at, name) in folder::SUPERBLOCKS.iter().enumerate() {
        match std::fs::read(path.join(name)) {
            Ok(block) => bytes.extend_from_slice(&block),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        bytes.resize((at + 1) * BLOCK, 0);
    }
    let others = || std::fs::read_dir(path).map(|mut entries| entries.next().is_some());
    if bytes.iter().all(|byte| *byte == 0) && others()? {
        // Anything but a blank place.
        bytes[0] = 1;
    }
    Ok((bytes, u64::MAX))
}

/// The bytes of the beginning, as far as there are any, and the length of the whole.
fn read(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let kind = path.metadata()?.file_type();
    if kind.is_dir() {
        picaflor_device::lock(path, &File::open(path)?, true)?;
        return read_folder(path);
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"));
    }
    let mut file = File::open(path)?;
    picaflor_device::lock(path, &file, true)?;
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(BEGINNING.start))?;
    let mut bytes = Vec::with_capacity(BEGINNING.len as usize);
    file.take(BEGINNING.len).read_to_end(&mut bytes)?;
    Ok((bytes, len))
}

#[cfg(test)]
mod tests {
    use picaflor_format::BLOCK;

    use super::*;
    use crate::{Durability, Options, Store};

    fn about(path: &Path) -> About {
        match inspect(path) {
            Ok(Inspection::Store(about)) => about,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_is_known_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let options = Options::new(&path).capacity(16 << 20).mode(Mode::Store).with(|o| o.cluster = 64 << 10);
        Store::open(options.clone()).unwrap().close().unwrap();
        let found = about(&path);
        assert_eq!((found.mode, found.capacity, found.cluster), (Mode::Store, 16 << 20, 64 << 10));
        assert_eq!((found.number, found.openings), ((0, 1), 1));
        let store = Store::open(options).unwrap();
        assert!(matches!(inspect(&path), Err(Error::Io { .. })), "its writer has it");
        store.close().unwrap();
        assert_eq!(about(&path).openings, 2);
    }

    #[test]
    fn what_is_no_store_is_told_from_what_was_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let put = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        assert!(matches!(inspect(&path), Err(Error::Io { .. })), "nothing there");
        put(b"");
        assert!(matches!(inspect(&path), Ok(Inspection::Blank)));
        put(&[0; 20_000]);
        assert!(matches!(inspect(&path), Ok(Inspection::Blank)));
        put(b"a letter");
        assert!(matches!(inspect(&path), Ok(Inspection::Foreign)));
        std::fs::remove_file(&path).unwrap();
        Store::open(Options::new(&path).capacity(16 << 20)).unwrap().close().unwrap();
        let whole = std::fs::read(&path).unwrap();
        put(&whole[..8 << 20]);
        assert!(matches!(inspect(&path), Err(Error::Damaged { .. })), "cut short");
        let mut bad = whole.clone();
        (bad[100], bad[BLOCK + 100]) = (!bad[100], !bad[BLOCK + 100]);
        put(&bad);
        assert!(matches!(inspect(&path), Err(Error::Damaged { .. })), "both copies fail");
        bad[BLOCK + 100] = whole[BLOCK + 100];
        put(&bad);
        assert_eq!(about(&path).capacity, 16 << 20, "one copy is enough");
        let mut other = whole.clone();
        (other[8], other[BLOCK + 8]) = (9, 9);
        put(&other);
        assert!(matches!(inspect(&path), Err(Error::Version { found: 9, .. })));
    }

    #[test]
    fn a_store_whose_superblocks_are_zeroed_is_not_made_anew() {
        for durability in [Durability::None, Durability::default(), Durability::EveryPut] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a");
            let options = Options::new(&path).capacity(16 << 20).durability(durability);
            let store = Store::open(options.clone()).unwrap();
            store.put(b"key", &[1; 5000]).unwrap();
            store.close().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[..SUPERBLOCKS.len as usize].fill(0);
            std::fs::write(&path, &bytes).unwrap();
            for refused in [inspect(&path).map(|_| ()), Store::open(options.clone()).map(|_| ())] {
                let Err(Error::Damaged { mend, .. }) = refused else { panic!("{durability:?}: {refused:?}") };
                assert!(mend.contains("remove the file or clear its first 256 KiB"), "{mend}");
            }
            assert!(std::fs::read(&path).unwrap() == bytes, "not a byte of it was changed");
            bytes[..BEGINNING.len as usize].fill(0);
            std::fs::write(&path, &bytes).unwrap();
            assert!(matches!(inspect(&path), Ok(Inspection::Blank)), "as the message says");
            let store = Store::open(options).unwrap();
            assert!(store.get(b"key").unwrap().is_none());
            store.close().unwrap();
        }
    }
}
