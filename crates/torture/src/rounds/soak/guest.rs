//! The clients of a soak: what they ask, and what they hold the answers to.

use std::{
    io,
    sync::atomic::Ordering::{Relaxed, SeqCst},
    time::{Duration, Instant},
};

use super::{
    scene::{SETTLED, Scene},
    tally::Class,
};
use crate::{
    dice::Dice,
    rounds::{
        body,
        breaks::Break,
        durable::NEVER,
        floor::{PURGE_WITHIN, REPLACED, Raise, STORED, invalidation_within, replacement_within},
        log::now,
        serve::TOKEN,
        web::{Client, HOST, Message, ask_once, referer},
    },
};

/// After a trouble of the origin some requests still fail: fetches that began in it, and the proxy's pause.
const AFTER_TROUBLE: Duration = Duration::from_secs(6);
/// How long after its lifetime an old version may still come, at the end of a fetch that took long.
const OVERDUE: Duration = Duration::from_secs(15);
/// A connection that was idle for longer may be closed by the proxy at any time.
const IDLE: Duration = Duration::from_secs(30);

/// How a body is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Full,
    /// With rests; at most so many milliseconds each.
    Slow(u64),
    /// Left after so many bytes.
    Left(usize),
}

/// A request under way.
struct Asked {
    method: &'static str,
    key: u32,
    /// First and last byte that were asked for.
    range: Option<(usize, usize)>,
    at: u64,
    least: (u32, &'static str),
}

/// What became of a body.
enum End {
    Whole,
    Left,
    Cut(io::Error),
}

/// A client.
pub(super) struct Guest<'a> {
    scene: &'a Scene,
    dice: Dice,
    client: Option<(Client, Instant)>,
}

impl<'a> Guest<'a> {
    pub(super) fn new(scene: &'a Scene, dice: Dice) -> Self {
        Self { scene, dice, client: None }
    }

    /// Asks until it is over, at its share of the rate.
    pub(super) fn run(&mut self) {
        let mean = self.scene.clients as u64 * 1_000_000 / self.scene.rate.max(1);
        let mut next = Instant::now();
        while !self.scene.over.load(Relaxed) {
            next += Duration::from_micros(self.dice.below(2 * mean + 1));
            // What is behind is not made up for at once.
            next = next.max(Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or(next));
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_secs(5)));
            // Held by whatever restarts the proxy.
            let _running = self.scene.gate.read();
            if let Err(what) = self.request() {
                self.client = None;
                self.scene.wrong(what);
            }
        }
    }

    fn request(&mut self) -> Result<(), String> {
        let key = self.scene.draw(&mut self.dice);
        self.scene.tally.one(Class::Asked);
        match self.dice.below(100) {
            0..3 => self.purge(key),
            3..8 => self.invalidate(key),
            8..13 => self.replace(key),
            13..17 => self.get("HEAD", key, Pace::Full, None, ""),
            17..23 => {
                let tag = format!("if-none-match: \"{key}-{}\"\r\n", self.scene.site.version(key));
                self.get("GET", key, Pace::Full, None, &tag)
            }
            23..32 => {
                let len = (self.scene.site.len_of)(key, self.scene.site.version(key));
                let from = self.dice.below(len as u64) as usize;
                let to = from + self.dice.scaled(1, len as u64) as usize;
                self.get("GET", key, Pace::Full, Some((from, to)), "")
            }
            32..39 => {
                let most = self.dice.scaled(1, 4 << 20) as usize;
                self.get("GET", key, Pace::Left(most), None, "")
            }
            39..43 => {
                let rest = self.dice.between(1, 60);
                self.get("GET", key, Pace::Slow(rest), None, "")
            }
            _ => self.get("GET", key, Pace::Full, None, ""),
        }
    }

    fn asked(&self, method: &'static str, key: u32, range: Option<(usize, usize)>) -> Asked {
        let at = now();
        Asked { method, key, range, at, least: self.scene.known[key as usize].lock().least(at, STORED) }
    }

    /// One request, as far as the head of its answer.
    fn begin(&mut self, method: &str, target: &str, fields: &str) -> io::Result<(Message, Client)> {
        let address = self.scene.addresses.lock().0;
        let is_there = |(client, since): &(Client, Instant)| client.address == address && since.elapsed() < IDLE;
        let mut client = match self.client.take().filter(is_there) {
            Some((client, _)) => client,
            None => Client::new(address)?,
        };
        let head = client.begin(method, target, fields)?;
        Ok((head, client))
    }

    fn keep(&mut self, head: &Message, client: Client) {
        self.client = (!head.is_last()).then(|| (client, Instant::now()));
    }

    fn get(
        &mut self,
        method: &'static str,
        key: u32,
        pace: Pace,
        range: Option<(usize, usize)>,
        fields: &str,
    ) -> Result<(), String> {
        let asked = self.asked(method, key, range);
        self.answer(&asked, pace, fields).map(drop)
    }

    /// Asks and judges. Says which version came, if one did, and whole.
    fn answer(&mut self, asked: &Asked, pace: Pace, fields: &str) -> Result<Option<u32>, String> {
        let key = asked.key;
        let range = asked.range.map(|(from, to)| format!("range: bytes={from}-{to}\r\n")).unwrap_or_default();
        let begun = self.begin(asked.method, &format!("/{key}"), &format!("{}{range}{fields}", referer(key)));
        let (head, mut client) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.failed(asked, &format!("no answer: {error}")).map(|()| None),
        };
        if head.is_hit() {
            self.scene.tally.one(Class::Hit);
        }
        let status = if self.breaks(Break::LostAnswers, 50) { 502 } else { head.status() };
        if asked.method == "HEAD" && status == 200 || status == 304 {
            let version = self.tagged(asked, &head)?;
            let class = if status == 304 { Class::Unchanged } else { Class::Head };
            self.scene.tally.one(class);
            self.keep(&head, client);
            return Ok(Some(version));
        }
        let mut bytes = Vec::with_capacity(head.len().unwrap_or(0).min(8 << 20));
        let end = self.read(&head, &mut client, pace, &mut bytes);
        if status >= 500 {
            self.failed(asked, &format!("{} {}", head.first, head.field("cache-status")))?;
        } else if status == 416 {
            self.beyond(asked, &head)?;
        } else if !matches!(status, 200 | 206) {
            return Err(format!("{} of key {key} was answered with {}", asked.method, head.first));
        } else {
            let version = self.judge(asked, &head, &mut bytes, &end)?;
            if matches!(end, End::Whole) {
                self.keep(&head, client);
                return Ok(version);
            }
            return Ok(None);
        }
        if matches!(end, End::Whole) {
            self.keep(&head, client);
        }
        Ok(None)
    }

    fn read(&mut self, head: &Message, client: &mut Client, pace: Pace, bytes: &mut Vec<u8>) -> End {
        let dice = &mut self.dice;
        let end = head.pour(&mut client.from, |piece| {
            bytes.extend_from_slice(piece);
            match pace {
                Pace::Slow(most) => std::thread::sleep(Duration::from_millis(dice.below(most))),
                Pace::Left(most) if bytes.len() >= most => return Ok(false),
                Pace::Left(_) | Pace::Full => {}
            }
            Ok(true)
        });
        match end {
            Ok(true) => {
                self.scene.tally.add(Class::Slow, u64::from(matches!(pace, Pace::Slow(_))));
                End::Whole
            }
            Ok(false) => End::Left,
            Err(error) => End::Cut(error),
        }
    }

    /// Holds what came of a body to what it may be.
    fn judge(&mut self, asked: &Asked, head: &Message, bytes: &mut Vec<u8>, end: &End) -> Result<Option<u32>, String> {
        let key = asked.key;
        if self.breaks(Break::TornAnswers, 1) && bytes.len() > 2 * body::SHORTEST {
            bytes[body::SHORTEST + 9] ^= 1;
        }
        if self.breaks(Break::ShortAnswers, 1) {
            bytes.truncate(bytes.len() / 2);
        }
        self.scene.tally.add(Class::Bytes, bytes.len() as u64);
        let tagged = self.tagged(asked, head)?;
        let len = (self.scene.site.len_of)(key, tagged);
        let from = if head.status() == 206 { self.first_of_range(asked, head, len)? } else { 0 };
        let what = |why| format!("{} of key {key} brought {why} ({})", asked.method, head.field("cache-status"));
        if matches!(end, End::Whole) {
            let due = match asked.range.filter(|_| head.status() == 206) {
                Some((from, to)) => (to + 1).min(len) - from,
                None => len,
            };
            if bytes.len() != due {
                return Err(what(format!("{} bytes of version {tagged} as if they were all its {due}", bytes.len())));
            }
        }
        let version = body::version_of_part(key, len, from, bytes).map_err(what)?;
        if version.is_some_and(|version| version != tagged) {
            return Err(what(format!("version {version:?} under the head of version {tagged}")));
        }
        match end {
            End::Whole => self.scene.tally.one(if head.status() == 206 { Class::Part } else { Class::Whole }),
            End::Left => self.scene.tally.one(Class::Left),
            End::Cut(error) => self.was_cut(asked, tagged, &format!("{} of {len} bytes: {error}", bytes.len()))?,
        }
        Ok(Some(tagged))
    }

    /// The version that there is may be shorter than the one that was thought to be.
    fn beyond(&self, asked: &Asked, head: &Message) -> Result<(), String> {
        let len = head.field("content-range").strip_prefix("bytes */").and_then(|len| len.parse::<usize>().ok());
        match (asked.range, len) {
            (Some((from, _)), Some(len)) if from >= len => {
                self.scene.tally.one(Class::Part);
                Ok(())
            }
            (range, len) => Err(format!("range {range:?} of key {} is said to be beyond {len:?} bytes", asked.key)),
        }
    }

    /// First byte of a range, which must be the one that was asked for.
    fn first_of_range(&self, asked: &Asked, head: &Message, len: usize) -> Result<usize, String> {
        let field = head.field("content-range");
        let due = asked.range.map(|(from, to)| (from, format!("bytes {from}-{}/{len}", to.min(len - 1))));
        match due {
            Some((from, due)) if field == due => Ok(from),
            due => Err(format!("range {field:?} of key {} where {due:?} was to come", asked.key)),
        }
    }

    /// The version that a head names, which must be one that may come now.
    fn tagged(&self, asked: &Asked, head: &Message) -> Result<u32, String> {
        let (key, site) = (asked.key, &self.scene.site);
        let tag = head
            .field("etag")
            .trim_matches('"')
            .split_once('-')
            .and_then(|(of, version)| (of.parse::<u32>().ok()? == key).then_some(version)?.parse::<u32>().ok());
        let Some(version) = tag else {
            return Err(format!("key {key} was answered with etag {:?} ({})", head.field("etag"), head.first));
        };
        let (current, changed) = (site.version(key), site.changed[key as usize].load(SeqCst));
        let (least, by) = asked.least;
        let came = format!("key {key} brought version {version} ({})", head.field("cache-status"));
        if version < least || version > current {
            return Err(format!("{came}, not {least} (which was {by}) to {current}"));
        }
        let life = Duration::from_secs((site.life_of)(key).into()) + OVERDUE;
        let until = changed.saturating_add(life.as_nanos() as u64);
        if version < current && until < asked.at && !self.is_excused(asked, life) {
            return Err(format!(
                "{came}, {} s after {current} came, beyond its lifetime",
                (now() - changed) / (1000 * MILLISECOND)
            ));
        }
        Ok(version)
    }

    /// Whether the origin was failing since `after` before the request began, or is always for this key.
    fn is_excused(&self, asked: &Asked, after: Duration) -> bool {
        let site = &self.scene.site;
        (site.is_bad)(asked.key) || site.troubles.touch(asked.at, now(), after)
    }

    /// There was no answer, or it was an error.
    fn failed(&self, asked: &Asked, what: &str) -> Result<(), String> {
        if self.is_excused(asked, AFTER_TROUBLE) {
            self.scene.tally.one(Class::Origin);
            return Ok(());
        }
        let (Asked { method, key, .. }, took) = (asked, (now() - asked.at) / MILLISECOND);
        Err(format!("{method} of key {key} failed after {took} ms, and the origin could answer: {what}"))
    }

    /// A body ended short, and that was to be seen.
    fn was_cut(&self, asked: &Asked, version: u32, what: &str) -> Result<(), String> {
        let class = match self.is_excused(asked, AFTER_TROUBLE) {
            true => Class::Cut,
            false if self.scene.site.version(asked.key) != version => Class::CutChanged,
            false => return self.failed(asked, what),
        };
        self.scene.tally.one(class);
        Ok(())
    }

    fn breaks(&mut self, sabotage: Break, chance: u64) -> bool {
        self.scene.sabotage == sabotage && self.dice.percent(chance)
    }

    fn raise(&self, key: u32, raise: Raise) {
        let mut known = self.scene.known[key as usize].lock();
        let failed_at = self.scene.failed_at.load(SeqCst);
        // What a failing device does not take leaves what it has.
        if raise.how == REPLACED && failed_at != NEVER {
            return;
        }
        known.settle(raise.at.min(failed_at), self.scene.grace);
        known.raise(raise);
    }

    fn is_failing(&self) -> bool {
        self.scene.failed_at.load(SeqCst) <= now()
    }

    fn purge(&mut self, key: u32) -> Result<(), String> {
        let version = self.scene.site.change(key);
        let url = format!("http://{HOST}/{key}");
        let (method, target) = match self.dice.percent(50) {
            true => ("POST", format!("/purge?url={url}")),
            false => ("PURGE", url),
        };
        let fields = format!("authorization: Bearer {TOKEN}\r\n");
        let admin = self.scene.addresses.lock().1;
        let answer = match self.breaks(Break::ForgottenDeletes, 100) {
            true => ask_once(admin, "GET", "/health", ""),
            false => ask_once(admin, method, &target, &fields),
        };
        let raise = |within| Raise { version, at: now(), within, how: "purged" };
        match answer {
            Ok(answer) if answer.status() == 200 => {
                self.scene.tally.one(Class::Purged);
                self.raise(key, raise(PURGE_WITHIN));
            }
            Ok(answer) if answer.status() == 500 && self.is_failing() => {
                self.scene.tally.one(Class::Unpurged);
                self.raise(key, raise(None));
            }
            Ok(answer) => return Err(format!("a purge of key {key} was answered with {}", answer.first)),
            Err(error) => return Err(format!("a purge of key {key} failed: {error}")),
        }
        Ok(())
    }

    fn invalidate(&mut self, key: u32) -> Result<(), String> {
        let asked = self.asked("POST", key, None);
        let (head, client) = match self.begin("POST", &format!("/{key}"), "") {
            Ok(begun) => begun,
            Err(error) => return self.failed(&asked, &format!("no answer: {error}")),
        };
        if head.status() >= 500 {
            return self.failed(&asked, &head.first);
        }
        let Some(version) = head.field("version").parse().ok().filter(|_| head.status() == 204) else {
            return Err(format!("a POST to key {key} was answered with {}", head.first));
        };
        self.keep(&head, client);
        self.scene.tally.one(Class::Invalidated);
        let within = invalidation_within(self.scene.durability).filter(|_| !self.is_failing());
        self.raise(key, Raise { version, at: now(), within, how: "invalidated" });
        Ok(())
    }

    /// Asks for the next version with the origin's word. Where nothing else fetched this key at that time, no older one
    /// is to come afterwards.
    fn replace(&mut self, key: u32) -> Result<(), String> {
        let traffic = &self.scene.site.traffic[key as usize];
        let seen = || (traffic.begun.load(SeqCst), traffic.ended.load(SeqCst), traffic.last.load(SeqCst));
        let was_failing = self.is_failing();
        // In this order: what begins from here on brings this version.
        let next = self.scene.site.change(key);
        let (begun, ended, last) = seen();
        let asked = self.asked("GET", key, None);
        let Some(version) = self.answer(&asked, Pace::Full, "cache-control: no-cache\r\n")? else { return Ok(()) };
        // One fetch may answer all that ask past the cache at the same time: also one that began before.
        let is_quiet = begun == ended && last.saturating_add(SETTLED) < asked.at;
        // While the origin fails, what is stale may come in its place.
        if version < next && is_quiet && !self.is_excused(&asked, AFTER_TROUBLE) {
            return Err(format!("key {key} brought version {version} where no cache was to answer, not {next}"));
        }
        let is_alone = is_quiet && seen().0 == begun + 1;
        if version < next || !is_alone || was_failing || self.is_failing() {
            self.scene.tally.one(Class::NotAlone);
            return Ok(());
        }
        self.scene.tally.one(Class::Replaced);
        let within = replacement_within(self.scene.durability);
        self.raise(key, Raise { version, at: now(), within, how: REPLACED });
        Ok(())
    }
}

const MILLISECOND: u64 = 1_000_000;
