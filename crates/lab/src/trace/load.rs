//! A whole trace in memory, for those who go through it more than once: 56 bytes a request.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::{Format, Reader, Report, Request};
use crate::Result;

/// The requests of one or several files, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// In the order of the files.
    pub requests: Vec<Request>,
    /// What each file was.
    pub reports: Vec<Report>,
}

impl Trace {
    /// Reads these files; `each` is told of every request's number, for progress.
    ///
    /// # Errors
    /// The first file that cannot be read or is refused.
    pub fn load(paths: &[PathBuf], format: Option<Format>, each: impl FnMut(u64)) -> Result<Self> {
        let readers = paths.iter().map(|path| Reader::open(Path::new(path), format));
        Self::collect(readers, each)
    }

    /// Reads from these readers.
    ///
    /// # Errors
    /// The first error of any of them.
    pub fn collect(readers: impl Iterator<Item = Result<Reader>>, mut each: impl FnMut(u64)) -> Result<Self> {
        let mut trace = Self::default();
        for reader in readers {
            let mut reader = reader?;
            for request in &mut reader {
                trace.requests.push(request?);
                each(trace.requests.len() as u64);
            }
            trace.reports.push(reader.report().clone());
        }
        Ok(trace)
    }

    /// Gives every object one size, the largest that any of its requests has: an answer without a body (304) or with
    /// a part of it (206) says less than the object weighs. Takes out the objects of which no byte was ever seen, and
    /// returns how many requests that were.
    pub fn settle_sizes(&mut self) -> u64 {
        let largest = self.largest();
        let before = self.requests.len();
        self.requests.retain_mut(|request| {
            request.size = largest[&request.key];
            request.size > 0
        });
        (before - self.requests.len()) as u64
    }

    fn largest(&self) -> HashMap<u64, u64> {
        let mut largest = HashMap::<u64, u64>::new();
        for request in &self.requests {
            let size = largest.entry(request.key).or_default();
            *size = request.size.max(*size);
        }
        largest
    }

    /// Bytes of all objects, each counted once with its largest size.
    pub fn unique_bytes(&self) -> u64 {
        self.largest().values().fold(0, |sum, size| sum.saturating_add(*size))
    }
}
