//! Apache 1.3's cache, a file for each object, after its source (`proxy_cache.c`).
//!
//! A temporary file is begun before a server's answer is passed on. Behind that, the directories of the object's name
//! are made if they are not there (three levels of 64 names), the file gets its name, and loses its first one. A
//! modelled file cannot have two names: here the temporary one stays empty, and the body is written under its own,
//! which takes as many writes that are waited for. Nothing is ever removed to make room: the disk is larger than what
//! is asked for.
//!
//! Calls of a file system follow each other in order of time, so a request waits for those before it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    io,
};

use picaflor_device::{Clock, Folder};

use super::{
    times::{Answered, Times},
    traffic::{Asked, Polymix},
};
use crate::{
    Result,
    fs::{FileSystem, FsProfile},
    run::{bodies::Bodies, wg::Load},
    synth::mix,
};

/// Names of a directory, and levels of them: Apache's defaults.
const NAMES: u64 = 64;
const LEVELS: u32 = 3;

/// `a/b/c/REST`, by a hash of the key.
fn name(key: u64) -> String {
    let hash = mix(key);
    let levels = (0..LEVELS).map(|level| format!("{:02}/", hash / NAMES.pow(level) % NAMES));
    levels.collect::<String>() + &format!("{hash:016x}")
}

struct Files {
    system: FileSystem,
    clock: Clock,
    begin: u64,
    stored: HashSet<u64>,
    bodies: Bodies,
    times: Times,
}

/// What is due: a request, or its server's answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Request,
    Answer,
}

pub(super) fn serve(test: &Polymix, load: &Load, kind: &FsProfile, times: Times) -> Result<Answered> {
    let clock = Clock::virtual_at(1_700_000_000_000);
    let disk = load.disk(&clock, Some(load.part_bytes(load.disk_mib)), 0)?;
    let system = FileSystem::new(kind, &disk).map_err(|error| load.wrong(error))?;
    let begin = clock.now_nanos();
    let mut files = Files { system, clock, begin, stored: HashSet::new(), bodies: Bodies::default(), times };
    files.all(test.asked(load.seed)).map_err(|error| load.wrong(error))?;
    let took = files.now();
    Ok(files.times.finish(&disk, took))
}

impl Files {
    /// Everything that is due, in order of time.
    fn all(&mut self, mut requests: impl Iterator<Item = Asked>) -> io::Result<()> {
        let mut all: Vec<Asked> = Vec::new();
        let mut due = BinaryHeap::new();
        let mut come = |all: &mut Vec<Asked>, due: &mut BinaryHeap<_>| {
            if let Some(asked) = requests.next() {
                due.push(Reverse((asked.at, Due::Request, all.len())));
                all.push(asked);
            }
        };
        come(&mut all, &mut due);
        while let Some(Reverse((at, what, number))) = due.pop() {
            let asked = all[number];
            if self.now() < at {
                self.system.wait_until(self.begin + at)?;
            }
            match what {
                Due::Request => {
                    come(&mut all, &mut due);
                    if self.look_up(&asked)? {
                        due.push(Reverse((self.now() + asked.think, Due::Answer, number)));
                    }
                }
                Due::Answer => self.store(&asked)?,
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.now_nanos() - self.begin
    }

    /// Whether there is an answer to wait for, and to store.
    fn look_up(&mut self, asked: &Asked) -> io::Result<bool> {
        let key = asked.request.key;
        let found = match self.system.read(&name(key)) {
            Ok(body) => Some(body),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let took = self.now() - asked.at;
        match found {
            Some(body) if !Bodies::is_of(&asked.request, &body) => {
                return Err(io::Error::other(format!("wrong bytes for key {key:x}")));
            }
            Some(_) => self.times.answered(asked, true, took),
            None if asked.cacheable => return Ok(true),
            None => self.times.answered(asked, false, took + asked.think),
        }
        Ok(false)
    }

    fn store(&mut self, asked: &Asked) -> io::Result<()> {
        let key = asked.request.key;
        let (temporary, name) = (format!("tmp{key:x}"), name(key));
        self.system.write(&temporary, b"")?;
        let took = self.now() - asked.at;
        self.times.answered(asked, false, took);
        // Another robot may have asked for it meanwhile.
        if !self.stored.insert(key) {
            self.system.remove(&name)?;
        }
        name.match_indices('/').try_for_each(|(end, _)| self.system.make_dir(&name[..end]))?;
        self.system.write(&name, self.bodies.of(&asked.request))?;
        self.system.remove(&temporary)
    }
}
