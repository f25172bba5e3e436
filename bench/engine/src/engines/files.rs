//! A file per object in 256 folders: what a program does that has no engine.
//!
//! A put writes beside and renames, or a reader would see half of it. A durable put is the cheapest that is right for
//! a new object: create, write, fsync; ext4 then has the name as well. A durable delete syncs the folder.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

use anyhow::Result;

use super::{Config, Engine, Walk};

struct Files {
    folder: PathBuf,
    durable: bool,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    for number in 0..256 {
        fs::create_dir_all(config.folder.join(format!("{number:02x}")))?;
    }
    Ok(Box::new(Files { folder: config.folder.clone(), durable: config.durable }))
}

impl Files {
    fn path(&self, key: &[u8]) -> PathBuf {
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        self.folder.join(format!("{:02x}/{hash:016x}", hash >> 56))
    }
}

impl Engine for Files {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        let path = self.path(key);
        if self.durable {
            let mut file = File::create(path)?;
            file.write_all(body)?;
            return Ok(file.sync_all()?);
        }
        let beside = self.folder.join(format!("new-{:?}", std::thread::current().id()));
        fs::write(&beside, body)?;
        Ok(fs::rename(beside, path)?)
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match fs::read(self.path(key)) {
            Ok(body) => seen(&body),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let path = self.path(key);
        fs::remove_file(&path)?;
        if self.durable {
            File::open(path.with_file_name(""))?.sync_all()?;
        }
        Ok(())
    }

    fn walk(&self, what: Walk, seen: &mut dyn FnMut(&[u8])) -> Result<()> {
        for folder in fs::read_dir(&self.folder)? {
            for entry in fs::read_dir(folder?.path())? {
                let entry = entry?;
                if what != Walk::Values {
                    seen(entry.file_name().as_encoded_bytes());
                }
                if what != Walk::Keys {
                    seen(&fs::read(entry.path())?);
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(nix::unistd::syncfs(&File::open(&self.folder)?)?)
    }
}
