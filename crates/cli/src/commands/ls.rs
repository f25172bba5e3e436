//! `picaflor ls STORE...`: the keys, read from the device from end to end, as they lie there.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;

use super::{Failure, Format};
use crate::{
    human, key,
    open::{self, Memory},
    output::{self, Output},
};

const EXAMPLES: &str = "\
Examples:
  What is in it, how large, and until when?
      picaflor ls --long picaflor.store

  One site; the ten largest objects:
      picaflor ls --prefix http://example.com/ picaflor.store
      picaflor ls --format json picaflor.store | jq -s 'sort_by(-.size)[:10]'

  Remove what belongs to a host, whatever is in its keys:
      picaflor ls -0 -p http://old.example/ picaflor.store | picaflor rm picaflor.store --stdin -0

Keys are shown escaped, one a line: \\\\, \\n, \\r, \\t and \\xNN stand for bytes; `get`, `put` and `rm` read that back \
with --escaped. With -0 they are printed as they are, each followed by a zero byte.

--long prints size, expiry (UTC), group (0 is none) and key. JSON has one object a line: key, size, metadata_size, \
group, expires (UTC or null), generation, and, if the key is not UTF-8, escaped.";

/// Lists the keys of a store
///
/// Reads the whole store, in the order in which objects lie on the device. Objects past their expiry are left out:
/// a get would not return them.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor ls --help` has examples.")]
pub(crate) struct Ls {
    /// The store: a file or raw block device, all the devices of one store, or the socket of `picaflor share`
    #[arg(required = true)]
    store: Vec<PathBuf>,
    /// Size, expiry, group and key
    #[arg(short, long)]
    long: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
    /// Only keys that begin so
    #[arg(short, long, value_name = "P")]
    prefix: Option<OsString>,
    /// Stop after so many
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Keys as they are, each followed by a zero byte
    #[arg(short = '0', long, conflicts_with_all = ["long", "format"])]
    null: bool,
    /// Also what is past its expiry
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    memory: Memory,
}

#[derive(Serialize)]
struct Line<'a> {
    key: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    escaped: Option<String>,
    size: u64,
    metadata_size: u32,
    group: u32,
    expires: Option<String>,
    generation: u64,
}

/// An object of a listing, wherever it comes from.
struct Item {
    key: Bytes,
    len: u64,
    metadata_len: u32,
    group: u32,
    expires: u64,
    generation: u64,
}

impl From<picaflor::Entry> for Item {
    fn from(entry: picaflor::Entry) -> Self {
        let picaflor::Entry { key, len, metadata_len, group, expires, generation, .. } = entry;
        Self { key, len, metadata_len, group, expires, generation }
    }
}

impl From<picaflor_shared::Entry> for Item {
    fn from(entry: picaflor_shared::Entry) -> Self {
        let picaflor_shared::Entry { key, len, metadata_len, group, expires, generation, .. } = entry;
        Self { key: key.into(), len, metadata_len, group, expires, generation }
    }
}

impl Ls {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(client) = open::shared(&self.store)? {
            let entries = client.keys()?.map(|entry| entry.map(Item::from).map_err(Failure::from));
            return self.list(entries);
        }
        let store = open::read(&open::one(&self.store)?, &self.memory)?;
        let mut keys = store.keys();
        let bar = output::steps_beside_lines("listing");
        bar.set_length(keys.progress().1);
        let next = || {
            let entry = keys.next()?;
            bar.set_position(keys.progress().0);
            Some(Ok(entry.into()))
        };
        let listed = self.list(std::iter::from_fn(next));
        bar.finish_and_clear();
        listed?;
        match keys.unreadable() {
            0 => Ok(()),
            places => Err(Failure::Failed(format!(
                "{places} places of the store could not be read, and what lies there is not listed; `picaflor check` \
                 says more"
            ))),
        }
    }

    fn list(&self, entries: impl Iterator<Item = Result<Item, Failure>>) -> Result<(), Failure> {
        let now = human::now();
        let prefix = self.prefix.as_deref().map_or(&b""[..], OsStrExt::as_bytes);
        let wanted =
            |entry: &Item| entry.key.starts_with(prefix) && (self.all || entry.expires == 0 || entry.expires > now);
        let mut out = Output::new();
        let entries = entries.filter(|entry| entry.as_ref().map_or(true, wanted));
        for entry in entries.take(self.limit.unwrap_or(usize::MAX)) {
            self.print(&entry?, &mut out)?;
        }
        out.flush()
    }

    fn print(&self, entry: &Item, out: &mut Output) -> Result<(), Failure> {
        let expires = (entry.expires != 0).then(|| human::time(entry.expires));
        match self.format {
            Format::Json => out.json(&Line {
                key: String::from_utf8_lossy(&entry.key),
                escaped: std::str::from_utf8(&entry.key).is_err().then(|| key::shown(&entry.key)),
                size: entry.len,
                metadata_size: entry.metadata_len,
                group: entry.group,
                expires,
                generation: entry.generation,
            }),
            Format::Text if self.null => {
                out.bytes(&entry.key)?;
                out.bytes(b"\0")
            }
            Format::Text if self.long => {
                let expires = expires.as_deref().unwrap_or("-");
                let (size, key) = (human::size(entry.len), key::shown(&entry.key));
                out.line(format!("{size:>10}  {expires:<20}  {:>5}  {key}", entry.group))
            }
            Format::Text => out.line(key::shown(&entry.key)),
        }
    }
}
