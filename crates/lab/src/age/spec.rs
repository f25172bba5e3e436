//! What is aged, and how: lists of values, of which every combination is a case.

use std::{fmt, str::FromStr};

use picaflor_proxy::config::Size;
use serde::{Deserialize, Serialize};

use super::{kind::Kind, sizes::Sizes};
use crate::{Error, Result};

/// The shortest mean of objects on a volume that is fragmented before.
const LEAST_FRAGMENTED: u64 = 64 << 10;

/// How much of an object is handed over at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// So many bytes.
    Bytes(u64),
    /// All of it at once.
    All,
}

impl FromStr for Request {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let bytes = text.parse::<Size>().map_err(|why| format!("{why}, nor `all`"))?.0;
        if bytes < 512 {
            Err(format!("`{text}`: a write request has 512 bytes at least"))
        } else {
            Ok(Self::Bytes(bytes))
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", Size(*bytes)),
            Self::All => f.write_str("all"),
        }
    }
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident: $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> std::result::Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(format!("`{text}` is none of {}", [$($text),+].join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! {
    /// When an object is forced to the device.
    Force:
    /// Once, when it is whole.
    Once = "once",
    /// After each request too.
    Each = "each",
}

named! {
    /// Which objects are replaced next.
    Deletes:
    /// Any, equally likely: the paper's.
    Random = "random",
    /// The oldest.
    Age = "age",
    /// Sixteen that came together, deleted before sixteen others come.
    Group = "group",
}

named! {
    /// What volumes are made on.
    Medium:
    /// The folder that is given, and what is below it.
    Folder = "folder",
    /// Compressed memory: bodies are zeros between their marks, so a volume takes a 24th of its bytes.
    Zram = "zram",
}

named! {
    /// What the volume is like before it is filled.
    Start:
    /// New.
    Fresh = "fresh",
    /// As full of small objects as it is to be of others, which leave at random as those come.
    Fragmented = "fragmented",
}

/// What a run is a function of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Which store.
    pub candidate: Kind,
    /// Of objects.
    pub object: Sizes,
    /// Bytes of the volume.
    pub volume: u64,
    /// Bytes of objects that live, for each 100 of the volume.
    pub fill: f64,
    /// How much is written at a time.
    pub request: Request,
    /// When it is forced.
    pub force: Force,
    /// Whether the store is told the length before the first byte.
    pub announce: bool,
    /// How many objects are written at one time, request by request in turn.
    pub writers: usize,
    /// What is replaced.
    pub deletes: Deletes,
    /// What the volume is like before.
    pub start: Start,
    /// Storage age at the end.
    pub age: f64,
    /// Age between two looks.
    pub every: f64,
    /// Of sizes and of what is replaced.
    pub seed: u64,
    /// What the volume is made on.
    pub on: Medium,
}

impl Case {
    /// The store, and how it is written to.
    #[must_use]
    pub fn way(&self) -> String {
        let mut text = self.candidate.to_string();
        if self.candidate.knows_requests() {
            text += &format!(" by {}", self.request);
            if self.force == Force::Each {
                text += " forced";
            }
            if self.announce {
                text += " announced";
            }
        }
        if self.writers > 1 {
            text += &format!(" {} writers", self.writers);
        }
        text
    }

    /// What lies on the volume: cases of which this is the same are compared.
    #[must_use]
    pub fn what(&self) -> String {
        let mut text = format!("{} objects, {}% of {}", self.object, self.fill, Size(self.volume));
        if self.deletes != Deletes::Random {
            text += &format!(", deleted by {}", self.deletes);
        }
        if self.start == Start::Fragmented {
            text += ", from a fragmented volume on";
        }
        if self.on == Medium::Zram {
            text += ", on zram";
        }
        text
    }

    /// Both.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}, {}", self.way(), self.what())
    }

    /// Bytes that are to live.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        (self.volume as f64 * self.fill / 100.0) as u64
    }

    /// Objects that are to live.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.live_bytes() / self.object.mean()
    }

    /// Bytes that a run writes, for a progress bar.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let fills = if self.start == Start::Fragmented { 2.0 } else { 1.0 };
        (self.live_bytes() as f64 * (fills + self.age)) as u64
    }
}

/// Every combination of what varies is a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Stores.
    pub candidates: Vec<Kind>,
    /// Sizes of objects.
    pub objects: Vec<Sizes>,
    /// Bytes of volumes.
    pub volumes: Vec<u64>,
    /// Bytes of objects for each 100 of the volume.
    pub fills: Vec<f64>,
    /// Write requests.
    pub requests: Vec<Request>,
    /// When objects are forced.
    pub forces: Vec<Force>,
    /// Whether lengths are announced.
    pub announces: Vec<bool>,
    /// Objects that are written at one time.
    pub writers: usize,
    /// What is replaced.
    pub deletes: Vec<Deletes>,
    /// What volumes are like before.
    pub starts: Vec<Start>,
    /// Storage age at the end.
    pub age: f64,
    /// Age between two looks.
    pub every: f64,
    /// Seed.
    pub seed: u64,
    /// What volumes are made on.
    pub on: Medium,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            candidates: Kind::without_root().to_vec(),
            objects: vec![Sizes::default()],
            volumes: vec![1 << 30],
            fills: vec![75.0],
            requests: vec![Request::Bytes(64 << 10)],
            forces: vec![Force::Once],
            announces: vec![false],
            writers: 1,
            deletes: vec![Deletes::Random],
            starts: vec![Start::Fresh],
            age: 4.0,
            every: 1.0,
            seed: 1,
            on: Medium::Folder,
        }
    }
}

impl Spec {
    /// A look at what the command does, in less than a minute.
    #[must_use]
    pub fn quickly(self) -> Self {
        Self { volumes: vec![64 << 20], age: self.age.min(2.0), every: self.every.max(1.0), ..self }
    }

    /// The cases. Stores that take an object whole run once for all values of what they do not know.
    ///
    /// # Errors
    /// With what is wrong, and what would be right.
    pub fn cases(&self) -> Result<Vec<Case>> {
        self.check()?;
        let mut cases: Vec<Case> = Vec::new();
        for &volume in &self.volumes {
            for &object in &self.objects {
                for &fill in &self.fills {
                    for &deletes in &self.deletes {
                        for &start in &self.starts {
                            let what = Case { volume, object, fill, deletes, start, ..self.any() };
                            for case in self.candidates.iter().flat_map(|&kind| self.writing(kind, &what)) {
                                if !cases.contains(&case) {
                                    cases.push(case);
                                }
                            }
                        }
                    }
                }
            }
        }
        cases.iter().try_for_each(Case::check)?;
        Ok(cases)
    }

    /// A case, of which nothing that varies means anything yet.
    fn any(&self) -> Case {
        Case {
            candidate: Kind::Folder,
            object: Sizes::default(),
            volume: 0,
            fill: 0.0,
            deletes: Deletes::Random,
            start: Start::Fresh,
            request: Request::All,
            force: Force::Once,
            announce: true,
            writers: self.writers,
            age: self.age,
            every: self.every,
            seed: self.seed,
            on: self.on,
        }
    }

    /// The ways in which a candidate is given a case's objects.
    fn writing(&self, candidate: Kind, what: &Case) -> Vec<Case> {
        let what = Case { candidate, ..what.clone() };
        if !candidate.knows_requests() {
            return vec![what];
        }
        if candidate.is_database() {
            return self.requests.iter().map(|&request| Case { request, announce: false, ..what.clone() }).collect();
        }
        let mut cases = Vec::new();
        for &request in &self.requests {
            for &force in &self.forces {
                for &announce in &self.announces {
                    cases.push(Case { request, force, announce, ..what.clone() });
                }
            }
        }
        cases
    }

    fn check(&self) -> Result<()> {
        let wrong = |option: &str, why: String| Err(Error::experiment(option, why));
        if !(self.age > 0.0 && self.age <= 1000.0) {
            return wrong("--age", format!("{}: a storage age is more than 0 and at most 1000", self.age));
        }
        if !(self.every > 0.0 && self.every <= self.age) {
            return wrong("--every", format!("{}: more than 0, and at most --age, which is {}", self.every, self.age));
        }
        if self.age / self.every > 1000.0 {
            return wrong("--every", format!("{}: more than a thousand looks at one volume", self.every));
        }
        if !(1..=256).contains(&self.writers) {
            return wrong("--writers", format!("{}: 1 to 256 objects at one time", self.writers));
        }
        match self.fills.iter().find(|fill| !(1.0..=98.0).contains(*fill)) {
            Some(fill) => wrong("--fill", format!("{fill}: 1 to 98 bytes of objects for each 100 of the volume")),
            None => Ok(()),
        }
    }
}

impl Case {
    fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::experiment(self.label(), why));
        let volume = Size(self.volume);
        let least = self.candidate.least_volume();
        if self.volume < least {
            let least = Size(least);
            return wrong(format!("a volume of {volume}: {} has {least} at least", self.candidate));
        }
        if self.objects() < 8 {
            let (fill, objects) = (self.fill, self.objects());
            return wrong(format!(
                "{fill}% of {volume} are {objects} objects; at least 8 are needed for a mean: more --volume or smaller --object"
            ));
        }
        if self.writers as u64 * 2 > self.objects() {
            let (writers, objects) = (self.writers, self.objects());
            return wrong(format!("{writers} writers for {objects} objects: at most half as many"));
        }
        if self.on == Medium::Zram && !self.candidate.can_be_on_zram() {
            let why = match self.candidate {
                Kind::PostgresLarge => "it compresses what it stores, and bodies are zeros there",
                _ => "it has no volume of its own",
            };
            return wrong(format!("{why}: leave out --on zram, or this candidate"));
        }
        if self.start == Start::Fragmented {
            let why = match () {
                () if !self.candidate.can_be_fragmented() => "it has no free room of its own to be fragmented",
                () if self.object.mean() < LEAST_FRAGMENTED => "objects of less than 64 KiB find room in any hole",
                () => return self.has_room(),
            };
            return wrong(format!("{why}: leave out --start fragmented"));
        }
        self.has_room()
    }

    fn has_room(&self) -> Result<()> {
        let free = self.volume - self.live_bytes();
        if free < self.object.to * self.writers as u64 {
            let needed = Size(self.object.to * self.writers as u64);
            let volume = Size(self.volume);
            let why = format!("a safe write needs room beside the old version: {needed} of {volume}; lower --fill");
            return Err(Error::experiment(self.label(), why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_names_are_refused_by_what_there_is() {
        assert!("never".parse::<Request>().unwrap_err().contains("`all`"));
        assert!("often".parse::<Force>().unwrap_err().contains("once, each"));
    }

    #[test]
    fn every_combination_is_a_case_and_none_is_run_twice() {
        let two = Spec {
            candidates: vec![Kind::Folder, Kind::Sqlite],
            requests: vec![Request::Bytes(65536), Request::All],
            announces: vec![false, true],
            ..Spec::default()
        };
        let cases = two.cases().unwrap();
        assert_eq!(cases.iter().filter(|case| case.candidate == Kind::Folder).count(), 4);
        assert_eq!(cases.iter().filter(|case| case.candidate == Kind::Sqlite).count(), 1, "it takes objects whole");
        let refused = |spec: Spec| spec.cases().unwrap_err().to_string();
        assert!(refused(Spec { age: 0.0, ..Spec::default() }).contains("--age"));
        assert!(refused(Spec { fills: vec![120.0], ..Spec::default() }).contains("--fill"));
        assert!(refused(Spec { every: 9.0, ..Spec::default() }).contains("--every"));
        assert!(refused(Spec { writers: 0, ..Spec::default() }).contains("--writers"));
        let tiny = |kind| Spec { candidates: vec![kind], volumes: vec![64 << 20], ..Spec::default() };
        assert!(refused(tiny(Kind::Xfs)).contains("xfs has 300MiB"));
        assert!(tiny(Kind::Ext4).cases().is_ok());
        let large = vec!["512M".parse().unwrap()];
        assert!(refused(Spec { objects: large, ..Spec::default() }).contains("at least 8"));
    }
}
