//! From a seed to a setup: how a store is opened, and by whom it is used.
//!
//! Invariant: a setup depends on its seed and on the wish, on nothing else; parent and child make it anew.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use picaflor::{Durability, Mode, Options, Place};

use super::wish::Wish;
use crate::dice::Dice;

/// Rows that keep a file for each object.
const FILES: [&str; 3] = ["simple", "squid", "multiple-dirs"];
/// Rows of which every put and delete is durable when it returns, and from which no object ever leaves.
const TABLES: [&str; 4] = ["pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];
/// The row whose slots say by themselves whose they are.
const SCANNED: &str = "buddy-scan";

/// How one store is opened, and by whom it is used.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What all of it comes from.
    pub seed: u64,
    pub(super) preset: &'static str,
    pub(super) mode: Mode,
    pub(super) places: usize,
    pub(super) durability: Durability,
    pub(super) delete_time: Duration,
    pub(super) delete_count: u64,
    pub(super) cluster: u32,
    pub(super) capacity: u64,
    pub(super) memory: u64,
    pub(super) open_buffers: usize,
    pub(super) threads: usize,
    pub(super) tasks: usize,
    pub(super) keys: u32,
    /// Keys that all write; each other one has one writer.
    pub(super) shared: u32,
    /// Bytes of the longest body.
    pub(super) longest: u64,
    /// Percent of what is done that are deletes.
    pub(super) deletes: u64,
    /// Percent of puts that name a neighbour: of so many, a cache lets what it has to write wait.
    pub(super) neighbours: u64,
    /// Longest time that a child works.
    pub(super) work: Duration,
}

impl Setup {
    /// What this seed comes to.
    #[must_use]
    pub fn new(seed: u64, wish: &Wish) -> Self {
        let mut dice = Dice::new(seed, 21);
        let presets: Vec<_> = picaflor_literature::presets().collect();
        let preset = wish.preset.unwrap_or(presets[(seed % presets.len() as u64) as usize]);
        let in_tables = TABLES.contains(&preset);
        let drawn = if dice.percent(50) { Mode::Store } else { Mode::Cache };
        let mode = if in_tables { Mode::Store } else { wish.mode.unwrap_or(drawn) };
        let drawn = dice.pick(&[1, 1, 1, 2, 2, 2, 3, 4]);
        let one = in_tables || FILES.contains(&preset) || preset == SCANNED;
        let places = if one { 1 } else { wish.places.unwrap_or(drawn) };
        let drawn = match dice.below(20) {
            0..7 => Durability::EveryPut,
            7..15 => {
                let time = Duration::from_millis(dice.scaled(10, 300));
                Durability::Bounded { time, puts: dice.pick(&[5, 50, u64::MAX]) }
            }
            15..17 => Durability::default(),
            _ => Durability::None,
        };
        // Without durability a replaced file is gone at once, whatever becomes of its replacement.
        let drawn = if FILES.contains(&preset) && drawn == Durability::None { Durability::default() } else { drawn };
        let cluster: u32 = dice.pick(&[64 << 10, 64 << 10, 64 << 10, 128 << 10]);
        let least = picaflor_format::zone::Map::least_capacity(cluster);
        let each = (least + dice.scaled(512 << 10, 6 << 20)) / 4096 * 4096;
        let delete_time = Duration::from_millis(dice.scaled(10, 400));
        let drawn_count = dice.pick(&[1, 1, 3, 20, 1000]);
        let memory = u64::from(cluster) * dice.scaled(40, 100) * places as u64;
        let (threads, tasks) = (dice.pick(&[1, 2, 3, 4, 4, 12]), dice.pick(&[0, 0, 2, 5]));
        let (threads, tasks) = (wish.threads.unwrap_or(threads), wish.tasks.unwrap_or(tasks));
        let keys = dice.scaled(20, 300) as u32;
        Self {
            seed,
            preset,
            mode,
            places,
            durability: wish.durability.unwrap_or(drawn),
            delete_time,
            delete_count: wish.delete_count.unwrap_or(drawn_count),
            cluster,
            capacity: each * places as u64,
            memory,
            open_buffers: dice.between(2, 16) as usize,
            threads: threads.max(usize::from(tasks == 0)),
            tasks,
            keys,
            shared: keys / 8,
            longest: if dice.percent(70) { u64::from(cluster) * 3 } else { 8 << 10 },
            deletes: dice.pick(&[16, 16, 60]),
            neighbours: dice.pick(&[20, 60]),
            work: wish.work,
        }
    }

    /// Threads and tasks that write.
    pub(super) fn writers(&self) -> usize {
        self.threads + self.tasks
    }

    /// Whether each object has a file.
    pub(super) fn has_files(&self) -> bool {
        FILES.contains(&self.preset)
    }

    /// Whether every put and delete that returned is durable, whatever was asked for.
    pub(super) fn is_every_operation(&self) -> bool {
        TABLES.contains(&self.preset)
    }

    /// Whether the row does not keep what groups were told.
    pub(super) fn forgets_groups(&self) -> bool {
        FILES.contains(&self.preset) || self.preset == SCANNED
    }

    /// How long this group's puts may stay volatile, where that is not the store's bound; `Some(None)` is for ever.
    pub(super) fn interval(&self, group: u8) -> Option<Option<Duration>> {
        match group {
            2 => Some(Some(Duration::from_millis(40 + self.seed % 100))),
            3 => Some(None),
            _ => None,
        }
    }

    /// Where the store is.
    pub(super) fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.places).map(|number| folder.join(format!("place-{number}"))).collect()
    }

    /// The options that all of its lives open the store with.
    ///
    /// # Errors
    /// As [`Options::preset`].
    pub(super) fn options(&self, folder: &Path) -> picaflor::Result<Options> {
        let paths = self.paths(folder);
        let mut options = picaflor_literature::preset(self.preset)?.place(paths[0].clone());
        options.places = paths.into_iter().map(Place::Path).collect();
        (options.capacity, options.memory, options.mode) = (self.capacity, self.memory, self.mode);
        (options.durability, options.delete_time) = (self.durability, self.delete_time);
        (options.delete_count, options.cluster) = (self.delete_count, self.cluster);
        options.open_buffers = options.open_buffers.min(self.open_buffers);
        // A reader waits for few others.
        options.read_batch_time = Duration::from_millis(1);
        // After a crash it refuses puts until it has looked at everything: here puts are what it is about.
        options.reopening = picaflor::Reopening::AtOnce;
        Ok(options)
    }

    /// In one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} {:?} {:?}, deletes {:?}/{}, {} places, {} KiB in clusters of {} KiB, memory {} KiB, {} threads, {} tasks, \
             {} keys, {}% deletes, {}% neighbours, bodies up to {} bytes",
            self.preset,
            self.mode,
            self.durability,
            self.delete_time,
            self.delete_count,
            self.places,
            self.capacity >> 10,
            self.cluster >> 10,
            self.memory >> 10,
            self.threads,
            self.tasks,
            self.keys,
            self.deletes,
            self.neighbours,
            self.longest,
        )
    }
}
