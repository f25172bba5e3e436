//! `picaflor put STORE KEY [FILE]`: streams a body in; when the command returns, it is durable.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use clap::Args;
use picaflor::{Error, Expiry, Mode, Options, PutOptions, Refusal, Store};
use picaflor_proxy::config::{Size, Span};

use super::Failure;
use crate::{human, key::KeyForm, open::OneStore, output, policies::Policies};

const EXAMPLES: &str = "\
Examples:
  A file, into a store that is made for it: one that never drops anything by itself
      picaflor put my.store 2026/report.pdf report.pdf --create --capacity 10GiB --store-mode

  What a program writes, of any length, for one hour:
      tar cz src | picaflor put my.store src.tgz --ttl 1h

  Beside its metadata:
      picaflor put my.store logo logo.png --metadata logo.json

An older object with the key is replaced when the new one is whole, not before. When the command returns with 0 the \
object is durable. A cache makes room by dropping what was not used; a store refuses when it is full.";

/// Puts an object, from a file or from standard input
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor put --help` has examples.")]
pub(crate) struct Put {
    #[command(flatten)]
    store: OneStore,
    /// The key, 1 byte to 8 KiB
    key: OsString,
    /// The body; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// A file with metadata to keep with the object, up to 64 KiB
    #[arg(short, long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// How long it is worth returning, such as 90s, 5min, 1h, 7d [default: for ever]
    #[arg(short, long, value_name = "TIME")]
    ttl: Option<Span>,
    /// Group of objects to lay it among; 0 is none
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    group: u32,
    /// Make the store if it is not there
    #[arg(long)]
    create: bool,
    /// Bytes of the store: a new one has so many [default: 1GiB], one with fewer grows, to eight times its first ones,
    /// and one with more gives the rest back
    #[arg(long, value_name = "SIZE", requires = "create")]
    capacity: Option<Size>,
    /// A new store never drops an object to make room, but says that it is full
    #[arg(long, requires = "create")]
    store_mode: bool,
    /// Storage manager of a new store: picaflor, or one of the literature's [default: picaflor]
    #[arg(long, value_name = "NAME", requires = "create")]
    preset: Option<String>,
    #[command(flatten)]
    form: KeyForm,
}

/// Bytes read at once.
const PIECE: usize = 256 << 10;

impl Put {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let key = self.form.argument(&self.key).map_err(Failure::Usage)?;
        let options = self.options()?;
        // Before the store is made or locked: what cannot be read cannot be put.
        let (mut body, len) = self.body()?;
        let name = self.file.display().to_string();
        if let Some(client) = self.store.shared()? {
            if self.create {
                self.store.refuse_socket("--create is for a file")?;
            }
            // Others may ask its process for it again.
            let options = options.bypass_memory(false);
            let mut put = client.put_stream(&key, len, &options)?;
            pour(&mut body, len, &name, |piece| put.write(piece).map_err(Failure::from))?;
            put.finish()?;
            return Ok(client.flush()?);
        }
        let store = self.open()?;
        let put = stream(&store, &key, options, &mut body, len, name);
        let largest = store.object_max();
        let closed = store.close();
        put.map_err(|e| advise(e, largest))?;
        Ok(closed?)
    }

    fn options(&self) -> Result<PutOptions, Failure> {
        let mut options = PutOptions::new().group(self.group);
        // This process will not ask for it again, unless the group's placement is wanted, which goes through memory.
        options.bypass_memory = self.group == 0;
        if let Some(path) = &self.metadata {
            options.metadata = std::fs::read(path).map_err(|e| reading(path, &e))?.into();
        }
        if let Some(ttl) = self.ttl {
            options.expiry = Expiry::After(ttl.0);
        }
        Ok(options)
    }

    fn body(&self) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
        if self.file.as_os_str() == "-" {
            return Ok((Box::new(io::stdin().lock()), None));
        }
        let fail = |e| reading(&self.file, &e);
        let file = File::open(&self.file).map_err(fail)?;
        let found = file.metadata().map_err(fail)?;
        if found.is_dir() {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        // A file of the kernel's has no length before it is read.
        Ok((Box::new(file), Some(found.len()).filter(|len| found.is_file() && *len > 0)))
    }

    fn open(&self) -> Result<Store, Failure> {
        if !self.create {
            return self.store.write();
        }
        let mode = if self.store_mode { Mode::Store } else { Mode::Cache };
        let capacity = self.capacity.map_or(0, |size| size.0);
        let new = Options::new("").mode(mode).capacity(capacity);
        self.store.write_or_create(new, self.preset.as_deref(), Policies::default())
    }
}

fn reading(path: &std::path::Path, e: &io::Error) -> Failure {
    Failure::Failed(format!("reading {}: {e}", path.display()))
}

/// What can go wrong while a body is put.
enum Trouble {
    Source(Failure),
    Store(Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Source(failure)
    }
}

fn stream(
    store: &Store,
    key: &[u8],
    options: PutOptions,
    body: &mut dyn Read,
    len: Option<u64>,
    name: String,
) -> Result<(), Trouble> {
    let mut put = store.put_stream(key, len, options).map_err(Trouble::Store)?;
    pour(body, len, &name, |piece| put.write(piece).map_err(Trouble::Store))?;
    put.finish().map_err(Trouble::Store)
}

/// Reads all of a body, piece by piece.
fn pour<E: From<Failure>>(
    body: &mut dyn Read,
    len: Option<u64>,
    name: &str,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bar = output::bytes(name, len);
    let mut piece = vec![0; PIECE];
    loop {
        match body.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => {
                write(&piece[..n])?;
                bar.inc(n as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Failure::Failed(format!("reading {name}: {e}")).into()),
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Adds the mend that this command has for an error.
fn advise(trouble: Trouble, largest: u64) -> Failure {
    match trouble {
        Trouble::Source(failure) => failure,
        Trouble::Store(Error::Refused(Refusal::TooLarge)) => Failure::Failed(format!(
            "too large for this store: it takes objects of up to {}, a quarter of its capacity",
            human::size(largest)
        )),
        Trouble::Store(Error::Refused(Refusal::IndexFull)) => {
            Failure::Failed("the index has used its memory; give more with --memory".into())
        }
        Trouble::Store(e) => e.into(),
    }
}
