//! Long objects as files of their own beside a store's one large file: BUDDY as Markatos et al. had it (§3.4), whose
//! THRESHOLD says how long an object may be that shares a file with others.
//!
//! The engine has no such layout (docs/literature/markatos.md): a store lies on a device or in a folder. So the lab
//! keeps the long ones itself, on the file system that the store's file is on, and gives the store as much room as the
//! short ones need.

use std::{collections::HashMap, io};

use picaflor_device::Folder;

use super::{Setup, Stream, bodies::Bodies};
use crate::{Error, Result, fs::FileSystem, method::Operation, trace::Request};

/// Bytes of a block, in which the threshold is counted.
const BLOCK: u64 = 512;
/// Bytes of header and key in front of a body in the store.
const FRONT: u64 = 72;
/// Files go to these in turn, by key.
const DIRECTORIES: u64 = 256;
/// The store's part of the room, more than its objects' share of the bytes: areas are for objects of one length, and
/// the shares of lengths change with time. The paper's files grow as they need.
const SPARE: f64 = 1.1;

pub(super) struct Above {
    system: FileSystem,
    /// Bytes of the longest body that the store keeps.
    longest: u64,
    files: HashMap<u64, Request>,
}

/// The setup of a store that keeps what is not too long only.
pub(super) fn shortened(setup: &Setup, stream: &Stream) -> Setup {
    let Some(threshold) = setup.threshold.filter(|_| setup.files_above) else { return setup.clone() };
    let slots = |request: &Request| (request.size.max(1) + FRONT).div_ceil(BLOCK);
    let (mut short, mut all) = (0, 0);
    for operation in &stream.operations {
        if let Operation::Write(request) = operation {
            all += slots(request);
            short += if request.size <= u64::from(threshold) * BLOCK { slots(request) } else { 0 };
        }
    }
    let share = if all == 0 { 1.0 } else { (short as f64 / all as f64 * SPARE).min(1.0) };
    let capacity = ((setup.capacity as f64 * share) as u64).max(32 << 20).next_multiple_of(1 << 20);
    // What is as long as the threshold allows is a block longer in the store.
    Setup { capacity, threshold: Some(threshold + 1), ..setup.clone() }
}

impl Above {
    /// `setup` as it was asked for.
    pub(super) fn new(setup: &Setup, system: Option<FileSystem>) -> Result<Option<Self>> {
        let Some(threshold) = setup.threshold.filter(|_| setup.files_above) else { return Ok(None) };
        let wrong = |why: String| Error::experiment(&setup.device, why);
        let system = system.ok_or_else(|| wrong("files_above needs a file_system".into()))?;
        (0..DIRECTORIES)
            .try_for_each(|number| system.make_dir(&format!("{number:02x}")))
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Some(Self { system, longest: u64::from(threshold) * BLOCK, files: HashMap::new() }))
    }

    pub(super) fn takes(&self, request: &Request) -> bool {
        request.size > self.longest
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.files.contains_key(&key)
    }

    fn path(key: u64) -> String {
        format!("{:02x}/{key:016x}", key % DIRECTORIES)
    }

    pub(super) fn write(&mut self, request: &Request, body: &[u8]) -> io::Result<()> {
        self.files.insert(request.key, *request);
        self.system.write(&Self::path(request.key), body)
    }

    /// Whether the file's bytes are those that were written.
    pub(super) fn read(&self, key: u64) -> io::Result<bool> {
        let body = self.system.read(&Self::path(key))?;
        Ok(self.files.get(&key).is_some_and(|request| Bodies::is_of(request, &body)))
    }

    pub(super) fn remove(&mut self, key: u64) -> io::Result<()> {
        self.files.remove(&key);
        self.system.remove(&Self::path(key))
    }
}
