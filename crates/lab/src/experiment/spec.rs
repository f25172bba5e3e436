//! An experiment as its file has it, and the cases that follow from it.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use crate::{
    Error, Result,
    method::Levels,
    run::{Replay, Setup, Workload},
    synth::Synthetic,
};

/// An experiment. Lists vary: each combination is a case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// A synthetic workload, or the path of a trace.
    pub workload: String,
    /// `method`, `cache`, or `counts`: the method without a store, where only its operations are of interest.
    pub replay: Kind,
    /// Requests; without it, as many as the workload usually has.
    pub gets: Option<u64>,
    /// Operations after which a method replay ends.
    pub operations: Option<u64>,
    /// First level of the method, in MiB.
    #[serde(default)]
    pub first_level_mib: u64,
    /// Memory of the store, in MiB.
    #[serde(default = "usual_memory")]
    pub memory_mib: u64,
    /// Second level of the method, or device of the cache, in MiB.
    pub disk_mib: Vec<u64>,
    /// Share of the store's capacity that the second level is to fill.
    #[serde(default = "whole")]
    pub utilisation: Vec<f64>,
    /// Rows of the engine's table.
    #[serde(default)]
    pub presets: Vec<String>,
    /// Device profiles, `memory`, or folders of this machine, with a slash in their names.
    #[serde(default)]
    pub devices: Vec<String>,
    /// A file-system model between them.
    pub file_system: Option<String>,
    /// Without one: by device, the model on which presets that keep a file for each object lie.
    #[serde(default)]
    pub file_systems: BTreeMap<String, String>,
    /// Open buffers; 0 is the engine's default.
    #[serde(default = "usual_buffers")]
    pub buffers: Vec<usize>,
    /// Longest object that shares an area, in blocks of 512 bytes; 0 is the engine's default.
    #[serde(default = "usual_threshold")]
    pub threshold: Vec<u32>,
    /// Seeds.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// What a quick run keeps of all sizes and lengths.
    #[serde(default = "hundredth")]
    pub quick: f64,
    /// What is drawn.
    #[serde(default)]
    pub plot: Vec<Plot>,
}

/// How requests are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Through the two levels, onto a store.
    Method,
    /// Through the two levels, onto nothing.
    Counts,
    /// Onto a store that is a cache.
    Cache,
}

/// A drawing: fields of the results by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Over it.
    pub title: String,
    /// A field for the horizontal axis; without one, bars.
    pub x: Option<String>,
    /// A field for the vertical axis, or the length of the bars.
    pub y: String,
    /// What tells series apart.
    #[serde(default = "by_preset")]
    pub series: String,
    /// One drawing for each value of this field.
    pub each: Option<String>,
    /// Unit of the values.
    #[serde(default)]
    pub unit: String,
    /// Whether the vertical axis, or the bars, are logarithmic.
    #[serde(default)]
    pub log: bool,
}

fn usual_memory() -> u64 {
    64
}

fn whole() -> Vec<f64> {
    vec![1.0]
}

fn usual_buffers() -> Vec<usize> {
    vec![0]
}

fn usual_threshold() -> Vec<u32> {
    vec![0]
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn hundredth() -> f64 {
    0.01
}

fn by_preset() -> String {
    "preset".into()
}

/// A case: what varies, by value, and the setup of its run; without a store, its levels.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) disk_mib: u64,
    pub(super) utilisation: f64,
    pub(super) buffers: usize,
    pub(super) store: bool,
    pub(super) levels: Levels,
    pub(super) setup: Setup,
}

/// Device bytes that a store takes for what the second level holds of the DEC-like stream, in parts of those: each
/// object has 72 bytes of header and key in front of its body and is rounded up to slots with them. Measured on
/// BUDDY, which cuts none; without it, a store would be fuller than the second level it mirrors.
const FRAMES: f64 = 1.0264;
/// Share of the device that objects can take where they lie in place: a 32nd is for checkpoints, a 256th for the
/// journal (docs/FORMAT.md, "In place"). The papers' programs keep neither in the file whose utilisation they speak of.
const ROOM: f64 = 1.0 - 1.0 / 32.0 - 1.0 / 256.0;

impl Spec {
    /// Reads an experiment.
    ///
    /// # Errors
    /// With the place of what is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let wrong = |why: String| Error::Experiment { name: name.into(), why };
        let mut spec: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        spec.name = name.into();
        if spec.replay != Kind::Counts && (spec.presets.is_empty() || spec.devices.is_empty()) {
            return Err(wrong("presets and devices are needed, one at least of each".into()));
        }
        if spec.utilisation.iter().any(|share| !(0.01..=1.0).contains(share)) {
            return Err(wrong("utilisation is a share, from 0.01 to 1".into()));
        }
        for name in &spec.presets {
            if !picaflor::Options::presets().any(|known| known == name) {
                let names: Vec<_> = picaflor::Options::presets().collect();
                return Err(wrong(format!("no preset {name:?}; there are: {}", names.join(", "))));
            }
        }
        Ok(spec)
    }

    fn workload(&self) -> Workload {
        match self.workload.parse::<Synthetic>() {
            Ok(synthetic) => Workload::Synthetic(synthetic),
            Err(_) => Workload::Files(vec![PathBuf::from(&self.workload)]),
        }
    }

    /// Scales all sizes and lengths down, for a look that takes seconds.
    #[must_use]
    pub fn quickly(mut self) -> Self {
        let share = self.quick;
        let less = |n: u64| ((n as f64 * share).ceil() as u64).max(1);
        self.gets = Some(less(self.requests()));
        self.operations = self.operations.map(less);
        self.first_level_mib = less(self.first_level_mib);
        self.disk_mib = self.disk_mib.into_iter().map(|mib| less(mib).max(32)).collect();
        self.memory_mib = less(self.memory_mib).max(16);
        self
    }

    /// Requests of each case, at most.
    pub fn requests(&self) -> u64 {
        self.gets.unwrap_or_else(|| match self.workload() {
            Workload::Synthetic(synthetic) => synthetic.usual(),
            Workload::Files(_) => u64::MAX,
        })
    }

    pub(super) fn cases(&self) -> Vec<Case> {
        let none = [String::new()];
        let or_none = |list: &'_ [String]| if list.is_empty() { none.to_vec() } else { list.to_vec() };
        let (devices, presets) = (or_none(&self.devices), or_none(&self.presets));
        let mut cases = Vec::new();
        for device in &devices {
            for &disk_mib in &self.disk_mib {
                for preset in &presets {
                    for &buffers in &self.buffers {
                        for &utilisation in &self.utilisation {
                            for &seed in &self.seeds {
                                let with = |&threshold: &u32| {
                                    self.case(device, preset, (disk_mib, buffers, utilisation, seed), threshold)
                                };
                                cases.extend(self.threshold.iter().map(with));
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    fn case(
        &self,
        device: &str,
        preset: &str,
        (disk_mib, buffers, utilisation, seed): (u64, usize, f64, u64),
        threshold: u32,
    ) -> Case {
        let levels = Levels { memory: self.first_level_mib << 20, disk: disk_mib << 20, ..Levels::MARKATOS };
        let capacity = match self.replay {
            Kind::Cache => disk_mib << 20,
            Kind::Method | Kind::Counts => ((disk_mib << 20) as f64 * FRAMES / ROOM / utilisation) as u64,
        };
        let files = picaflor::Options::preset(preset, "").is_ok_and(|options| options.wants_folder());
        let apart = self.file_systems.get(device).filter(|_| files);
        let setup = Setup {
            preset: preset.into(),
            device: device.into(),
            file_system: self.file_system.as_ref().or(apart).cloned(),
            capacity: capacity.next_multiple_of(1 << 20),
            memory: self.memory_mib << 20,
            buffers: (buffers != 0).then_some(buffers),
            threshold: (threshold != 0).then_some(threshold),
            workload: self.workload(),
            replay: if self.replay == Kind::Cache { Replay::Cache } else { Replay::Method(levels) },
            gets: self.requests(),
            operations: self.operations,
            seed,
        };
        Case { disk_mib, utilisation, buffers, store: self.replay != Kind::Counts, levels, setup }
    }
}
