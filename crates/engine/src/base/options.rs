//! Everything a store can be told at opening: first what changes behaviour, then what changes speed.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use picaflor_device::{Clock, Device, Folder, PRIVATE, Preallocate};
use picaflor_format::superblock::Superblock;

use crate::{
    Mode, Result,
    base::policy::ClusterAge,
    base::policy::Departure,
    base::policy::PackOrder,
    base::policy::Persistence,
    base::policy::Reopening,
    base::preset::{self, PICAFLOR, Preset, Rows},
    base::spread::Spread,
    space::{LayoutKind, NextCluster},
};

/// The paper's THRESHOLD (Markatos et al. 1999, §3.4), in blocks of 512 bytes.
pub(crate) const THRESHOLD: u32 = 256;

/// How much acknowledged work a crash may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// What the device happens to have. Deletes keep their own bound.
    None,
    /// At most this much time, and at most this many puts, whichever comes first.
    Bounded {
        /// Longest time an acknowledged put may stay volatile.
        time: Duration,
        /// Most puts that may be volatile at once, on each of several devices.
        puts: u64,
    },
    /// A put returns when it is durable; concurrent puts share one sync (group commit).
    EveryPut,
}

impl Default for Durability {
    fn default() -> Self {
        Self::Bounded { time: Duration::from_secs(1), puts: u64::MAX }
    }
}

/// What runs the flusher, the reclaimer, the checkpointer and the scrubber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Daemons {
    /// Threads of the store's own.
    #[default]
    Threads,
    /// The caller, through [`crate::Store::step`]: one thread, repeatable. For simulators and tests.
    Manual,
}

/// Where a store's bytes are.
#[derive(Clone)]
#[non_exhaustive]
pub enum Place {
    /// A regular file (made if absent) or a raw block device.
    Path(PathBuf),
    /// Any device: memory, faulty, simulated.
    Device(Arc<dyn Device>),
    /// Any folder, for presets that keep a file for each object; a path is a real one to them.
    Folder(Arc<dyn Folder>),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Device(device) => f.debug_tuple("Device").field(&device.backend()).finish(),
            Self::Folder(folder) => f.debug_tuple("Folder").field(&folder.backend()).finish(),
        }
    }
}

macro_rules! place_from {
    ($($from:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$from> for Place {
            fn from(place: $from) -> Self {
                Self::$variant(place.into())
            }
        }
    )+};
}

place_from! {
    &str => Path,
    String => Path,
    &Path => Path,
    &PathBuf => Path,
    PathBuf => Path,
    Arc<dyn Device> => Device,
    Arc<dyn Folder> => Folder,
}

/// Asked before a put whether the object deserves room: key, and body length where it is known.
pub type Admission = Arc<dyn Fn(&[u8], Option<u64>) -> bool + Send + Sync>;

/// Told of each object that leaves: its key and why.
pub type EvictionListener = Arc<dyn Fn(&[u8], Departure) + Send + Sync>;

/// How to open a store. Made from [`Options::new`], [`Options::on`] or [`Options::preset`] by setting what differs:
///
/// ```
/// use picaflor::{Durability, Mode, Options};
///
/// let options = Options::new("cache.store").capacity(1 << 30).memory(64 << 20).durability(Durability::EveryPut);
/// ```
///
/// The fields may be read and changed too; what cannot work is refused when the store is opened, by
/// [`Error::Option`](crate::Error::Option), or by [`Options::check`] before.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    // Behaviour.
    /// One place, or several devices as one.
    pub places: Vec<Place>,
    /// Which of several devices an object lies on. Fixed when the store is made. Default [`Spread::Key`].
    pub spread: Spread,
    /// Hard cap of device bytes, divided evenly among the places; 0 takes each existing file's or
    /// device's own size. Default 1 GiB for a new file. A store that lies in clusters changes its own
    /// ([`crate::Stats::capacity`]) where it is opened for writing. It grows to eight times the one that it was made
    /// with. Given less it gives the rest back: first what lies there moves or, in a cache, leaves for want of room,
    /// which takes the time of writing it anew. What it cannot have is an error, which says what to do. A device that
    /// has less has all of it used.
    pub capacity: u64,
    /// Hard cap of memory in bytes: index, buffers and memory tier together, at every moment. An object that has
    /// left the tier while a handle is held counts as the holder's, for nothing here could free it. Default 256 MiB.
    pub memory: u64,
    /// Fixed when the store is made. Default [`Mode::Cache`].
    pub mode: Mode,
    /// Default: at most one second.
    pub durability: Durability,
    /// Longest time a delete, or a change of a group's settings, may stay volatile. Default 1 s.
    pub delete_time: Duration,
    /// Most deletes that may be volatile at once, on each of several devices; 1 makes every delete durable before it
    /// returns. Default 1,000.
    pub delete_count: u64,
    /// Expiry of objects put without one. Default none.
    pub default_ttl: Option<Duration>,
    /// Default: everything is admitted.
    pub admission: Option<Admission>,
    /// Told of each object that leaves, but for those replaced or deleted. Called with locks held: it must not
    /// call the store. A panic in it is counted (`Counts::listener_panics`). With a listener a put that replaces an
    /// object reads it first. Default: none.
    pub eviction_listener: Option<EvictionListener>,
    /// Opens without writing a byte; puts are refused. Default false.
    pub read_only: bool,
    /// Permissions of the files that it makes, at least their owner's to read and write; folders may be searched by
    /// those who may read the files, and the umask takes away of both. What is there keeps its own. Default 0600.
    pub file_mode: u32,

    // Performance.
    /// Blocks of 512 bytes of the longest object that shares an area with others of its length, where the preset's
    /// layout has areas (`buddy`); longer ones lie alone. Fixed when the store is made. Default 256, 128 KiB.
    pub threshold: u32,
    /// Folders for objects longer than [`Options::threshold`], a file each, as BUDDY's paper has them: one for each of
    /// the places, in their order. They count in the capacity as if they lay on the device. Fixed when the store is
    /// made. Default none: such objects lie alone on the device. Only for `buddy`.
    pub long_files: Vec<Place>,
    /// Where objects are blocks (`pmflf-ts`, `pmflf-pl`, `pmflf-pfl`, `oba`): larger free blocks are split, but for a
    /// grain, before more of the device is taken, and blocks are joined while 1.1 times what is allocated is taken.
    /// Then less of the device is in use. Default false, the paper's order: a free block that is up to 2,000 bytes
    /// larger is used as it is, then the unused end of the device, and only then larger blocks are split.
    pub splits_first: bool,
    /// Bytes of a cluster, the unit of writing: a power of two, 16 KiB to 4 MiB. Fixed when the store is
    /// made. Default 256 KiB: 93% of the sequential speed of 1 MiB writes, a quarter of the memory per open buffer;
    /// 64 KiB with `hummingbird` and `damelo`.
    pub cluster: u32,
    /// When a cluster leaves a cache that lies in clusters though its place is not needed. Default never. The age of an
    /// object is [`Options::default_ttl`].
    pub cluster_age: ClusterAge,
    /// What a cache does after a crash before all of its clusters were looked at. Default [`Reopening::AtOnce`];
    /// `hummingbird` goes in its paper's steps.
    pub reopening: Reopening,
    /// Which free cluster is written next. Default the next one in address order; `hummingbird` writes where the disk's
    /// arm is, `damelo` in the group's region.
    pub next_cluster: NextCluster,
    /// Groups among which [`NextCluster::InRegion`] divides the device; higher numbers begin again in its middle.
    /// Default 16.
    pub groups: u32,
    /// Most bytes of objects that wait in memory to be packed into clusters (`picaflor` and `hummingbird`, as a cache);
    /// no more than half of the memory that index and buffers leave. Default 0: an eighth of it; in `hummingbird` they
    /// share all of it with the clusters that were read, and are packed when nothing there was used less recently.
    /// Never more than an eighth of the device.
    pub unpacked: u64,
    /// The same: what is packed first. Default the least recently used; in `picaflor`, what came first.
    pub pack_order: PackOrder,
    /// Most open buffers, hence most servers and groups that are kept apart at one time; no more than an eighth of the
    /// memory has room for. Default 16; a preset may say otherwise: `damelo` has 1,024, and opens as many as there are
    /// groups in use.
    pub open_buffers: usize,
    /// How the blocks of a new file are obtained: reserving them is done at once, writing them all makes every
    /// later write and sync cheaper. Default: files up to 256 MiB are written, larger ones reserved.
    pub preallocate: Preallocate,
    /// For presets that read in batches: reads that make one. Default 10.
    pub read_batch: usize,
    /// The same: longest time that a read waits for others, on the store's clock. Default 500 ms: at 20 reads a second,
    /// a batch takes as long to fill.
    pub read_batch_time: Duration,
    /// Default [`Daemons::Threads`].
    pub daemons: Daemons,
    /// Default the real clock.
    pub clock: Clock,
    /// Seed of a new store's hashes and identity; for repeatable tests. Default random.
    pub seed: Option<u64>,
    pub(crate) preset: Preset,
    pub(crate) rows: Rows,
    /// Whether it was asked for, and not only the default.
    pub(crate) preset_given: bool,
}

impl Options {
    /// The store at `path`, a file, a block device or a folder, with the preset that it remembers; a new one has the
    /// default preset.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::nowhere().place(path.into())
    }

    /// As [`Options::new`] on any device.
    pub fn on(device: Arc<dyn Device>) -> Self {
        Self::nowhere().place(device)
    }

    /// No place, and no preset that was asked for.
    #[doc(hidden)]
    pub fn nowhere() -> Self {
        Self {
            places: Vec::new(),
            spread: Spread::default(),
            capacity: 0,
            memory: 256 << 20,
            mode: Mode::Cache,
            durability: Durability::default(),
            delete_time: Duration::from_secs(1),
            delete_count: 1000,
            default_ttl: None,
            admission: None,
            eviction_listener: None,
            read_only: false,
            file_mode: PRIVATE,
            threshold: THRESHOLD,
            long_files: Vec::new(),
            splits_first: false,
            cluster: PICAFLOR.cluster(),
            cluster_age: ClusterAge::Unlimited,
            reopening: PICAFLOR.reopening(),
            next_cluster: PICAFLOR.next_cluster(),
            groups: 16,
            unpacked: 0,
            pack_order: PackOrder::default(),
            open_buffers: PICAFLOR.open_buffers(),
            read_batch: 10,
            read_batch_time: Duration::from_millis(500),
            preallocate: Preallocate::Auto,
            daemons: Daemons::Threads,
            clock: Clock::real(),
            seed: None,
            preset: PICAFLOR,
            rows: Rows::default(),
            preset_given: false,
        }
    }

    /// The preset with this name, at no place yet: [`Options::place`] says where.
    ///
    /// ```
    /// # use picaflor::Options;
    /// let options = Options::preset("damelo")?.place("pages.store").capacity(1 << 30);
    /// # Ok::<(), picaflor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Option`] for a name that is not in the table; it lists those that are.
    pub fn preset(name: &str) -> Result<Self> {
        Self::nowhere().as_preset(name)
    }

    /// The same options with the answers of another preset. A store that was made with another one is opened with this
    /// from here on, if it can be.
    ///
    /// # Errors
    /// As [`Options::preset`].
    pub fn as_preset(mut self, name: &str) -> Result<Self> {
        let preset = self.rows.named(name)?;
        self.open_buffers = preset.open_buffers();
        self.next_cluster = preset.next_cluster();
        self.reopening = preset.reopening();
        self.take(preset);
        self.preset_given = true;
        Ok(self)
    }

    /// Lets presets of another crate be asked for, and remembered, beside our own.
    #[doc(hidden)]
    pub fn rows(mut self, rows: &'static [Preset]) -> Self {
        self.rows = Rows(rows);
        self
    }

    /// Takes the answers of a preset where those of the one before were not changed.
    pub(crate) fn take(&mut self, preset: Preset) {
        fn follow<T: PartialEq>(field: &mut T, before: T, now: T) {
            if *field == before {
                *field = now;
            }
        }
        let before = std::mem::replace(&mut self.preset, preset);
        follow(&mut self.open_buffers, before.open_buffers(), preset.open_buffers());
        follow(&mut self.cluster, before.cluster(), preset.cluster());
        follow(&mut self.next_cluster, before.next_cluster(), preset.next_cluster());
        follow(&mut self.reopening, before.reopening(), preset.reopening());
    }

    /// Takes the preset that a store remembers, unless another one was asked for.
    pub(crate) fn remember(&mut self, made: Option<&Superblock>) {
        let made = made.filter(|_| !self.preset_given);
        if let Some(preset) = made.and_then(|block| self.rows.of_store(block)) {
            self.take(preset);
        }
    }

    /// What a crash may cost: as [`Options::durability`] says, or nothing where every put of the preset is durable.
    pub fn crash_cost(&self) -> Durability {
        match self.preset.persistence {
            Persistence::EveryOperation => Durability::EveryPut,
            _ => self.durability,
        }
    }

    /// Whether the preset keeps a file for each object, and so lies in a folder, real or given, not on a device.
    pub fn wants_folder(&self) -> bool {
        matches!(self.preset.layout, LayoutKind::Places(places) if places.in_folder)
    }

    /// Whether the preset may keep long objects in files beside its device.
    pub(crate) fn takes_long_files(&self) -> bool {
        matches!(self.preset.layout, LayoutKind::Places(places) if places.long_files)
    }

    /// Names of the presets of this crate, the default first.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        preset::names()
    }

    /// Adds a place: a path, or a device; a store is at one or several.
    pub fn place(mut self, place: impl Into<Place>) -> Self {
        self.places.push(place.into());
        self
    }

    /// Adds a folder for the long objects of a place; see [`Options::long_files`].
    pub fn long_files_in(mut self, folder: impl Into<Place>) -> Self {
        self.long_files.push(folder.into());
        self
    }

    /// Sets the longest time that a delete may stay volatile, and the most deletes at once that may.
    pub fn delete_bounds(mut self, time: Duration, count: u64) -> Self {
        (self.delete_time, self.delete_count) = (time, count);
        self
    }

    /// Sets [`field@Options::default_ttl`].
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.default_ttl = Some(ttl);
        self
    }

    /// Sets [`field@Options::admission`].
    pub fn admission(mut self, admits: impl Fn(&[u8], Option<u64>) -> bool + Send + Sync + 'static) -> Self {
        self.admission = Some(Arc::new(admits));
        self
    }

    /// Sets [`field@Options::eviction_listener`].
    pub fn eviction_listener(mut self, listener: impl Fn(&[u8], Departure) + Send + Sync + 'static) -> Self {
        self.eviction_listener = Some(Arc::new(listener));
        self
    }

    /// Sets [`field@Options::seed`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Changes any of the fields, in place; for building a value in one expression.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),+ $(,)?) => {
        impl Options {$(
            #[doc = concat!("Sets [`field@Options::", stringify!($name), "`].")]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )+}
    };
}

setters! {
    spread: Spread,
    capacity: u64,
    memory: u64,
    mode: Mode,
    durability: Durability,
    read_only: bool,
    file_mode: u32,
    threshold: u32,
    splits_first: bool,
    cluster: u32,
    cluster_age: ClusterAge,
    reopening: Reopening,
    next_cluster: NextCluster,
    groups: u32,
    unpacked: u64,
    pack_order: PackOrder,
    open_buffers: usize,
    preallocate: Preallocate,
    read_batch: usize,
    read_batch_time: Duration,
    daemons: Daemons,
    clock: Clock,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("places", &self.places)
            .field("capacity", &self.capacity)
            .field("memory", &self.memory)
            .field("mode", &self.mode)
            .field("durability", &self.durability)
            .field("cluster", &self.cluster)
            .field("cluster_age", &self.cluster_age)
            .field("reopening", &self.reopening)
            .finish_non_exhaustive()
    }
}

/// When an object stops being worth returning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// The store's `default_ttl`, or never.
    #[default]
    Default,
    /// Never.
    Never,
    /// Milliseconds since the Unix epoch.
    At(u64),
    /// From now.
    After(Duration),
}

/// What goes with one object, beside its key and body. Made from [`PutOptions::new`] by setting what differs:
///
/// ```
/// use std::time::Duration;
///
/// use picaflor::{Expiry, PutOptions};
///
/// let image = PutOptions::new().neighbour("http://example.org/").expiry(Expiry::After(Duration::from_secs(60)));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PutOptions {
    /// The application's bytes, returned with the object; at most 64 KiB, and with the key no more than fits in a
    /// cluster.
    pub metadata: Bytes,
    /// When it expires.
    pub expiry: Expiry,
    /// The group it belongs to; 0 is none.
    pub group: u32,
    /// Origin server, as any hash of its name; objects of one server are laid together, where no neighbour is named. 0
    /// is unknown.
    pub server: u32,
    /// Key of an object to lie beside, for instance the page that refers to this image. As long as a quarter of the
    /// puts name one, a cache lets objects wait in memory for each other, no longer than [`Options::durability`]
    /// allows.
    pub neighbour: Option<Bytes>,
    /// Goes to the device without staying in memory.
    pub bypass_memory: bool,
    /// Refuse with [`crate::Refusal::Busy`] rather than wait for the device.
    pub no_wait: bool,
}

/// What [`Store::put`](crate::Store::put) puts with.
pub(crate) static PLAIN: PutOptions = PutOptions::new();

impl PutOptions {
    /// No metadata, the store's own expiry, no group, server or neighbour.
    pub const fn new() -> Self {
        Self {
            metadata: Bytes::new(),
            expiry: Expiry::Default,
            group: 0,
            server: 0,
            neighbour: None,
            bypass_memory: false,
            no_wait: false,
        }
    }

    /// Sets [`PutOptions::metadata`].
    pub fn metadata(mut self, metadata: impl Into<Bytes>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Sets [`PutOptions::expiry`].
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets [`PutOptions::group`].
    pub fn group(mut self, group: u32) -> Self {
        self.group = group;
        self
    }

    /// Sets [`PutOptions::server`].
    pub fn server(mut self, server: u32) -> Self {
        self.server = server;
        self
    }

    /// Sets [`PutOptions::neighbour`].
    pub fn neighbour(self, key: impl Into<Bytes>) -> Self {
        self.maybe_neighbour(Some(key.into()))
    }

    /// Sets [`PutOptions::neighbour`], or that there is none.
    pub fn maybe_neighbour(mut self, key: Option<Bytes>) -> Self {
        self.neighbour = key;
        self
    }

    /// Sets [`PutOptions::bypass_memory`].
    pub fn bypass_memory(mut self, bypass: bool) -> Self {
        self.bypass_memory = bypass;
        self
    }

    /// Sets [`PutOptions::no_wait`].
    pub fn no_wait(mut self, no_wait: bool) -> Self {
        self.no_wait = no_wait;
        self
    }
}
