//! Traces that come with the lab: small, real, and with a licence that lets them be passed on (`traces/README.md`).

use std::{collections::HashSet, fmt, io::Cursor};

use super::{Kind, Reader, Request, Trace};
use crate::Result;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// 17 page loads, with all that the pages embed, from 79 servers.
    HarPageloads,
    /// The log of one web site in May 2015.
    Semicomplete,
}

impl Known {
    /// All of them: name, and what it is.
    pub const ALL: [(&'static str, Self, &'static str); 2] = [
        ("har-pageloads", Self::HarPageloads, "17 page loads as browsers saved them, from 79 servers"),
        ("semicomplete", Self::Semicomplete, "the log of one web site, May 2015"),
    ];

    /// The trace of this name, if it is one of them.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Self::HarPageloads => include_bytes!("../../traces/har-pageloads.csv.gz"),
            Self::Semicomplete => include_bytes!("../../traces/semicomplete.csv.gz"),
        }
    }

    /// Its requests, with settled sizes. Where a client is a page load, its first request is the page, and documents
    /// in frames are parts of it like the rest.
    ///
    /// # Errors
    /// If it cannot be read, which a test rules out.
    pub fn requests(self) -> Result<Vec<Request>> {
        let reader = Reader::from_bytes(self.to_string(), Cursor::new(self.bytes()), None);
        let mut trace = Trace::collect(std::iter::once(reader), |_| {})?;
        trace.settle_sizes();
        if self == Self::HarPageloads {
            let mut seen = HashSet::new();
            for request in &mut trace.requests {
                request.kind = if seen.insert(request.client) { Kind::Page } else { Kind::Part };
            }
        }
        Ok(trace.requests)
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|row| row.1 == *self).map_or("", |row| row.0))
    }
}
