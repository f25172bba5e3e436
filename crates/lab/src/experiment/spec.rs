//! An experiment as its file has it, and the cases that follow from it.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Deserializer};

use crate::{
    Error,
    method::Levels,
    run::{Hints, Loaded, Policies, Replay, Setup, Workload},
    synth::Synthetic,
    trace::Known,
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
    /// Synthetic workloads, traces that come with the lab, or paths of traces: one, or several.
    #[serde(deserialize_with = "one_or_several")]
    pub workload: Vec<String>,
    /// How many sites there are, each asked as that trace has it, of a trace that comes with the lab; else one.
    #[serde(default)]
    pub sites: BTreeMap<String, u32>,
    /// `method`, `cache`, `pages`, or `counts`: the method without a store, where only its operations are of interest.
    pub replay: Kind,
    /// Requests; without it, as many as the workload usually has.
    pub gets: Option<u64>,
    /// Operations after which a method replay ends.
    pub operations: Option<u64>,
    /// Share of the requests of a replay of pages that only fill the store.
    #[serde(default = "half")]
    pub warm: f64,
    /// What the store is told of an object's company.
    #[serde(default = "all_hints")]
    pub hints: Vec<Hints>,
    /// The same by preset, where others would change nothing.
    #[serde(default)]
    pub hints_of: BTreeMap<String, Vec<Hints>>,
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
    /// Whether longer ones have a file each on the file system beside the store, as in the paper of the threshold.
    #[serde(default)]
    pub files_above: bool,
    /// Whether each get is waited for where a preset would gather several, as LAZY-READS does.
    #[serde(default)]
    pub wait: bool,
    /// KiB of a cluster; 0 is the engine's default.
    #[serde(default)]
    pub cluster_kib: u32,
    /// Of a replay of pages through `damelo`, with groups: KiB of the pages that a group's clusters are divided into. A
    /// case for each list; of several, a group gets the least in which half of the views of its site fit.
    #[serde(default = "undivided")]
    pub pages_kib: Vec<Vec<u32>>,
    /// How presets that lie in clusters lay objects: a case for each; an empty one is the preset's own way.
    #[serde(default = "own_policies")]
    pub policies: Vec<Policies>,
    /// Seeds.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// What a quick run keeps of all sizes and lengths.
    #[serde(default = "hundredth")]
    pub quick: f64,
    /// Whether this is such a run.
    #[serde(skip)]
    pub is_quick: bool,
    /// What is drawn.
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// One drawing that says it all, in a file of its own.
    pub board: Option<Board>,
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
    /// The same, counted by page view.
    Pages,
}

impl Kind {
    /// As a file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Counts => "counts",
            Self::Cache => "cache",
            Self::Pages => "pages",
        }
    }
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
    /// What a paper has of the same: by the name of a series, places on both axes. Of bars the first one's second
    /// number counts.
    #[serde(default)]
    pub published: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Bars of one device, with numbers of several behind them: see [`crate::draw::Board`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// Over it.
    pub title: String,
    /// Below that.
    pub note: Vec<String>,
    /// Of which workload.
    pub workload: String,
    /// The field that bars show, what it is, and on which device.
    pub bars: (String, String, String),
    /// The field that columns show, and what it is.
    pub numbers: (String, String),
    /// The devices of columns, and what they are called.
    pub columns: Vec<(String, String)>,
    /// Preset, hints, what that is called, and the number of a colour.
    pub rows: Vec<(String, Hints, String, usize)>,
}

fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(match OneOrSeveral::deserialize(from)? {
        OneOrSeveral::One(one) => vec![one],
        OneOrSeveral::Several(several) => several,
    })
}

fn half() -> f64 {
    0.5
}

fn all_hints() -> Vec<Hints> {
    vec![Hints::All]
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

fn undivided() -> Vec<Vec<u32>> {
    vec![Vec::new()]
}

fn own_policies() -> Vec<Policies> {
    vec![Policies::default()]
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
    pub(super) workload: String,
    pub(super) disk_mib: u64,
    pub(super) utilisation: f64,
    pub(super) buffers: usize,
    pub(super) store: bool,
    pub(super) levels: Levels,
    pub(super) setup: Setup,
}

impl Case {
    fn laid(mut self, kib: &[u32], policies: Policies) -> Self {
        self.setup.pages = kib.iter().map(|kib| kib << 10).collect();
        self.setup.policies = policies;
        self
    }
}

/// Device bytes that a store takes for what the second level holds of the DEC-like stream, in parts of those: each
/// object has 72 bytes of header and key in front of its body and is rounded up to slots with them. Measured on
/// BUDDY, which cuts none; without it, a store would be fuller than the second level it mirrors.
const FRAMES: f64 = 1.0264;
/// Share of the device that objects can take where they lie in place: a 32nd is for checkpoints, a 256th for the
/// journal (docs/FORMAT.md, "In place"). The papers' programs keep neither in the file whose utilisation they speak of.
const ROOM: f64 = 1.0 - 1.0 / 32.0 - 1.0 / 256.0;

impl Spec {
    /// What a name of [`Spec::workload`] stands for; a file is read.
    pub(super) fn workload_named(&self, name: &str) -> crate::Result<Workload> {
        if let Some(known) = Known::named(name) {
            return Ok(Workload::Sites(known, self.sites.get(name).copied().unwrap_or(1)));
        }
        let several = name.split('+').map(|one| Some((Known::named(one)?, self.sites.get(one).copied().unwrap_or(1))));
        if let Some(several) = several.collect::<Option<Vec<_>>>() {
            return Ok(Workload::Several(several));
        }
        if let Ok(synthetic) = name.parse::<Synthetic>() {
            return Ok(Workload::Synthetic(synthetic));
        }
        let path = Path::new(name);
        if !path.exists() {
            let known = Synthetic::ALL.iter().map(|row| row.0).chain(Known::ALL.iter().map(|row| row.0));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(Error::experiment(name, format!("no workload and no file; the workloads are: {known}")));
        }
        Ok(Workload::Loaded(Loaded::read(path.into())?))
    }

    /// Scales all sizes and lengths down, for a look that takes seconds.
    #[must_use]
    pub fn quickly(mut self) -> Self {
        let share = self.quick;
        let less = |n: u64| ((n as f64 * share).ceil() as u64).max(1);
        self.operations = self.operations.map(less);
        self.first_level_mib = less(self.first_level_mib);
        self.disk_mib = self.disk_mib.into_iter().map(|mib| less(mib).max(32)).collect();
        self.memory_mib = less(self.memory_mib).max(16);
        self.is_quick = true;
        self
    }

    /// Requests of a case with this workload, at most.
    fn requests(&self, workload: &Workload) -> u64 {
        let all = match workload {
            Workload::Synthetic(synthetic) => self.gets.unwrap_or(synthetic.usual()),
            // Without an end.
            Workload::Sites(..) | Workload::Several(..) => self.gets.unwrap_or(1 << 20),
            Workload::Loaded(trace) => self.gets.unwrap_or(u64::MAX).min(trace.len() as u64),
        };
        if self.is_quick { ((all as f64 * self.quick).ceil() as u64).max(1) } else { all }
    }

    /// All combinations of what varies, with these workloads for the names of [`Spec::workload`].
    pub(super) fn cases(&self, workloads: &[(String, Workload)]) -> Vec<Case> {
        let none = [String::new()];
        let or_none = |list: &'_ [String]| if list.is_empty() { none.to_vec() } else { list.to_vec() };
        let (devices, presets) = (or_none(&self.devices), or_none(&self.presets));
        let mut cases = Vec::new();
        for workload in workloads {
            for device in &devices {
                for &disk_mib in &self.disk_mib {
                    for preset in &presets {
                        for &hints in self.hints_of.get(preset).unwrap_or(&self.hints) {
                            let case =
                                |numbers, threshold| self.case((workload, device, preset, hints), numbers, threshold);
                            for (pages, &policies) in self.layouts() {
                                let laid = |numbers, threshold| case(numbers, threshold).laid(pages, policies);
                                cases.extend(self.variants(disk_mib, laid));
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    fn layouts(&self) -> impl Iterator<Item = (&Vec<u32>, &Policies)> {
        self.pages_kib.iter().flat_map(|pages| self.policies.iter().map(move |policies| (pages, policies)))
    }

    /// What of a case varies by numbers: buffers, utilisation, seed, and threshold.
    fn variants(&self, disk_mib: u64, case: impl Fn((u64, usize, f64, u64), u32) -> Case) -> Vec<Case> {
        let mut cases = Vec::new();
        for &buffers in &self.buffers {
            for &utilisation in &self.utilisation {
                for &seed in &self.seeds {
                    let with = |&threshold: &u32| case((disk_mib, buffers, utilisation, seed), threshold);
                    cases.extend(self.threshold.iter().map(with));
                }
            }
        }
        cases
    }

    fn case(
        &self,
        ((name, workload), device, preset, hints): (&(String, Workload), &str, &str, Hints),
        (disk_mib, buffers, utilisation, seed): (u64, usize, f64, u64),
        threshold: u32,
    ) -> Case {
        let levels = Levels { memory: self.first_level_mib << 20, disk: disk_mib << 20, ..Levels::MARKATOS };
        let capacity = match self.replay {
            Kind::Cache | Kind::Pages => disk_mib << 20,
            Kind::Method | Kind::Counts => ((disk_mib << 20) as f64 * FRAMES / ROOM / utilisation) as u64,
        };
        let files = picaflor_literature::preset(preset).is_ok_and(|options| options.wants_folder());
        let apart = self.file_systems.get(device).filter(|_| files);
        // Of what a machine gives a file for each object, the file system has half.
        let memory = self.memory_mib << 20;
        let shared = files && matches!(self.replay, Kind::Cache | Kind::Pages);
        let setup = Setup {
            preset: preset.into(),
            device: device.into(),
            file_system: self.file_system.as_ref().or(apart).cloned(),
            capacity: capacity.next_multiple_of(1 << 20),
            memory: if shared { memory / 2 } else { memory },
            page_cache: shared.then_some(memory / 2),
            hints,
            pages: Vec::new(),
            policies: Policies::default(),
            cluster: (self.cluster_kib != 0).then_some(self.cluster_kib << 10),
            buffers: (buffers != 0).then_some(buffers),
            threshold: (threshold != 0).then_some(threshold),
            files_above: self.files_above,
            wait: self.wait,
            workload: workload.clone(),
            replay: match self.replay {
                Kind::Cache => Replay::Cache,
                Kind::Pages => Replay::Pages(self.warm),
                Kind::Method | Kind::Counts => Replay::Method(levels),
            },
            gets: self.requests(workload),
            operations: self.operations,
            seed,
        };
        let workload = name.clone();
        Case { workload, disk_mib, utilisation, buffers, store: self.replay != Kind::Counts, levels, setup }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_files_shares_its_memory_with_the_file_system() {
        for (replay, shares) in [("cache", true), ("pages", true), ("method", false)] {
            let text = format!(
                "title = 'x'\nquestion = 'x'\nworkload = 'dec'\nreplay = '{replay}'\nmemory_mib = 32\ndisk_mib = [256]\n\
                 presets = ['squid', 'buddy']\ndevices = ['exos']\nfile_systems = {{ exos = 'extent' }}\n"
            );
            let spec = Spec::parse("x", &text).unwrap();
            let cases = spec.cases(&[("dec".into(), spec.workload_named("dec").unwrap())]);
            let memory = |case: &Case| (case.setup.memory >> 20, case.setup.page_cache.map(|bytes| bytes >> 20));
            let files = if shares { (16, Some(16)) } else { (32, None) };
            assert_eq!(cases.iter().map(memory).collect::<Vec<_>>(), [files, (32, None)], "{replay}");
        }
    }
}
