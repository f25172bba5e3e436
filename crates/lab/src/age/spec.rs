//! What is aged, and how: lists of values, of which every combination is a case.

use std::{fmt, str::FromStr};

use picaflor_proxy::config::Size;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::{
    Error, Result,
    synth::{Dice, web_sizes},
};

/// How long objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sizes {
    /// The shortest.
    pub from: u64,
    /// The longest.
    pub to: u64,
    /// How likely those between them are.
    pub law: Law,
}

/// How likely lengths are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Law {
    /// All alike.
    #[default]
    Uniform,
    /// As those of web objects, of the workload `isp`: a median of 2.2 KiB, a mean of 7.8.
    Web,
}

/// The mean of lengths of web objects, in bytes.
const WEB_MEAN: u64 = 7980;
/// The longest of them.
const WEB_MOST: u64 = 1 << 20;

/// A mark takes 32 bytes, and there is one in each KB.
const LEAST: u64 = 1 << 10;
/// The shortest mean of objects on a volume that is fragmented before.
const LEAST_FRAGMENTED: u64 = 64 << 10;
/// A body is in memory once for each writer.
const MOST: u64 = 1 << 30;

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "web" {
            return Ok(Self { from: LEAST, to: WEB_MOST, law: Law::Web });
        }
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let size = |text: &str| text.trim().parse::<Size>().map(|size| size.0);
        let (from, to) = (size(from)?, size(to)?);
        if !(LEAST..=MOST).contains(&from) || !(LEAST..=MOST).contains(&to) {
            return Err(format!("`{text}`: objects have 1 KiB to 1 GiB"));
        }
        if from > to {
            return Err(format!("`{text}`: the shortest comes first, as in 512K-1536K"));
        }
        Ok(Self { from, to, law: Law::Uniform })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            _ if self.law == Law::Web => f.write_str("web"),
            true => write!(f, "{}", Size(self.from)),
            false => write!(f, "{}-{}", Size(self.from), Size(self.to)),
        }
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> Self {
        sizes.to_string()
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl Sizes {
    /// The mean length.
    #[must_use]
    pub fn mean(&self) -> u64 {
        match self.law {
            Law::Uniform => self.from.midpoint(self.to),
            Law::Web => WEB_MEAN,
        }
    }

    /// One of them.
    pub(super) fn draw(&self, dice: &mut Dice) -> u64 {
        match self.law {
            Law::Uniform => self.from + dice.below(self.to - self.from + 1),
            Law::Web => web_sizes(self.to).draw(dice).max(self.from),
        }
    }
}

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
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            candidates: Kind::without_root().to_vec(),
            objects: vec![Sizes { from: 1 << 20, to: 1 << 20, law: Law::Uniform }],
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
            object: Sizes { from: LEAST, to: LEAST, law: Law::Uniform },
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
    fn sizes_are_read_and_refused() {
        let sizes: Sizes = "512K-1536K".parse().unwrap();
        assert_eq!((sizes.from, sizes.to, sizes.mean()), (512 << 10, 1536 << 10, 1 << 20));
        assert_eq!("10M".parse::<Sizes>().unwrap().to_string(), "10MiB");
        assert_eq!(sizes.to_string().parse(), Ok(sizes));
        for (text, why) in [("2M-1M", "comes first"), ("10", "1 KiB to"), ("x", "not a size"), ("2G", "1 GiB")] {
            assert!(text.parse::<Sizes>().unwrap_err().contains(why), "{text}");
        }
        let web: Sizes = "web".parse().unwrap();
        let mut dice = Dice::new(1, 1);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| web.draw(&mut dice)).collect();
        drawn.sort_unstable();
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        assert!((0.95..1.05).contains(&(mean / web.mean() as f64)), "{mean}");
        assert!((2200..2350).contains(&drawn[50_000]) && drawn[0] == LEAST, "{}", drawn[50_000]);
        assert!((900_000..=WEB_MOST).contains(&drawn[99_999]), "{}", drawn[99_999]);
        assert_eq!(web.to_string().parse(), Ok(web));
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
