//! Rounds through the proxy: clients store, replace, purge and invalidate; the proxy is killed and started again on the
//! same store. What a purge or an invalidation took is not served again once it was acknowledged, what was replaced is
//! not once it had its time, and every body is whole.
//!
//! A key has one client, which alone changes its version at the origin. Of each key its client knows the oldest version
//! that may be served: the *floor*. Whatever raises it says when that is durable; a kill takes back what was not.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use picaflor::Durability;

use super::{
    body,
    breaks::{Before, Break},
    durable::NEVER,
    floor::{Known, PURGE_WITHIN, REPLACED, Raise, STORED, invalidation_within, replacement_within},
    log::now,
    origin::{Origin, Site},
    serve::{Proxy, Serving, TOKEN},
    tally::{Fault, Rounds},
    web::{Client, HOST, Message, ask_once, referer},
    wish::Wish,
};
use crate::dice::Dice;

const CLIENTS: u32 = 3;
const KEYS: u32 = 60;
/// Bytes of its store, and of its memory.
const MEMORY: u64 = 48 << 20;
/// Rows that proxies are given, the default most of all.
const ROWS: [&str; 9] =
    ["picaflor", "picaflor", "picaflor", "hummingbird", "stream-pack", "lazy-reads", "buddy", "damelo", "pmflf-pfl"];

/// What all clients of one life share.
struct Scene<'a> {
    address: SocketAddr,
    admin: SocketAddr,
    versions: &'a [AtomicU32],
    durability: Durability,
    sabotage: Break,
    /// Clients say which page they ask for a part of, as browsers do.
    names_pages: bool,
    /// The proxy is about to be killed: what fails from here on says nothing.
    over: AtomicBool,
    /// Told of each purge and invalidation that was acknowledged.
    acknowledged: mpsc::SyncSender<()>,
}

/// A client's part of one life.
struct Part<'a> {
    scene: &'a Scene<'a>,
    number: u32,
    known: Vec<Known>,
    dice: Dice,
    tally: Rounds,
    client: Option<Client>,
}

impl Part<'_> {
    /// Until the proxy is gone.
    ///
    /// # Errors
    /// What must not be.
    fn run(&mut self) -> Result<(), String> {
        for at in 0..self.known.len() {
            self.look(at, "")?;
        }
        while !self.scene.over.load(Relaxed) {
            let at = self.dice.below(self.known.len() as u64) as usize;
            match self.dice.below(100) {
                0..15 => self.purge(at)?,
                15..30 => self.invalidate(at)?,
                30..45 => self.replace(at)?,
                _ => drop(self.look(at, "")?),
            }
        }
        Ok(())
    }

    fn key(&self, at: usize) -> u32 {
        at as u32 * CLIENTS + self.number
    }

    /// One request; `None` if there is no answer because the proxy is being killed.
    fn ask(&mut self, method: &str, at: usize, fields: &str) -> Result<Option<Message>, String> {
        let target = format!("/{}", self.key(at));
        let client = match self.client.take() {
            Some(client) => Ok(client),
            None => Client::new(self.scene.address),
        };
        let page = if self.scene.names_pages { referer(self.key(at)) } else { String::new() };
        let answer = client.and_then(|mut client| Ok((client.ask(method, &target, &(page + fields))?, client)));
        match answer {
            Ok((answer, client)) => {
                self.client = Some(client);
                Ok(Some(answer))
            }
            Err(error) => self.gone(&format!("{method} {target} failed: {error}")).map(|()| None),
        }
    }

    /// Waits a moment for the word that the proxy was killed: a connection may break before it.
    fn gone(&self, what: &str) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if self.scene.over.load(SeqCst) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("{what}, and nobody had killed the proxy"))
    }

    /// Gets a key; returns the version that came.
    fn look(&mut self, at: usize, fields: &str) -> Result<Option<u32>, String> {
        let key = self.key(at);
        let (asked, known) = (now(), &self.known[at]);
        let ((least, by), (newest, _)) = (known.least(asked, STORED), known.least(asked, Duration::ZERO));
        let Some(mut answer) = self.ask("GET", at, fields)? else { return Ok(None) };
        if let (Break::TornAnswers, Some(byte)) = (self.scene.sabotage, answer.body.get_mut(body::SHORTEST + 9)) {
            *byte ^= 1;
        }
        if self.scene.sabotage == Break::ShortAnswers {
            answer.body.truncate(answer.body.len() / 2);
        }
        let current = self.scene.versions[key as usize].load(SeqCst);
        if answer.status() != 200 {
            return Err(format!("key {key} was answered with {}", answer.first));
        }
        let version = body::version_of(key, None, &answer.body).map_err(|why| format!("key {key} brought {why}"))?;
        self.tally.gets += 1;
        self.tally.due += u64::from(answer.is_hit());
        let after = if self.known[at].unseen { "after a kill, " } else { "" };
        if version < least || version > current {
            let hit = if answer.is_hit() { "a hit" } else { "not a hit" };
            return Err(format!(
                "{after}key {key} brought version {version} ({hit}), not {least} (which was {by}) to {current}"
            ));
        }
        self.tally.at_once += u64::from(version < newest);
        if std::mem::take(&mut self.known[at].unseen) {
            self.tally.volatile += u64::from(version < current);
            self.tally.left += u64::from(!answer.is_hit());
            // What came from the store is on the device; what came from the origin may be lost with the next kill.
            let known = &mut self.known[at];
            if answer.is_hit() && version > known.floor {
                (known.floor, known.by) = (version, "seen after a kill");
            }
        }
        Ok(Some(version))
    }

    /// Asks for the next version with the origin's word.
    fn replace(&mut self, at: usize) -> Result<(), String> {
        let next = self.scene.versions[self.key(at) as usize].fetch_add(1, SeqCst) + 1;
        if let Some(version) = self.look(at, "cache-control: no-cache\r\n")? {
            if version != next {
                return Err(format!("key {} brought version {version} where no cache was to answer", self.key(at)));
            }
            self.tally.done += 1;
            let within = replacement_within(self.scene.durability);
            self.known[at].raise(Raise { version, at: now(), within, how: REPLACED });
        }
        Ok(())
    }

    fn purge(&mut self, at: usize) -> Result<(), String> {
        let key = self.key(at);
        let version = self.scene.versions[key as usize].fetch_add(1, SeqCst) + 1;
        let target = format!("/purge?url=http://{HOST}/{key}");
        let fields = format!("authorization: Bearer {TOKEN}\r\n");
        let within = PURGE_WITHIN;
        if self.scene.sabotage == Break::ForgottenDeletes {
            self.acknowledged(at, Raise { version, at: now(), within, how: "purged" });
            return Ok(());
        }
        match ask_once(self.scene.admin, "POST", &target, &fields) {
            Ok(answer) if answer.status() == 200 => {
                self.acknowledged(at, Raise { version, at: now(), within, how: "purged" });
                Ok(())
            }
            Ok(answer) => Err(format!("a purge of key {key} was answered with {}", answer.first)),
            Err(error) => self.gone(&format!("a purge of key {key} failed: {error}")),
        }
    }

    fn invalidate(&mut self, at: usize) -> Result<(), String> {
        let Some(answer) = self.ask("POST", at, "")? else { return Ok(()) };
        if answer.status() != 204 {
            return Err(format!("a POST to key {} was answered with {}", self.key(at), answer.first));
        }
        let version = self.scene.versions[self.key(at) as usize].load(SeqCst);
        let within = invalidation_within(self.scene.durability);
        self.acknowledged(at, Raise { version, at: now(), within, how: "invalidated" });
        Ok(())
    }

    fn acknowledged(&mut self, at: usize, raise: Raise) {
        self.tally.done += 1;
        self.known[at].raise(raise);
        // The killer may not be waiting.
        let _ = self.scene.acknowledged.try_send(());
    }
}

/// What the rounds of one store through the proxy are.
struct Proxied<'a> {
    picaflor: &'a Path,
    folder: &'a Path,
    seed: u64,
    wish: &'a Wish,
    preset: &'static str,
    durability: Durability,
    origin: Origin,
    known: Vec<Vec<Known>>,
    tally: Rounds,
}

/// Bytes of a version's body: some are longer than a cluster.
fn len_of(key: u32, version: u32) -> usize {
    let mut dice = Dice::new(key.into(), version.into());
    let most = if key % 8 == 3 { 600 << 10 } else { 40 << 10 };
    dice.scaled(body::SHORTEST as u64, most) as usize
}

/// Runs the rounds of one store through `picaflor serve`; its files stay if something is wrong.
///
/// # Errors
/// Those of the system: no process, no file, no port.
pub fn run_proxied(picaflor: &Path, seed: u64, wish: &Wish) -> io::Result<Rounds> {
    let mut dice = Dice::new(seed, 31);
    let folder = tempfile::Builder::new().prefix(&format!("proxied-{seed}-")).tempdir_in(&wish.folder)?;
    let bounded = Durability::Bounded { time: Duration::from_millis(dice.scaled(20, 400)), puts: u64::MAX };
    let drawn = dice.pick(&[Durability::EveryPut, Durability::EveryPut, bounded, Durability::None]);
    let each = (KEYS / CLIENTS) as usize;
    let mut proxied = Proxied {
        picaflor,
        folder: folder.path(),
        seed,
        wish,
        preset: wish.preset.unwrap_or(ROWS[(seed % ROWS.len() as u64) as usize]),
        durability: wish.durability.unwrap_or(drawn),
        origin: Origin::start(Site::new(KEYS, len_of))?,
        known: vec![vec![Known::default(); each]; CLIENTS as usize],
        tally: Rounds { stores: 1, ..Rounds::default() },
    };
    for life in 1..=wish.kills + 1 {
        proxied.life(life, &mut dice)?;
        if !proxied.tally.faults.is_empty() {
            break;
        }
    }
    let mut tally = proxied.tally;
    if !tally.faults.is_empty() {
        let kept = folder.keep();
        tally.faults.iter_mut().for_each(|fault| fault.kept = Some(kept.clone()));
    }
    Ok(tally)
}

impl Proxied<'_> {
    fn fault(&mut self, life: u32, how: &str, what: String) {
        let (seed, wish) = (self.seed, self.wish);
        self.tally.faults.push(Fault {
            seed,
            setup: format!("picaflor serve, {} {:?}", self.preset, self.durability),
            life: format!("life {life}, {how}"),
            what,
            kept: None,
            command: format!(
                "picaflor-rounds --proxy {} --from {seed} --rounds {} {}",
                self.picaflor.display(),
                wish.kills,
                wish.arguments().join(" ")
            ),
        });
    }

    /// One life of the proxy, from its start to its kill.
    fn life(&mut self, life: u32, dice: &mut Dice) -> io::Result<()> {
        let before = Before::take(self.wish.sabotage, vec![self.folder.join("store")])?;
        let serving = Serving {
            picaflor: self.picaflor,
            folder: self.folder,
            origin: self.origin.address,
            preset: self.preset,
            durability: self.durability,
            capacity: MEMORY,
            memory: MEMORY,
            config: None,
        };
        let mut proxy = serving.start()?;
        if life <= self.wish.kills && dice.percent(15) {
            std::thread::sleep(Duration::from_micros(dice.scaled(100, 60_000)));
            proxy.child.kill()?;
            proxy.child.wait()?;
            *self.tally.kills.entry("opening".into()).or_default() += 1;
            return Ok(());
        }
        if !proxy.listen() {
            proxy.child.kill()?;
            let status = proxy.child.wait()?;
            let said = std::fs::read_to_string(self.folder.join("errors"))?;
            self.fault(life, "at its start", format!("it did not begin to listen ({status}); it said: {said}"));
            return Ok(());
        }
        let aims_at_purge = dice.percent(60);
        let time = Duration::from_millis(dice.scaled(50, 700));
        let (how, at) = self.clients(&mut proxy, (aims_at_purge, time), life, dice)?;
        before.roll_back()?;
        *self.tally.kills.entry(how.into()).or_default() += 1;
        for known in self.known.iter_mut().flatten() {
            known.killed(at, self.wish.grace);
        }
        Ok(())
    }

    /// Lets clients work, and kills the proxy: after this time, or when the next purge is acknowledged after it.
    /// Returns when that was.
    fn clients(
        &mut self,
        proxy: &mut Proxy,
        (aims_at_purge, time): (bool, Duration),
        life: u32,
        dice: &mut Dice,
    ) -> io::Result<(&'static str, u64)> {
        let Some((address, admin)) = proxy.addresses else { return Ok(("nothing", NEVER)) };
        let (tell, told) = mpsc::sync_channel(1);
        let scene = Scene {
            address,
            admin,
            versions: &self.origin.site.versions,
            durability: self.durability,
            sabotage: self.wish.sabotage,
            names_pages: life.is_multiple_of(2),
            over: AtomicBool::new(false),
            acknowledged: tell,
        };
        let parts = std::mem::take(&mut self.known).into_iter().zip(0..);
        let mut parts: Vec<Part<'_>> = parts
            .map(|(known, number)| {
                let dice = Dice::new(dice.roll(), number.into());
                Part { scene: &scene, number, known, dice, tally: Rounds::default(), client: None }
            })
            .collect();
        let mut killed = Ok(("working", NEVER));
        let wrong: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = parts.iter_mut().map(|part| scope.spawn(|| part.run())).collect();
            std::thread::sleep(time);
            // One that was acknowledged meanwhile is not the next.
            let _ = told.try_recv();
            let is_purge = aims_at_purge && told.recv_timeout(Duration::from_secs(2)).is_ok();
            let at = now();
            let kill = proxy.child.try_wait().and_then(|ended| match ended {
                Some(status) => Err(io::Error::other(format!("the proxy ended by itself, with {status}"))),
                None => proxy.child.kill(),
            });
            killed = kill.map(|()| (if is_purge { "purged" } else { "working" }, at));
            scene.over.store(true, SeqCst);
            let ends = running.into_iter().map(|part| part.join());
            ends.filter_map(|end| end.unwrap_or_else(|_| Err("a client panicked".into())).err()).collect()
        });
        let (known, tallies): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.known, part.tally)).unzip();
        self.known = known;
        tallies.into_iter().for_each(|tally| self.tally.join(tally));
        proxy.child.wait()?;
        let (how, at) = match killed {
            Ok(killed) => killed,
            Err(error) => {
                self.fault(life, "which ended", error.to_string());
                ("nothing", NEVER)
            }
        };
        for what in wrong {
            self.fault(life, &format!("killed {how}"), what);
        }
        Ok((how, at))
    }
}
