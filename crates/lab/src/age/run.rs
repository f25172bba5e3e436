//! One case: a volume is filled, then aged, and looked at now and then.

use std::{path::Path, time::Instant};

use picaflor_proxy::config::Size;
use serde::{Deserialize, Serialize};

use super::{
    candidates::{self, Candidate, Located, Manner, Volume, Write, Wrote},
    chaff::Chaff,
    extents::Extent,
    kind::Kind,
    load::{Load, Turn, Version},
    map::{self, Map},
    marks::Bodies,
    replay,
    spec::{Case, Medium},
};
use crate::{Error, Result};

/// Bytes that are read for the machine's own rate, at most.
const READ: u64 = 256 << 20;
/// Objects with more parts than this are counted with these.
const MOST_PARTS: usize = 64;

/// A case, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Aged {
    /// What was run.
    pub case: Case,
    /// From the youngest.
    pub samples: Vec<Sample>,
    /// Why it ended before its age, if it did.
    pub ended: Option<String>,
}

/// What a volume is like at some age.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Storage age.
    pub age: f64,
    /// Objects that live.
    pub objects: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Objects that the store has let go.
    pub lost: u64,
    /// Parts that objects lie in.
    pub fragments: Option<Fragments>,
    /// By what these were counted: `marks` on the volume, `fiemap`, the file system's word, or `model`, that of one.
    pub counted_by: String,
    /// Fragments an object by the store's own word, where marks count: FIEMAP of a file system, `Store::locate` of this
    /// engine.
    pub told: Option<f64>,
    /// Share of the marks that were not found on the volume.
    pub unseen: f64,
    /// MB/s of safe writes since the sample before, on this machine.
    pub write_mb_s: f64,
    /// MB/s of reads in random order, on this machine.
    pub read_mb_s: f64,
    /// Bytes written to the volume for each byte of an object, since the sample before.
    pub written_per_byte: Option<f64>,
    /// MB/s of reads in random order from simulated disks with the same extents.
    pub disks: Vec<(String, Option<f64>)>,
    /// The volume, drawn.
    pub map: Map,
}

/// How many parts objects lie in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fragments {
    /// Parts an object, in the mean. 1: all lie whole.
    pub mean: f64,
    /// Half of the objects have at most so many.
    pub median: u64,
    /// 99 of 100.
    pub p99: u64,
    /// The most.
    pub max: u64,
    /// Objects by their parts: none, one, two and so on; the last has all with more.
    pub histogram: Vec<u64>,
}

impl Fragments {
    /// Of objects with so many parts each; those that were not found are left out.
    fn of(counts: impl Iterator<Item = usize>) -> Option<Self> {
        let mut all: Vec<usize> = counts.filter(|parts| *parts > 0).collect();
        all.sort_unstable();
        let at = |share: f64| all.get(((all.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
        let mut histogram = vec![0; all.last()?.min(&MOST_PARTS) + 1];
        all.iter().for_each(|parts| histogram[*parts.min(&MOST_PARTS)] += 1);
        Some(Self {
            mean: all.iter().sum::<usize>() as f64 / all.len() as f64,
            median: at(0.5)? as u64,
            p99: at(0.99)? as u64,
            max: *all.last()? as u64,
            histogram,
        })
    }
}

/// Whether cases can be run, as far as that shows before: the folder is there and has room for the largest volume, and
/// disks exist and are as large.
///
/// # Errors
/// With what does not.
pub fn check(cases: &[Case], folder: &Path, disks: &[String]) -> Result<()> {
    let largest_on = |on| cases.iter().filter(|case| case.on == on).map(|case| case.volume).max().unwrap_or(0);
    if let zram @ 1.. = largest_on(Medium::Zram) {
        candidates::check_zram(zram)?;
    }
    let stat = rustix::fs::statvfs(folder).map_err(|error| Error::file("looking at", folder)(error.into()))?;
    let (free, largest) = (stat.f_bavail * stat.f_frsize, largest_on(Medium::Folder));
    if free < largest + largest / 16 {
        let (free, largest) = (Size(free >> 20 << 20), Size(largest));
        let why =
            format!("{free} are free, and a volume of {largest} is to be made: lower --volume, or another --folder");
        return Err(Error::experiment(folder.display().to_string(), why));
    }
    if cases.iter().any(|case| matches!(case.candidate, Kind::Postgres | Kind::PostgresLarge)) {
        candidates::postgres_is_installed()?;
    }
    if cases.iter().any(|case| case.candidate == Kind::RocksDb) {
        candidates::rocksdb_is_installed()?;
    }
    for disk in disks {
        let largest = largest.max(largest_on(Medium::Zram));
        let last = Extent { offset: largest.saturating_sub(4096) / 4096 * 4096, len: 4096 };
        replay::read(disk, &[&[last]], 1)?;
    }
    Ok(())
}

/// Runs a case. Its volume is made in the folder and removed. `progress` is told of bytes written.
///
/// # Errors
/// If the store cannot be made or fails. That it has no room is no error: the case ends there and says so.
pub fn run(case: &Case, folder: &Path, disks: &[String], progress: &dyn Fn(u64)) -> Result<Aged> {
    let (mut candidate, volume) = candidates::open(case, folder)?;
    // A loop device counts on from what used it before, and making the file system is no part of the load.
    let since = Since { written: candidate.written(), ..Since::default() };
    let mut running = Running {
        case,
        disks,
        candidate,
        manner: Manner::of(case),
        load: Load::new(case),
        bodies: Bodies::new(case.object.to, case.on),
        chaff: Chaff::of(case),
        progress,
        made: vec![Vec::new(); case.writers],
        since,
        _volume: volume,
    };
    let mut aged = Aged { case: case.clone(), samples: Vec::new(), ended: None };
    if let Some(why) = running.fill()? {
        aged.ended = Some(why);
        return Ok(aged);
    }
    aged.samples.push(running.sample()?);
    let mut looks = 1_u32;
    loop {
        // Ages of looks are multiples, not sums, so that they stay round; the last is the end.
        let next = (case.every * f64::from(looks)).min(case.age);
        while running.load.clock().age() < next {
            let turn = running.load.churn();
            if let Some(full) = running.turn(&turn)? {
                let age = running.load.clock().age();
                aged.ended = Some(format!("full at storage age {age:.2}: {full}"));
                return Ok(aged);
            }
        }
        aged.samples.push(running.sample()?);
        if next >= case.age {
            return Ok(aged);
        }
        looks += 1;
    }
}

struct Running<'a> {
    case: &'a Case,
    disks: &'a [String],
    candidate: Box<dyn Candidate>,
    manner: Manner,
    load: Load,
    bodies: Bodies,
    chaff: Chaff,
    progress: &'a dyn Fn(u64),
    /// Bodies of one turn.
    made: Vec<Vec<u8>>,
    since: Since,
    // After the candidate it goes.
    _volume: Option<Volume>,
}

/// What was done since the last sample.
#[derive(Default)]
struct Since {
    bytes: u64,
    seconds: f64,
    /// What the candidate had written by then.
    written: Option<u64>,
}

impl Running<'_> {
    /// Fills the volume, after it was made fragmented if that is asked for. Returns why it could not be done.
    fn fill(&mut self) -> Result<Option<String>> {
        while let Some(turn) = self.chaff.fill(self.case.writers) {
            if let Some(full) = self.turn(&turn)? {
                return Ok(Some(format!("full while it was fragmented: {full}")));
            }
        }
        // No part of the load.
        self.since = Since { written: self.candidate.written(), ..Since::default() };
        while let Some(turn) = self.load.fill() {
            let leave = self.chaff.leave(turn.writes.iter().map(|version| version.len).sum());
            self.delete(&leave)?;
            if let Some(full) = self.turn(&turn)? {
                let at = self.load.clock().live_bytes() as f64 * 100.0 / self.case.volume as f64;
                return Ok(Some(format!("full while it was filled, at {at:.0}% of the volume: {full}")));
            }
        }
        let rest = self.chaff.rest();
        self.delete(&rest)?;
        Ok(None)
    }

    fn delete(&mut self, objects: &[u32]) -> Result<()> {
        objects.iter().try_for_each(|object| self.candidate.delete(*object))
    }

    /// Returns why it could not be done, if there was no room.
    fn turn(&mut self, turn: &Turn) -> Result<Option<String>> {
        for (version, body) in turn.writes.iter().zip(&mut self.made) {
            self.bodies.make(version, body);
        }
        let writes: Vec<Write<'_>> =
            turn.writes.iter().zip(&self.made).map(|(version, body)| Write { version: *version, body }).collect();
        let begin = Watch::start(&*self.candidate);
        turn.deletes.iter().try_for_each(|object| self.candidate.delete(*object))?;
        let wrote = self.candidate.write(&writes, &self.manner)?;
        self.since.seconds += begin.seconds(&*self.candidate);
        let bytes = turn.writes.iter().map(|version| version.len).sum();
        self.since.bytes += bytes;
        (self.progress)(bytes);
        Ok(match wrote {
            Wrote::Done => None,
            Wrote::Full(why) => Some(why),
        })
    }

    fn sample(&mut self) -> Result<Sample> {
        self.candidate.settle()?;
        let written = self.candidate.written();
        let since = std::mem::take(&mut self.since);
        self.since.written = written;
        let per_byte = |total: u64| (total - since.written.unwrap_or(0)) as f64 / since.bytes.max(1) as f64;
        let located = self.candidate.locate(&self.load)?;
        let mut live = Vec::new();
        for version in self.load.live() {
            if self.candidate.has(version.object)? {
                live.push(version);
            }
        }
        let read_mb_s = self.read(&live)?;
        let objects = self.load.live().count();
        let clock = self.load.clock();
        let mut sample = Sample {
            age: clock.age(),
            objects: objects as u64,
            live_bytes: clock.live_bytes(),
            lost: (objects - live.len()) as u64,
            write_mb_s: rate(since.bytes, since.seconds),
            read_mb_s,
            written_per_byte: written.map(per_byte),
            ..Sample::default()
        };
        self.places(&mut sample, &located, &live)?;
        Ok(sample)
    }

    /// What is known from where objects lie.
    fn places(&self, sample: &mut Sample, located: &Located, live: &[Version]) -> Result<()> {
        let told = || located.told.iter().flatten().map(|(_, extents)| extents.as_slice());
        let objects: Vec<&[Extent]> = match &located.marks {
            // In the order of their numbers: a table's own order is another each time.
            Some(seen) => {
                live.iter().filter_map(|one| seen.objects.get(&one.object)).map(|found| &found.extents[..]).collect()
            }
            None => told().collect(),
        };
        sample.fragments = Fragments::of(objects.iter().map(|extents| extents.len()));
        if let Some(seen) = &located.marks {
            sample.counted_by = "marks".into();
            sample.told = Fragments::of(told().map(<[_]>::len)).map(|told| told.mean);
            let of = live.iter().filter_map(|one| seen.objects.get(&one.object));
            let (missing, pieces) = of.fold((0, 0), |sum, one| (sum.0 + one.missing, sum.1 + one.pieces));
            sample.unseen = missing as f64 / pieces.max(1) as f64;
        } else if located.told.is_some() {
            sample.counted_by = if self.case.candidate.is_modelled() { "model" } else { "fiemap" }.into();
        }
        // A folder lies anywhere on the machine's disk: its files are drawn and replayed as if the first were at 0.
        let base = match located.marks {
            Some(_) => 0,
            None => objects.iter().flat_map(|extents| *extents).map(|extent| extent.offset).min().unwrap_or(0),
        };
        let moved: Vec<Vec<Extent>> = objects
            .iter()
            .map(|extents| extents.iter().map(|e| Extent { offset: e.offset - base, len: e.len }).collect())
            .collect();
        let moved: Vec<&[Extent]> = moved.iter().map(Vec::as_slice).collect();
        for disk in self.disks {
            sample.disks.push((disk.clone(), replay::read(disk, &moved, self.case.seed)?));
        }
        sample.map = map::draw(&moved, self.case.volume);
        Ok(())
    }

    /// Reads in random order.
    fn read(&mut self, live: &[Version]) -> Result<f64> {
        let (mut bytes, mut seconds) = (0, 0.0);
        let mut body = Vec::new();
        for at in replay::order(live.len(), self.case.seed ^ 1) {
            let version = &live[at];
            if bytes > READ {
                break;
            }
            let begin = Watch::start(&*self.candidate);
            let found = self.candidate.read(version.object, &mut body)?;
            seconds += begin.seconds(&*self.candidate);
            match found {
                true if Bodies::is(version, &body) => bytes += version.len,
                // A cache may let it go in between.
                false => {}
                true => {
                    let why = format!("wrong bytes for object {}, {} of {}", version.object, body.len(), version.len);
                    return Err(Error::experiment(self.case.label(), why));
                }
            }
        }
        Ok(rate(bytes, seconds))
    }
}

/// The time that a candidate takes: by the machine's clock, or by its own.
struct Watch(Instant, Option<u64>);

impl Watch {
    fn start(candidate: &dyn Candidate) -> Self {
        Self(Instant::now(), candidate.now())
    }

    fn seconds(&self, candidate: &dyn Candidate) -> f64 {
        let own = candidate.now().zip(self.1).map(|(now, begin)| (now - begin) as f64 / 1e9);
        own.unwrap_or_else(|| self.0.elapsed().as_secs_f64())
    }
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / 1e6 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_means_and_shares() {
        let of = Fragments::of([1, 1, 1, 5, 100, 0].into_iter()).unwrap();
        assert_eq!((of.mean, of.median, of.p99, of.max), (21.6, 1, 100, 100));
        assert_eq!((of.histogram[1], of.histogram[5], of.histogram[MOST_PARTS]), (3, 1, 1));
        assert!(Fragments::of([0, 0].into_iter()).is_none(), "nothing was found");
    }
}
