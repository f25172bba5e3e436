//! From paths to an open store: which places belong together, how the store was made, and how much memory to open it
//! with. A store is always opened in the mode that it was made in.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use clap::Args;
use picaflor::{About, Daemons, Durability, Error, Inspection, Mode, Options, Place, Store, inspect};
use picaflor_proxy::config::{Deletes, Size};
use picaflor_shared::{Client, is_socket};

use crate::{commands::Failure, output, policies::Policies};

/// Memory that a tool takes beside the index.
const MEMORY: u64 = 64 << 20;

/// For the commands that take several paths.
#[derive(Args)]
pub(crate) struct Memory {
    /// Most memory to use [default: 64MiB and, for the index, 1/256 of the store's capacity]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
}

/// For the commands about one store and its keys.
#[derive(Args)]
pub(crate) struct OneStore {
    /// The store: a file, a raw block device, or the socket of `picaflor share`
    store: PathBuf,
    /// Another device of the same store, repeatable
    #[arg(long, value_name = "PATH")]
    place: Vec<PathBuf>,
    #[command(flatten)]
    memory: Memory,
}

impl OneStore {
    /// As it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.store
    }

    /// What to call it in messages.
    pub(crate) fn name(&self) -> String {
        self.store.display().to_string()
    }

    fn paths(&self) -> Vec<PathBuf> {
        [&self.store].into_iter().chain(&self.place).cloned().collect()
    }

    /// The process that has it open, if the path is its socket.
    pub(crate) fn shared(&self) -> Result<Option<Client>, Failure> {
        shared(&self.paths())
    }

    /// For what wants the store itself.
    pub(crate) fn refuse_socket(&self, why: &str) -> Result<(), Failure> {
        match is_socket(&self.store) {
            true => Err(Failure::Usage(format!("{} is the socket of `picaflor share`: {why}", self.name()))),
            false => Ok(()),
        }
    }

    /// A path beside the store's, with more at its end.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.store.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// Opens it for reading.
    pub(crate) fn read(&self) -> Result<Store, Failure> {
        read(&one(&self.paths())?, &self.memory)
    }

    /// Opens it for writing.
    pub(crate) fn write(&self) -> Result<Store, Failure> {
        open(&one(&self.paths())?, &self.memory, Some(Durability::default()))
    }

    /// Opens it for writing, as `new` says if there is none yet. One that is there may grow or shrink; all else stays.
    pub(crate) fn write_or_create(
        &self,
        new: Options,
        preset: Option<&str>,
        policies: Policies,
    ) -> Result<Store, Failure> {
        let paths = self.paths();
        let blank = |path: &PathBuf| match inspect(path) {
            Ok(Inspection::Blank) => Ok(true),
            Ok(_) => Ok(false),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(true),
            Err(e) => Err(failure(path, e)),
        };
        // Some blank and some not is for the engine to refuse, with its reasons.
        if !paths.iter().map(blank).collect::<Result<Vec<_>, _>>()?.contains(&true) {
            let found = one(&paths)?;
            found.compare(&new)?;
            let durability = Some(new.durability);
            let asked = Asked { preset, capacity: new.capacity, policies };
            return open_with(&found, &self.memory, durability, Daemons::Threads, asked);
        }
        let new = new.rows(picaflor_literature::ROWS).as_preset(preset.unwrap_or("picaflor"))?;
        let capacity = if new.capacity == 0 { 1 << 30 } else { new.capacity };
        let memory = self.memory.for_capacity(capacity);
        let options = new.memory(memory).with(|o| {
            o.places = paths.iter().cloned().map(Place::Path).collect();
            policies.bind(o);
        });
        let wait = output::waiting(format!("making {}", self.name()));
        let made = Store::open(options).map_err(|e| failure(&self.store, e));
        wait.finish_and_clear();
        made
    }
}

impl Memory {
    fn for_capacity(&self, capacity: u64) -> u64 {
        self.memory.map_or(MEMORY + capacity / 256, |size| size.0)
    }
}

/// A store with all its places, not yet open.
pub(crate) struct Found {
    /// In the order of the command line; never empty.
    pub(crate) places: Vec<About>,
    /// Their paths, which need not be text.
    paths: Vec<PathBuf>,
}

impl Found {
    /// The places' paths.
    pub(crate) fn name(&self) -> String {
        self.places.iter().map(|about| about.place.as_str()).collect::<Vec<_>>().join(" + ")
    }

    /// What may not differ of what is asked for a new store, where one is there. It may have more bytes or fewer.
    fn compare(&self, new: &Options) -> Result<(), Failure> {
        let name = self.name();
        if new.mode == Mode::Store && self.places[0].mode == Mode::Cache {
            return Err(Failure::Failed(format!(
                "{name} is there already, and was made as a cache; leave out --store-mode"
            )));
        }
        Ok(())
    }

    /// Device bytes over all places.
    pub(crate) fn capacity(&self) -> u64 {
        self.places.iter().map(|about| about.capacity).sum()
    }
}

/// The process that has a store open, if the path is its socket.
pub(crate) fn shared(paths: &[PathBuf]) -> Result<Option<Client>, Failure> {
    match paths.iter().find(|path| is_socket(path)) {
        None => Ok(None),
        Some(socket) if paths.len() == 1 => Ok(Some(Client::connect(socket)?)),
        Some(socket) => {
            let name = socket.display();
            Err(Failure::Usage(format!(
                "{name} is the socket of `picaflor share`, which serves one store: name it alone"
            )))
        }
    }
}

/// A place, or some of those of one store, that cannot be opened; and why.
pub(crate) struct Unopened {
    pub(crate) names: Vec<String>,
    pub(crate) why: Failure,
}

/// Looks at the places and puts those of one store together, whatever becomes of the others.
pub(crate) fn find_each(paths: &[PathBuf]) -> (Vec<Found>, Vec<Unopened>) {
    let mut all: Vec<Found> = Vec::new();
    let mut unopened = Vec::new();
    for path in paths {
        let mut refuse = |why| unopened.push(Unopened { names: vec![path.display().to_string()], why });
        let about = match look(path) {
            Ok(about) => about,
            Err(why) => {
                refuse(why);
                continue;
            }
        };
        match all.iter_mut().find(|found| found.places[0].store == about.store) {
            Some(found) if found.places.iter().any(|known| known.number == about.number) => {
                refuse(Failure::Usage(format!("{} is given twice, or is a copy of another", path.display())));
            }
            Some(found) => {
                found.places.push(about);
                found.paths.push(path.clone());
            }
            None => all.push(Found { places: vec![about], paths: vec![path.clone()] }),
        }
    }
    let (whole, parts) = all.into_iter().partition(|Found { places, .. }| places.len() == places[0].number.1 as usize);
    unopened.extend(Vec::into_iter(parts).map(|Found { places, .. }| {
        let (first, of) = (&places[0], places[0].number.1);
        let (place, number) = (&first.place, first.number.0 + 1);
        let why = Failure::Usage(format!("{place} is place {number} of the {of} of its store; give them all"));
        Unopened { names: places.iter().map(|about| about.place.clone()).collect(), why }
    }));
    (whole, unopened)
}

/// As [`find_each`], when all the places have to be of one store.
pub(crate) fn one(paths: &[PathBuf]) -> Result<Found, Failure> {
    let (mut all, unopened) = find_each(paths);
    if let Some(Unopened { why, .. }) = unopened.into_iter().next() {
        return Err(why);
    }
    match (all.pop(), all.pop()) {
        (Some(found), None) => Ok(found),
        (last, before) => {
            let names: Vec<_> = before.iter().chain(&last).map(Found::name).collect();
            Err(Failure::Usage(format!("{} are different stores; name one", names.join(" and "))))
        }
    }
}

/// Opens a store for reading: not a byte of it is written.
pub(crate) fn read(found: &Found, memory: &Memory) -> Result<Store, Failure> {
    open(found, memory, None)
}

/// Opens a store for writing, without daemons: the caller steps it.
pub(crate) fn by_hand(found: &Found, memory: &Memory) -> Result<Store, Failure> {
    open_with(found, memory, Some(Durability::default()), Daemons::Manual, Asked::default())
}

/// For writing with a bound of what a crash may cost; for reading without one.
fn open(found: &Found, memory: &Memory, writing: Option<Durability>) -> Result<Store, Failure> {
    // A reader needs no daemons that tidy up.
    let daemons = if writing.is_none() { Daemons::Manual } else { Daemons::Threads };
    open_with(found, memory, writing, daemons, Asked::default())
}

/// What of a store that is there is asked for otherwise; by default nothing.
#[derive(Default)]
struct Asked<'a> {
    preset: Option<&'a str>,
    /// Bytes of it; 0 is those that it has.
    capacity: u64,
    policies: Policies,
}

/// With what is asked for, and else as the store remembers it.
fn open_with(
    found: &Found,
    memory: &Memory,
    writing: Option<Durability>,
    daemons: Daemons,
    Asked { preset, capacity, policies }: Asked<'_>,
) -> Result<Store, Failure> {
    let read_only = writing.is_none();
    let first = &found.places[0];
    let options = picaflor_literature::preset(preset.unwrap_or(first.preset))?
        .place(&found.paths[0])
        .mode(first.mode)
        .capacity(capacity)
        .memory(memory.for_capacity(found.capacity().max(capacity)))
        .with(|o| {
            o.places = found.paths.iter().cloned().map(Place::Path).collect();
            o.cluster = first.cluster;
            o.read_only = read_only;
            o.durability = writing.unwrap_or_default();
            Deletes::like(o.durability).bind(o);
            o.daemons = daemons;
            policies.bind(o);
        });
    let wait = output::waiting(format!("opening {}", found.name()));
    let opened = Store::open(options);
    wait.finish_and_clear();
    opened.map_err(|e| failure(&found.paths[0], e))
}

fn look(path: &Path) -> Result<About, Failure> {
    let name = path.display();
    if is_socket(path) {
        return Err(Failure::Usage(format!(
            "{name} is the socket of `picaflor share`: this command reads a store itself; stop that, and name the store"
        )));
    }
    match inspect(path) {
        Ok(Inspection::Store(about)) => Ok(about),
        Ok(Inspection::Blank) => {
            let mend = "`picaflor put --create` or `picaflor serve` makes one";
            Err(Failure::Failed(format!("{name} is blank: there is no store in it yet; {mend}")))
        }
        Ok(Inspection::Foreign) => Err(Failure::Failed(format!(
            "{name} is not a picaflor store: it holds something else, or its beginning was overwritten"
        ))),
        Err(e) => Err(failure(path, e)),
    }
}

/// Says what a user can do about the errors of opening.
fn failure(path: &Path, e: Error) -> Failure {
    let name = path.display();
    let Error::Io { source, .. } = &e else { return e.into() };
    Failure::Failed(match source.kind() {
        ErrorKind::NotFound => {
            format!("{name}: no such file; `picaflor put --create` or `picaflor serve` makes a store")
        }
        ErrorKind::ResourceBusy => format!(
            "{name} is in use by another process (it is locked); if that is `picaflor serve`, stop it first, or ask it: \
             `picaflor stats --admin http://127.0.0.1:3129`; if it is `picaflor share`, give its socket in place of the store"
        ),
        ErrorKind::PermissionDenied => format!("{name}: permission denied; run as its owner"),
        _ => e.to_string(),
    })
}
