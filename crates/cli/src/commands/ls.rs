//! `picaflor ls STORE...`: the keys, read from the device from end to end, as they lie there; or, of a running server,
//! the responses that it has.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{
    Failure, Format,
    server::{self, Server, Token, number, word},
};
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

  What a running server has, of which types and until when:
      picaflor ls --long http://127.0.0.1:3129

  Remove what belongs to a host, whatever is in its keys:
      picaflor ls -0 -p http://old.example/ picaflor.store | picaflor rm picaflor.store --stdin -0

Keys are shown escaped, one a line: \\\\, \\n, \\r, \\t and \\xNN stand for bytes; `get`, `put` and `rm` read that back \
with --escaped. With -0 they are printed as they are, each followed by a zero byte.

--long prints size, expiry (UTC), group (0 is none) and key. JSON has one object a line: key, size, metadata_size, \
group, expires (UTC or null), generation, and, if the key is not UTF-8, escaped.

Of a server, --long prints size, status, state (fresh, stale, purged), until when it is fresh (UTC), type and URL; JSON \
has these, host, tags and when it came. What is purged and not yet swept away is shown with --all.";

/// Lists the keys of a store
///
/// Reads the whole store, in the order in which objects lie on the device. Objects past their expiry are left out:
/// a get would not return them.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor ls --help` has examples.")]
pub(crate) struct Ls {
    /// The store: a file or raw block device, all the devices of one store, the socket of `picaflor share`, or the
    /// address of a running server's admin listener, http://IP:PORT
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
    token: Token,
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
        if let [one] = &self.store[..]
            && let Some(server) = server::named(one, &self.token)?
        {
            return self.served(&server);
        }
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

    /// What a running server has.
    fn served(&self, server: &Server) -> Result<(), Failure> {
        let prefix = self.prefix.as_deref().map(OsStrExt::as_bytes).unwrap_or_default();
        let (mut out, mut left, mut unreadable) = (Output::new(), self.limit.unwrap_or(usize::MAX), None);
        server.lines("/objects", |line| {
            if let Some(places) = line.get("unreadable").and_then(Value::as_u64) {
                unreadable = Some(places);
                return Ok(true);
            }
            let key = line.get("key").and_then(Value::as_str).unwrap_or_default();
            if left > 0 && key.as_bytes().starts_with(prefix) && (self.all || word(&line, "state") != "purged") {
                left -= 1;
                self.print_served(key, &line, &mut out)?;
            }
            Ok(left > 0)
        })?;
        out.flush()?;
        match unreadable {
            Some(0) => Ok(()),
            None if left == 0 => Ok(()),
            Some(places) => Err(Failure::Failed(format!("{places} places could not be read, and are not listed"))),
            None => Err(Failure::Failed("the server broke off; what was listed is not all".into())),
        }
    }

    fn print_served(&self, key: &str, line: &Value, out: &mut Output) -> Result<(), Failure> {
        let shown = || key::shown(key.as_bytes());
        match self.format {
            Format::Json => out.json(line),
            Format::Text if self.null => {
                out.bytes(key.as_bytes())?;
                out.bytes(b"\0")
            }
            Format::Text if self.long => {
                let size = human::size(number(line, "/bytes"));
                let (status, until) = (number(line, "/status"), human::time(number(line, "/fresh_until")));
                let (state, kind) = (word(line, "state"), word(line, "type"));
                out.line(format!("{size:>10}  {status:>3}  {state:<8}  {until:<20}  {kind:<24}  {}", shown()))
            }
            Format::Text => out.line(shown()),
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
