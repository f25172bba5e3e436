//! `picaflor get STORE KEY`: a body, or a part of it, piece by piece to standard output or a file; or, of a running
//! server, that of a URL.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Write},
    num::NonZero,
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use bytes::Bytes;
use clap::Args;
use picaflor::{Error, Miss, Store};
use picaflor_shared::Client;

use super::{
    Failure,
    server::{self, Server, Token, encoded},
};
use crate::{
    human,
    key::{KeyForm, harmless, shown},
    open::OneStore,
    output::{self, Output},
};

const EXAMPLES: &str = "\
Examples:
  To look at, and into a file:
      picaflor get picaflor.store http://example.com/
      picaflor get picaflor.store http://example.com/logo.png -o logo.png

  The first kilobyte; the last one:
      picaflor get picaflor.store http://example.com/film.mp4 --range 0-1023 | file -
      picaflor get picaflor.store http://example.com/film.mp4 --range=-1024 | xxd

  Where it lies, and its first bytes there:
      picaflor get picaflor.store http://example.com/logo.png --where
      xxd -s 524444 -l 64 picaflor.store

  A key as `ls` shows it:
      picaflor get picaflor.store --escaped 'a\\x00b'

  What a running server has stored of a URL; its status and fields; the second of several, as `explain` lists them:
      picaflor get http://127.0.0.1:3129 http://www.example.org/page
      picaflor get http://127.0.0.1:3129 http://www.example.org/page --metadata
      picaflor get http://127.0.0.1:3129 http://www.example.org/page --variant 2

--where prints a line for each part of the body that lies by itself, in their order: its first byte on the device, how \
many bytes, and the device. A large object has a part for each chunk.

Every piece is verified before it is written. A file appears under its name only when it is whole. Exit codes: 0 done, \
1 not there, or it could not be read, 3 it is there and does not verify.";

/// Writes an object's body to standard output or to a file
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor get --help` has examples.")]
pub(crate) struct Get {
    #[command(flatten)]
    store: OneStore,
    /// The key; of a server, the URL as clients ask for it
    key: OsString,
    /// Write to a file; - is standard output, even if that is a terminal and the body is no text
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only these bytes, counted from 0, both ends included: A-B, A- to the end, -N for the last N
    #[arg(short, long, value_name = "A-B", allow_hyphen_values = true)]
    range: Option<Span>,
    /// The metadata instead of the body; of a server, status and fields
    #[arg(short, long, conflicts_with = "range")]
    metadata: bool,
    /// Where the body lies on the device, instead of the body
    #[arg(long = "where", conflicts_with_all = ["range", "metadata"])]
    locate: bool,
    /// Of a server, which of several responses of a URL, as `explain` lists them, from 1
    #[arg(long, value_name = "N")]
    variant: Option<NonZero<usize>>,
    #[command(flatten)]
    token: Token,
    #[command(flatten)]
    form: KeyForm,
}

/// A range of bytes as written: from a first one, or so many last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    From(u64, Option<u64>),
    Last(u64),
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a range such as 0-1023, 1024- or -100");
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(bad)
        };
        match text.split_once('-').ok_or_else(bad)? {
            ("", last) => Ok(Self::Last(number(last)?)),
            (first, "") => Ok(Self::From(number(first)?, None)),
            (first, last) => match (number(first)?, number(last)?) {
                (first, last) if first <= last => Ok(Self::From(first, Some(last))),
                _ => Err(format!("`{text}` ends before it begins")),
            },
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(first, None) => write!(f, "{first}-"),
            Self::From(first, Some(last)) => write!(f, "{first}-{last}"),
            Self::Last(count) => write!(f, "-{count}"),
        }
    }
}

impl Span {
    /// The bytes of a body of this length; `None` if it has none of them.
    fn of(self, len: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(first, last) => first..last.map_or(len, |last| last.saturating_add(1).min(len)),
            Self::Last(count) => len.saturating_sub(count)..len,
        };
        (!range.is_empty()).then_some(range)
    }
}

impl Get {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let key = self.form.argument(&self.key).map_err(Failure::Usage)?;
        if let Some(server) = server::named(self.store.path(), &self.token)? {
            return self.served(&server, &key);
        }
        if self.variant.is_some() {
            return Err(Failure::Usage("--variant is for a running server, http://IP:PORT".into()));
        }
        if self.locate {
            return self.locate(&key);
        }
        if let Some(client) = self.store.shared()? {
            return self.fetch(&client, &key);
        }
        let store = self.store.read()?;
        let object = store.get(&key)?.ok_or_else(|| self.nothing(&store, &key))?;
        if self.metadata {
            let metadata = Bytes::copy_from_slice(object.metadata());
            return self.write(metadata.len() as u64, std::iter::once(Ok(metadata)));
        }
        let range = self.range(object.len())?;
        let piece = |piece: picaflor::Result<Bytes>| piece.map_err(|e| self.broken(&key, e));
        self.write(range.end - range.start, object.chunks(range).map(piece))
    }

    /// What a running server has of a URL.
    fn served(&self, server: &Server, key: &[u8]) -> Result<(), Failure> {
        if self.locate {
            return Err(Failure::Usage("--where is for the file or device itself; of a server, see `explain`".into()));
        }
        let url = std::str::from_utf8(key).map_err(|_| Failure::Usage(format!("{} is no URL", shown(key))))?;
        let head = if self.metadata { "head=1&" } else { "" };
        let n = self.variant.map_or_else(String::new, |n| format!("n={n}&"));
        let range = self.range.map(|span| span.to_string());
        let path = format!("/object?{head}{n}url={}", encoded(url));
        let pieces = server.bytes(&path, range.as_deref(), &shown(key))?;
        self.write(pieces.len, pieces)
    }

    /// Where the body lies, instead of it.
    fn locate(&self, key: &[u8]) -> Result<(), Failure> {
        self.store.refuse_socket("--where is for the file or device itself")?;
        let store = self.store.read()?;
        let Some(extents) = store.locate(key)? else {
            // Only a get says why.
            return Err(store.get(key).err().map_or_else(|| self.nothing(&store, key), Failure::from));
        };
        if extents.is_empty() {
            let why = "it is there; where objects are files or entries of tables, the store does not say where";
            return Err(Failure::Failed(format!("{}: {}: {why}", self.store.name(), shown(key))));
        }
        let volumes = store.stats().volumes;
        let line = |extent: &picaflor::Extent| {
            let place = volumes.get(extent.volume).map_or_else(String::new, |volume| harmless(&volume.place));
            format!("{} {} {place}\n", extent.offset, extent.len)
        };
        let lines: String = extents.iter().map(line).collect();
        self.write(lines.len() as u64, std::iter::once(Ok(lines.into())))
    }

    /// Why a piece of a large object is missing.
    fn broken(&self, key: &[u8], e: Error) -> Failure {
        match e {
            Error::Damaged { .. } => Failure::Damaged(format!(
                "{}: a piece of {} is gone or does not verify; what was written is not whole",
                self.store.name(),
                shown(key)
            )),
            e => e.into(),
        }
    }

    /// The same from the process that has the store.
    fn fetch(&self, client: &Client, key: &[u8]) -> Result<(), Failure> {
        let ask = |range| client.get_stream(key, range)?.ok_or_else(|| self.absent(key));
        loop {
            let mut head = ask(0..0)?;
            if self.metadata {
                let metadata = Bytes::from(head.head().metadata.clone());
                return self.write(metadata.len() as u64, std::iter::once(Ok(metadata)));
            }
            while head.next_piece()?.is_some() {}
            let range = self.range(head.head().len)?;
            let len = range.end - range.start;
            let mut body = ask(range)?;
            if body.head().generation == head.head().generation {
                let next = move || body.next_piece().map(|piece| piece.map(Bytes::copy_from_slice)).transpose();
                return self.write(len, std::iter::from_fn(next).map(|piece| Ok(piece?)));
            }
            // It was put again meanwhile: another length, another range.
        }
    }

    fn range(&self, len: u64) -> Result<Range<u64>, Failure> {
        match self.range {
            None => Ok(0..len),
            Some(span) => {
                let have = human::counted(len, "byte", "bytes");
                span.of(len)
                    .ok_or_else(|| Failure::Failed(format!("the object has {have}, none of them in that range")))
            }
        }
    }

    /// Why there is no such object, by the one miss that this store has counted.
    fn nothing(&self, store: &Store, key: &[u8]) -> Failure {
        let misses = store.stats().misses;
        let missed = |why: Miss| misses.get(&why.to_string()).is_some_and(|count| *count > 0);
        let (name, shown_key) = (self.store.name(), shown(key));
        if missed(Miss::Checksum) {
            Failure::Damaged(format!(
                "{name}: {shown_key} is there, but its bytes fail their checksum; `picaflor check` says more"
            ))
        } else if missed(Miss::ReadError) {
            Failure::Failed(format!("{name}: {shown_key} is there, but the device cannot read it"))
        } else if missed(Miss::Expired) {
            Failure::Failed(format!("{name}: {shown_key} is past its expiry"))
        } else {
            self.absent(key)
        }
    }

    fn absent(&self, key: &[u8]) -> Failure {
        Failure::Failed(format!("{}: {} is not there", self.store.name(), shown(key)))
    }

    fn write(&self, len: u64, pieces: impl Iterator<Item = Result<Bytes, Failure>>) -> Result<(), Failure> {
        match self.output.as_deref() {
            None => to_stdout(pieces, output::to_terminal()),
            Some(path) if path == Path::new("-") => to_stdout(pieces, false),
            Some(path) => to_file(path, len, pieces),
        }
    }
}

fn to_stdout(pieces: impl Iterator<Item = Result<Bytes, Failure>>, guarded: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    for piece in pieces {
        let piece = piece?;
        if guarded && piece.contains(&0) {
            out.flush()?;
            return Err(Failure::Failed(
                "not text, and this is a terminal; use -o FILE, or -o - to have it here".into(),
            ));
        }
        out.bytes(&piece)?;
    }
    out.flush()
}

fn to_file(path: &Path, len: u64, pieces: impl Iterator<Item = Result<Bytes, Failure>>) -> Result<(), Failure> {
    let fail = |e: io::Error| Failure::Failed(format!("writing {}: {e}", path.display()));
    let bar = output::bytes(path.display().to_string(), Some(len));
    let copy = |mut file: &File| {
        for piece in pieces {
            let piece = piece?;
            file.write_all(&piece).map_err(fail)?;
            bar.inc(piece.len() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    };
    // A device or a pipe is written to; a file is replaced when the new one is whole.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return copy(&File::options().write(true).open(path).map_err(fail)?);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = std::fs::Permissions::from_mode(0o666);
    let whole = tempfile::Builder::new().prefix(".picaflor-").permissions(mode).tempfile_in(folder).map_err(fail)?;
    copy(whole.as_file())?;
    whole.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let of = |text: &str, len| text.parse::<Span>().unwrap().of(len);
        assert_eq!(of("0-9", 100), Some(0..10));
        assert_eq!(of("90-200", 100), Some(90..100));
        assert_eq!(of("0-18446744073709551615", 100), Some(0..100));
        assert_eq!(of("50-", 100), Some(50..100));
        assert_eq!(of("-10", 100), Some(90..100));
        assert_eq!(of("-1000", 100), Some(0..100));
        for (none, len) in [("100-", 100), ("0-", 0), ("-0", 100)] {
            assert_eq!(of(none, len), None, "{none}");
        }
        for bad in ["", "-", "5", "9-1", "a-b", "+1-2", "1--2", "99999999999999999999-"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
