//! From a seed to a plan: how the store is set up, what its devices do, and how keys are named.
//!
//! Invariant: a plan depends on its seed and on the mode asked for, on nothing else.

use std::time::Duration;

use picaflor::{ClusterAge, Durability, Mode, Reopening};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::dice::Dice;

/// The row that is tortured where none is named.
const DEFAULT: &str = "picaflor";
/// Rows whose objects lie in clusters.
const IN_CLUSTERS: [&str; 3] = [DEFAULT, "hummingbird", GROUPS];

/// Rows that keep a file for each object.
const FILES: [&str; 3] = ["simple", "squid", "multiple-dirs"];

/// The row that lies in clusters of one group each, some of them small.
const GROUPS: &str = "damelo";

/// What the devices of a run do to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing but crashes.
    Crashes,
    /// Errors that they own up to: reads, writes, syncs and space fail, and things take time.
    Failing,
    /// Lies: writes lost, torn or misdirected, bits that flip.
    Lying,
    /// Bits flipped and blocks overwritten between one life of the store and the next.
    Damage,
}

/// Rows whose objects are entries of hash tables on disk.
const TABLES: [&str; 4] = ["pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];

/// The row whose long objects may be files beside its device.
const LONG_FILES: &str = "buddy";

/// Bytes of a device for files: they are a log that only grows.
const FOR_FILES: u64 = 4 << 30;

/// The row whose slots say by themselves whose they are.
const SCANNED: &str = "buddy-scan";

/// One run, but for its operations.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What all of it comes from.
    pub seed: u64,
    /// Row of the engine's table.
    pub preset: &'static str,
    /// Cache or store.
    pub mode: Mode,
    /// How much a crash may cost.
    pub durability: Durability,
    /// Longest time a delete may stay volatile.
    pub delete_time: Duration,
    /// Most deletes that may be volatile, and one.
    pub delete_count: u64,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// Smallest unit of reading and writing of the devices, in bytes.
    pub block: usize,
    /// Bytes of each device.
    pub device: u64,
    /// Bytes of each device that the store may use.
    pub capacity: u64,
    /// Number of devices.
    pub volumes: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Most open buffers.
    pub open_buffers: usize,
    /// Expiry of what is put without one.
    pub default_ttl: Option<Duration>,
    /// When clusters leave a cache though nothing needs their place.
    pub cluster_age: ClusterAge,
    /// What a cache does after a crash.
    pub reopening: Reopening,
    /// What the devices do.
    pub trouble: Trouble,
    /// Number of operations.
    pub length: usize,
    /// Names of the keys.
    pub keys: Vec<Vec<u8>>,
    /// Which other keys share each key's place in the index.
    pub twins: Vec<bool>,
    /// Longest body, in bytes.
    pub longest: u64,
    /// Whether objects are put and deleted many at once too.
    pub many: bool,
    /// Percent of the puts that name a neighbour; from a quarter on, objects wait for theirs.
    pub beside: u64,
    /// The second edition; see [`Plan::extended`].
    pub extended: bool,
    /// Whether what devices are given stays in flight and lands in any order.
    pub in_flight: bool,
    /// Whether what the audit says is judged.
    pub audited: bool,
    /// Slots of the longest object that is not a file beside the devices, if long ones are.
    pub long_files_above: Option<u32>,
    /// Whether the opening that follows a crash is closed at once, before anything was asked for or scrubbed.
    pub hurried: bool,
    /// Whether no listener hears what leaves (`Options::eviction_listener`), as in most programs. Then a cache takes
    /// any entry of a key's place in the index for its own.
    pub deaf: bool,
}

impl Plan {
    /// The plan of this seed, in this mode if one is given.
    #[must_use]
    pub fn new(seed: u64, mode: Option<Mode>) -> Self {
        let mut dice = Dice::new(seed, 1);
        let drawn = if dice.percent(50) { Mode::Store } else { Mode::Cache };
        let durability = match dice.below(10) {
            0..3 => Durability::EveryPut,
            3..6 => {
                let time = Duration::from_millis(dice.scaled(1, 2000));
                Durability::Bounded { time, puts: dice.pick(&[1, 2, 7, 50, u64::MAX]) }
            }
            6..8 => Durability::default(),
            _ => Durability::None,
        };
        let cluster = if dice.percent(85) { 64 << 10 } else { 128 << 10 };
        let least = picaflor_format::zone::Map::least_capacity(cluster);
        let device = (least + dice.scaled(64 << 10, 6 << 20)) / 4096 * 4096;
        let capacity = if dice.percent(80) { device } else { (least + dice.below(device - least + 1)) / 4096 * 4096 };
        let keys = dice.scaled(3, 400) as usize;
        let (keys, twins) = keys_of(seed, keys, dice.percent(15));
        Self {
            seed,
            preset: DEFAULT,
            block: 4096,
            mode: mode.unwrap_or(drawn),
            durability,
            delete_time: Duration::from_millis(dice.scaled(1, 2000)),
            delete_count: dice.pick(&[1, 1, 3, 20, 1000]),
            cluster,
            device,
            capacity,
            volumes: if dice.percent(85) { 1 } else { 2 },
            memory: u64::from(cluster) * dice.scaled(16, 80),
            open_buffers: dice.between(1, 8) as usize,
            default_ttl: dice.percent(10).then(|| Duration::from_millis(dice.scaled(10, 100_000))),
            cluster_age: ClusterAge::Unlimited,
            reopening: Reopening::AtOnce,
            trouble: match dice.below(100) {
                0..60 => Trouble::Crashes,
                60..76 => Trouble::Failing,
                76..88 => Trouble::Lying,
                _ => Trouble::Damage,
            },
            length: dice.scaled(40, 900) as usize,
            keys,
            twins,
            longest: dice.scaled(200, 400 << 10),
            // No seed that ever found something is one of these: what those do stays what it was.
            many: seed % 8 == 1,
            // The same.
            beside: if matches!(seed % 17, 3 | 5 | 12 | 16) { 70 } else { 10 },
            extended: false,
            in_flight: false,
            audited: false,
            long_files_above: None,
            hurried: false,
            deaf: false,
        }
    }

    /// The same plan for another row of the table. Where objects lie in place, every other device has blocks as
    /// short as a slot.
    #[must_use]
    pub fn with_preset(self, preset: &'static str) -> Self {
        if FILES.contains(&preset) {
            // The folder is a log that only grows, on a device with room for it. It promises nothing of a file
            // system on a device that lies.
            let trouble = Trouble::Crashes;
            // Without durability a replaced file is gone at once, whatever becomes of its replacement.
            let durability = match self.durability {
                Durability::None => Durability::default(),
                asked => asked,
            };
            return Self { preset, block: 512, volumes: 1, device: FOR_FILES, trouble, durability, ..self };
        }
        if TABLES.contains(&preset) {
            // Whatever was asked for: no object ever leaves, and what a call returned is durable.
            let short = self.seed.is_multiple_of(2);
            return Self {
                preset,
                mode: Mode::Store,
                durability: Durability::EveryPut,
                delete_count: 1,
                volumes: 1,
                block: if short { 512 } else { 4096 },
                ..self
            };
        }
        if preset == "hummingbird" {
            // Its own way of opening makes it refuse puts for a good part of a run.
            let reopening = if self.seed % 4 == 1 { Reopening::InSteps } else { Reopening::AtOnce };
            let cluster = if self.seed.is_multiple_of(3) { 32 << 10 } else { self.cluster };
            let block = if self.seed.is_multiple_of(2) { 512 } else { 4096 };
            return Self { preset, reopening, cluster, block, ..self }.aging();
        }
        if preset == GROUPS {
            let cluster = [16 << 10, 32 << 10, self.cluster, 256 << 10][(self.seed % 4) as usize];
            // The larger ones take more room than was drawn.
            let least = picaflor_format::zone::Map::least_capacity;
            let more = least(cluster.max(self.cluster)) - least(self.cluster);
            let memory = self.memory.max(self.memory / u64::from(self.cluster) * u64::from(cluster));
            let (device, capacity) = (self.device + more, self.capacity + more);
            return Self { preset, cluster, device, capacity, memory, ..self }.aging();
        }
        let short = preset != DEFAULT && self.seed.is_multiple_of(2);
        let volumes = if preset == SCANNED { 1 } else { self.volumes };
        // Nothing but a slot's own bytes tells of it: what is changed or not written is not there, and what was written
        // though the device said that it was not is.
        let trouble = if preset == SCANNED { Trouble::Crashes } else { self.trouble };
        let plan = Self { preset, block: if short { 512 } else { 4096 }, volumes, trouble, ..self };
        if preset == DEFAULT { plan.aging() } else { plan }
    }

    /// The same plan, where clusters of some caches leave by age.
    fn aging(self) -> Self {
        let age = Duration::from_secs(1 + self.seed % 7);
        let cluster_age = match (self.mode, self.seed % 10) {
            (Mode::Cache, 3) => ClusterAge::Written(age),
            (Mode::Cache, 4) => ClusterAge::Unused(age),
            _ => ClusterAge::Unlimited,
        };
        Self { cluster_age, ..self }
    }

    /// The smallest pages that clusters may be divided into, where they may.
    pub(crate) fn least_page(&self) -> Option<u32> {
        (self.preset == GROUPS).then_some(16 << 10)
    }

    /// Whether the row has pinned records.
    pub(crate) fn has_pins(&self) -> bool {
        [DEFAULT, "hummingbird", GROUPS].contains(&self.preset)
    }

    /// Whether the row does not keep what groups were told.
    pub(crate) fn forgets_groups(&self) -> bool {
        self.has_files() || self.preset == SCANNED
    }

    /// Bytes and block size of each device: those of the store, then as many for files if there are long ones. These
    /// crash and fail as the others do, and do not lie, for a file system on them promises nothing then.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (u64, usize)> {
        let of_store = std::iter::repeat_n((self.device, self.block), self.volumes);
        let for_files = if self.long_files_above.is_some() { self.volumes } else { 0 };
        of_store.chain(std::iter::repeat_n((FOR_FILES, 512), for_files))
    }

    /// How many of them the rules of a life are for: all fail, those of the store lie.
    pub(crate) fn troubled(&self) -> usize {
        if self.trouble == Trouble::Failing { self.devices().count() } else { self.volumes }
    }

    /// Whether the preset keeps a file for each object.
    pub(crate) fn has_files(&self) -> bool {
        FILES.contains(&self.preset)
    }

    /// Whether its objects are entries of tables, which promise everything.
    pub(crate) fn has_tables(&self) -> bool {
        TABLES.contains(&self.preset)
    }

    /// Whether nothing but the slots themselves says whose they are.
    pub(crate) fn is_scanned(&self) -> bool {
        self.preset == SCANNED
    }

    /// Bodies that are longer than this may be in pieces.
    #[must_use]
    pub fn piece(&self) -> usize {
        // In place, the last free runs are short, whatever the body is.
        if IN_CLUSTERS.contains(&self.preset) { self.cluster as usize / 2 } else { 256 }
    }

    /// Whether the devices tell the truth, all of it, and do what they are told.
    #[must_use]
    pub fn is_honest(&self) -> bool {
        self.trouble == Trouble::Crashes
    }

    /// The same plan with what a second edition of it adds: several devices in half of the seeds, writes that land in
    /// any order, looks between lives, openings with other options, clocks that are set, failures that last. What the
    /// first edition draws stays as it was, so that a seed keeps what it is known for.
    #[must_use]
    pub fn extended(self) -> Self {
        let mut dice = Dice::new(self.seed, 8);
        let several = dice.percent(50);
        let volumes = dice.between(2, 4) as usize;
        let in_flight = dice.percent(60);
        let volumes = if self.takes_several() && several { volumes } else { 1 };
        // No seed that had found something before is one of these.
        let hurried = matches!(self.seed % 19, 0 | 10);
        // It is pieces of large objects that an opening may be misled about.
        let longest = if hurried { self.longest.max(400 << 10) } else { self.longest };
        let long_files_above =
            (self.preset == LONG_FILES && self.seed % 3 == 2).then(|| 1 << (self.seed / 3 % 8) as u32);
        let plan =
            Self { extended: true, audited: true, volumes, in_flight, hurried, longest, long_files_above, ..self };
        Self { memory: plan.memory.max(plan.least_memory()), ..plan }
    }

    /// Whether a store of this row may lie on several devices.
    pub(crate) fn takes_several(&self) -> bool {
        !self.has_files() && !self.has_tables() && !self.is_scanned()
    }

    /// Whether damage to an object need not be seen by the audit, or cannot be made: a file has no place that the
    /// harness knows, and a slot that nothing else tells of is not there when its bytes are not.
    pub(crate) fn hides_damage(&self) -> bool {
        self.has_files() || self.is_scanned()
    }

    /// The least memory that a store of this plan opens with.
    pub(crate) fn least_memory(&self) -> u64 {
        u64::from(self.cluster) * 16.max(8 * self.volumes as u64)
    }

    /// Whether its objects lie in clusters, and its store so opens with each of these rows.
    pub(crate) fn is_ring(&self) -> bool {
        ["picaflor", "hummingbird", "damelo"].contains(&self.preset)
    }

    /// In one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} {:?} {:?} {:?}, {} x {} KiB of {} KiB in clusters of {} KiB, memory {} KiB, {} keys, deletes {:?}/{}{}{}{}{}",
            self.preset,
            self.mode,
            self.trouble,
            self.durability,
            self.volumes,
            self.capacity >> 10,
            self.device >> 10,
            self.cluster >> 10,
            self.memory >> 10,
            self.keys.len(),
            self.delete_time,
            self.delete_count,
            self.long_files_above.map_or(String::new(), |slots| format!(", files above {slots} slots")),
            if self.in_flight { ", in flight" } else { "" },
            if self.hurried { ", closed after each crash" } else { "" },
            if self.deaf { ", deaf" } else { "" },
        )
    }
}

/// Where the index puts a key on a device of the sizes used here: its segment and its place in that.
fn place_of(seed: u64, key: &[u8]) -> (u64, u64) {
    let hash = xxh3_128_with_seed(key, seed) as u64;
    (hash >> 62, hash & 0xff_ffff)
}

/// Keys, some of which the index cannot tell apart if that is wanted.
fn keys_of(seed: u64, count: usize, twins: bool) -> (Vec<Vec<u8>>, Vec<bool>) {
    let name = |i: u64| {
        let padding = "x".repeat((i * 31 % 60) as usize);
        format!("http://h{}.example/{padding}/{i}", i % 5).into_bytes()
    };
    let mut keys: Vec<Vec<u8>> = (0..count as u64).map(name).collect();
    if twins {
        let mut seen = std::collections::HashMap::new();
        for i in 0..40_000u64 {
            if let Some(other) = seen.insert(place_of(seed, &name(i)), i) {
                keys.extend([name(other), name(i)]);
            }
        }
        keys.sort();
        keys.dedup();
    }
    let mut sharing = std::collections::HashMap::new();
    for key in &keys {
        *sharing.entry(place_of(seed, key)).or_insert(0) += 1;
    }
    let twins = keys.iter().map(|key| sharing[&place_of(seed, key)] > 1).collect();
    (keys, twins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::operations;

    #[test]
    fn a_plan_is_its_seed() {
        for seed in 0..50 {
            assert_eq!(format!("{:?}", Plan::new(seed, None)), format!("{:?}", Plan::new(seed, None)));
        }
    }

    #[test]
    fn twins_are_found() {
        let (keys, twins) = keys_of(3, 10, true);
        assert_eq!(keys.len(), twins.len());
        assert!(twins.iter().filter(|twin| **twin).count() >= 2, "{twins:?}");
    }

    #[test]
    fn half_of_all_seeds_have_several_devices_and_the_first_edition_stays() {
        let plans = || (0..400).map(|seed| Plan::new(seed, None));
        let several = plans().map(Plan::extended).filter(|plan| plan.volumes > 1).count();
        assert!((160..240).contains(&several), "{several}");
        let first = |plan: Plan| format!("{:?}", operations(&plan));
        assert!(plans().all(|plan| !first(plan).contains("Churn")));
        let churned = plans().map(Plan::extended).filter(|plan| first(plan.clone()).contains("Churn")).count();
        assert!(churned > 20, "{churned}");
    }

    #[test]
    fn every_row_that_takes_several_devices_gets_them() {
        for preset in picaflor_literature::presets() {
            let plans = (0..60).map(|seed| Plan::new(seed, Some(Mode::Cache)).with_preset(preset).extended());
            let several = plans.filter(|plan| plan.volumes > 1).count();
            let one = ["simple", "squid", "multiple-dirs", "buddy-scan", "pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];
            assert_eq!(several == 0, one.contains(&preset), "{preset}: {several}");
        }
    }
}
