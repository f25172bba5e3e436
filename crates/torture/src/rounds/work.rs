//! What one thread or task of a child does to the store, and tells of it.
//!
//! Invariants: what begins is told before the store is asked, and that it is done after the store has answered; a
//! version number is used once.

use std::{
    collections::HashMap,
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use picaflor::{CheckpointInterval, Error, PutOptions};

use super::{
    body,
    breaks::Break,
    door::Door,
    log::{Deletes, How, Log, Record, What},
    setup::Setup,
};
use crate::dice::Dice;

/// The group of which settings are a version of this key.
pub(super) const TOLD_GROUP: u32 = 99;
/// That key, which no object has.
pub(super) const GROUP_KEY: u32 = 60_000;
/// Most writers: as many bits of a version say whose it is.
pub(super) const WRITERS: usize = 32;
/// Most versions of a writer in a life.
const VERSIONS: u32 = 1 << 15;

/// Name of a key.
pub(super) fn name(key: u32) -> Vec<u8> {
    format!("http://h{}.example/{}/{key}", key % 5, "x".repeat(key as usize * 31 % 60)).into_bytes()
}

/// One that works.
pub(super) struct Worker {
    door: Door,
    setup: Setup,
    life: u32,
    number: usize,
    sabotage: Break,
    folder: PathBuf,
    log: Log,
    dice: Dice,
    versions: u32,
    bads: u32,
    deletes: Option<Arc<Deletes>>,
    /// The version before the last of each key, as far as it was put here: to break answers.
    before: HashMap<u32, (u32, u32)>,
}

impl Worker {
    /// # Errors
    /// Those of the file system: there is no log.
    pub(super) fn new(door: Door, setup: &Setup, life: u32, number: usize, folder: PathBuf) -> io::Result<Self> {
        let log = Log::create(&folder, life, number)?;
        let dice = Dice::new(setup.seed, u64::from(life) * 64 + number as u64);
        let (sabotage, before, deletes) = (Break::None, HashMap::new(), None);
        let setup = setup.clone();
        Ok(Self { door, setup, life, number, sabotage, folder, log, dice, versions: 0, bads: 0, deletes, before })
    }

    /// The same, broken.
    pub(super) fn broken(self, sabotage: Break) -> Self {
        Self { sabotage, ..self }
    }

    /// Counting deletes.
    pub(super) fn counting(self, deletes: &Arc<Deletes>) -> Self {
        Self { deletes: Some(Arc::clone(deletes)), ..self }
    }

    /// With an older version of each key, to answer with.
    pub(super) fn remembering(self, before: HashMap<u32, (u32, u32)>) -> Self {
        Self { before, ..self }
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) async fn work(mut self, stop: Arc<AtomicBool>) -> io::Result<()> {
        while !stop.load(Relaxed) && self.versions < VERSIONS - 16 {
            let deletes = self.dice.percent(self.setup.deletes);
            match self.dice.below(84) {
                _ if deletes => self.delete().await?,
                0..42 => self.put().await?,
                42..46 => self.put_many().await?,
                46..48 => self.flush().await?,
                48..50 if self.number == 0 => self.set_group()?,
                _ => {
                    let key = self.dice.below(self.setup.keys.into()) as u32;
                    self.get(key).await?;
                }
            }
            self.door.rest().await;
        }
        Ok(())
    }

    /// A key of its own, or one that all write.
    fn key(&mut self) -> u32 {
        let key = self.dice.below(self.setup.keys.into()) as u32;
        if key < self.setup.shared {
            return key;
        }
        let writers = self.setup.writers() as u32;
        let own = key / writers * writers + self.number as u32;
        if own < self.setup.keys && own >= self.setup.shared { own } else { self.number as u32 % self.setup.keys }
    }

    fn version(&mut self) -> u32 {
        self.versions += 1;
        self.life << 20 | self.versions << 5 | self.number as u32
    }

    fn len(&mut self, key: u32) -> usize {
        let cluster = u64::from(self.setup.cluster);
        let most = self.setup.longest;
        // A few keys have long bodies only, so that they do not take all the room.
        let len = match key % 16 {
            5 if most > cluster => self.dice.between(cluster - 600, most),
            9 => self.dice.scaled(1000, most.min(cluster)),
            _ => self.dice.scaled(body::SHORTEST as u64, 8 << 10),
        };
        len as usize
    }

    fn drawn_put(&mut self) -> (Record, Vec<u8>, PutOptions) {
        let (key, version) = (self.key(), self.version());
        let len = self.len(key);
        let group = (key % 4) as u8;
        let mut options = PutOptions::new().metadata(body::metadata(key, version));
        (options.group, options.server) = (group.into(), key % 5);
        options.bypass_memory = self.dice.percent(5);
        options.neighbour = self.dice.percent(self.setup.neighbours).then(|| name(key / 2).into());
        let large = len as u64 + 200 > self.setup.cluster.into();
        (Record { group, large, ..Record::begun(What::Put, key, version) }, body::body(key, version, len), options)
    }

    async fn put(&mut self) -> io::Result<()> {
        let (record, body, options) = self.drawn_put();
        let at = self.log.add(&record)?;
        let forgets = self.sabotage == Break::ForgottenPuts && self.dice.percent(12);
        let done = if forgets { Ok(()) } else { self.door.put(&name(record.key), &body, &options).await };
        self.end(at, &record, done)?;
        let before = self.before.entry(record.key).or_default();
        *before = (before.1, record.version);
        Ok(())
    }

    async fn put_many(&mut self) -> io::Result<()> {
        let mut puts = Vec::new();
        let mut begun: Vec<(u64, Record)> = Vec::new();
        for _ in 0..self.dice.between(2, 6) {
            let (record, body, options) = self.drawn_put();
            // Of several of one key the last stays, and the others are acknowledged all the same.
            if begun.iter().all(|(_, other)| other.key != record.key) {
                begun.push((self.log.add(&record)?, record));
                puts.push((name(record.key), body, options));
            }
        }
        let done = self.door.put_many(&puts).await;
        for (at, record) in begun {
            self.end(at, &record, done.clone())?;
        }
        Ok(())
    }

    async fn delete(&mut self) -> io::Result<()> {
        let record = Record::begun(What::Delete, self.key(), self.version());
        let at = self.log.add(&record)?;
        let forgets = self.sabotage == Break::ForgottenDeletes && self.dice.percent(30);
        let key = name(record.key);
        let done = match (forgets, self.dice.percent(50)) {
            (true, _) => Ok(()),
            (false, true) => self.door.delete(&key).await,
            (false, false) => self.door.invalidate(&key).await,
        };
        self.end(at, &record, done)?;
        self.deletes.iter().try_for_each(|deletes| deletes.tell())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let record = Record::begun(What::Flush, 0, 0);
        let at = self.log.add(&record)?;
        let done = self.door.flush().await;
        self.end(at, &record, done)
    }

    fn set_group(&mut self) -> io::Result<()> {
        let record = Record::begun(What::Group, GROUP_KEY, self.version());
        let at = self.log.add(&record)?;
        let group = self.door.store().group(TOLD_GROUP);
        group.set_checkpoint_interval(Some(std::time::Duration::from_millis(record.version.into())));
        self.end(at, &record, Ok(()))
    }

    /// What the group was told last, as a get of its key.
    pub(super) fn get_group(&mut self) -> io::Result<()> {
        let begun = Record::begun(What::Get, GROUP_KEY, 0);
        let version = match self.door.store().group(TOLD_GROUP).checkpoint_interval() {
            CheckpointInterval::Every(time) => time.as_millis() as u32,
            CheckpointInterval::OfStore | CheckpointInterval::Off => 0,
        };
        self.log.add(&Record { version, ..begun.ended(How::Done) }).map(drop)
    }

    /// Gets a key and tells what came.
    pub(super) async fn get(&mut self, key: u32) -> io::Result<()> {
        let begun = Record::begun(What::Get, key, 0);
        let object = match self.door.get(&name(key)).await {
            Ok(Some(object)) => object,
            Ok(None) => return self.log.add(&begun.ended(How::Done)).map(drop),
            Err(error) => return self.bad(&begun.ended(How::Failed), &format!("a get failed: {error}")),
        };
        let large = object.body_in_memory().is_none();
        let (small, begun) = (begun, Record { large, ..begun });
        let body = match self.door.body(&object).await {
            Ok(body) => self.answer(key, body.to_vec()),
            // The store says that handles were on more than it keeps for them: as if the object had left before.
            Err(Error::Damaged { .. }) if large && self.door.store().stats().counts.leases_refused > 0 => {
                return self.log.add(&small.ended(How::Done)).map(drop);
            }
            Err(error) => return self.bad(&begun.ended(How::Failed), &format!("a body could not be read: {error}")),
        };
        let metadata = (self.sabotage == Break::None).then(|| object.metadata());
        match body::version_of(key, metadata, &body) {
            Ok(version) => self.log.add(&Record { version, ..begun.ended(How::Done) }).map(drop),
            Err(why) => self.bad(&begun.ended(How::Done), &format!("a get brought {why}")),
        }
    }

    /// What came, unless that is to be broken.
    fn answer(&mut self, key: u32, mut came: Vec<u8>) -> Vec<u8> {
        let older = self.before.get(&key).map_or(0, |before| before.0);
        let breaks = match self.sabotage {
            Break::OldAnswers | Break::OldReadOnly => older != 0,
            Break::TornAnswers | Break::ShortAnswers => came.len() > 2 * body::SHORTEST,
            _ => false,
        };
        if !breaks || !self.dice.percent(20) {
            return came;
        }
        let other = body::body(key, older, came.len());
        match self.sabotage {
            Break::ShortAnswers => came.truncate(body::SHORTEST * 2),
            Break::TornAnswers => came[body::SHORTEST..].copy_from_slice(&other[body::SHORTEST..]),
            _ => came = other,
        }
        came
    }

    fn end(&mut self, at: u64, record: &Record, done: picaflor::Result<()>) -> io::Result<()> {
        let (how, text) = match done {
            Ok(()) => (How::Done, None),
            Err(Error::Full { .. }) => (How::Full, None),
            Err(Error::Refused(_)) => (How::Refused, None),
            Err(error) => (How::Failed, Some(format!("{:?} failed: {error}", record.what))),
        };
        let record = record.ended(how);
        self.log.end(at, &record)?;
        text.map_or(Ok(()), |text| self.bad(&record, &text))
    }

    /// Tells of something that must not be.
    pub(super) fn bad(&mut self, record: &Record, text: &str) -> io::Result<()> {
        self.bads += 1;
        let version = self.bads << 5 | self.number as u32;
        fs::write(self.folder.join(format!("bad-{:04}-{version}", self.life)), text)?;
        self.log.add(&Record { what: What::Bad, version, ..*record }).map(drop)
    }
}
