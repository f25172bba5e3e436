//! Traces: recorded sequences of requests, whatever log they come from.
//!
//! A reader goes through a file once, in memory that does not grow with it, and knows three kinds of lines: requests,
//! lines that are skipped for a named reason (not a GET, not answered 200, 206 or 304), and bad ones, which are counted
//! and of which the first few are kept. A file of which most lines are bad is refused. Compression and format are
//! found by looking at the content; a name says nothing that the content does not.

mod binary;
mod csv;
mod dec;
mod detect;
mod har;
mod known;
mod lines;
mod load;
mod log;
mod open;
mod parser;
mod read;
mod url;
mod write;

use std::{fmt, str::FromStr};

pub use known::Known;
pub use load::Trace;
pub use read::{Bad, Reader, Report};
pub use write::{save_csv, write_csv};

/// What a request asks for, as far as it is known: pages bring embedded objects with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A page: an HTML document.
    Page,
    /// Anything else, by its type or extension: an image, a style sheet, an archive.
    Part,
    /// The trace does not say.
    #[default]
    Unknown,
}

/// One request of a trace. Keys, clients and servers are hashes of what the log calls them, so that a reader needs
/// no memory of the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Milliseconds, since 1970 or since the trace began.
    pub time: u64,
    /// The object.
    pub key: u64,
    /// Bytes of its body, as this line has it. Of answers without a body, and where the trace does not say, 0.
    pub size: u64,
    /// Who asked; 0 if unknown.
    pub client: u64,
    /// Origin server; 0 if unknown.
    pub server: u64,
    /// The object that led to this one; 0 if unknown.
    pub referer: u64,
    /// Page or part of one.
    pub kind: Kind,
    /// Changes when the object's content does; 0 where the trace does not say.
    pub version: u32,
}

impl Request {
    /// The object as it is now: one that changed is another object to a cache.
    pub(crate) fn versioned_key(&self) -> u64 {
        self.key ^ u64::from(self.version) << 40
    }
}

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Squid's own: `time elapsed client result/status bytes method URL user hierarchy type`.
    Squid,
    /// NCSA common: `host ident user [date] "request" status bytes`.
    Common,
    /// Common, with referer and agent in quotes after it.
    Combined,
    /// Netscape proxies: common, with nine or more numbers after it (extended and extended-2).
    Netscape,
    /// The proxy traces of Digital, 1996, as text: sixteen numbers a line, in the order of their description.
    Dec,
    /// Comma-separated with a header that names `time`, `obj_id`, `size`; also `client`, `server`, `url`, `referer`.
    Csv,
    /// libCacheSim's: comma-separated without a header, `time,obj_id,size` and perhaps more.
    LibcachesimCsv,
    /// libCacheSim's oracleGeneral: binary records of 24 bytes.
    OracleGeneral,
    /// HTTP archives, as browsers save them.
    Har,
}

impl Format {
    /// All of them, by the name that [`FromStr`] takes.
    pub const ALL: [(&'static str, Self); 9] = [
        ("squid", Self::Squid),
        ("common", Self::Common),
        ("combined", Self::Combined),
        ("netscape", Self::Netscape),
        ("dec", Self::Dec),
        ("csv", Self::Csv),
        ("libcachesim-csv", Self::LibcachesimCsv),
        ("oracle-general", Self::OracleGeneral),
        ("har", Self::Har),
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("no format {name:?}; there are: {}", names.join(", "))
        })
    }
}

/// What one line, record or entry was.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Request(Request),
    /// A good line that asks for nothing a cache would keep.
    Skipped(&'static str),
    Bad(String),
    /// Names the columns, or is a comment.
    Header,
}

impl Line {
    fn bad(why: impl Into<String>) -> Self {
        Self::Bad(why.into())
    }
}

const NOT_GET: &str = "not a GET";
const NOT_OK: &str = "not answered 200, 206 or 304";

/// Whether a cache would have the answer, else why not.
fn worth(method: &[u8], status: u64) -> Result<(), &'static str> {
    if method != b"GET" {
        Err(NOT_GET)
    } else if !matches!(status, 200 | 206 | 304) {
        Err(NOT_OK)
    } else {
        Ok(())
    }
}
