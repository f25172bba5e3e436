//! The conductor of a soak: starts the proxy, changes the weather of the origin, lets the device fail and come back,
//! watches the memory, and says a line a minute.

use std::{
    io,
    process::ExitStatus,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::{
    memory::{Memory, mib},
    options::Soak,
    scene::Scene,
    tally::Class,
};
use crate::{
    dice::Dice,
    rounds::{
        breaks::Break,
        origin::{Origin, Trouble},
        serve::{Proxy, Serving, TOKEN},
        tally::Fault,
        web::ask_once,
        wish::durability_word,
    },
    rss,
};

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
/// How long a failed device stays so, at most, once the store has noticed.
const FAILED: Duration = Duration::from_secs(30);
/// A store that is written to notices within this time that its device fails.
const NOTICED: Duration = Duration::from_secs(120);
/// A stop takes at most `limits.drain`, and writes a checkpoint.
const STOPPED: Duration = Duration::from_secs(60);
/// More violations say nothing new.
const ENOUGH: usize = 40;

/// What a device does.
enum Device {
    /// It is well, and fails at this time.
    Well(Option<Instant>),
    /// Its writes fail since this time, and the store has not noticed.
    Failing(Instant),
    /// The store has noticed, at this time.
    Failed(Instant),
}

pub(super) struct Conductor<'a> {
    soak: &'a Soak,
    seed: u64,
    serving: &'a Serving<'a>,
    origin: &'a Origin,
    scene: &'a Scene,
    dice: Dice,
    began: Instant,
    proxy: Option<Proxy>,
    born: Instant,
    memory: Memory,
    /// What was to be said of each process that has ended.
    lives: Vec<String>,
    device: Device,
    device_failures: u64,
    /// Troubles that are still to come in this turn.
    troubles: Vec<Trouble>,
    weather_until: Instant,
    sampled: Instant,
    said: (Instant, u64, u64),
    pub(super) faults: Vec<Fault>,
    /// Runs the same setup again.
    command: String,
}

impl<'a> Conductor<'a> {
    pub(super) fn new(
        soak: &'a Soak,
        seed: u64,
        serving: &'a Serving<'a>,
        origin: &'a Origin,
        scene: &'a Scene,
        command: String,
    ) -> Self {
        let now = Instant::now();
        Self {
            soak,
            seed,
            serving,
            origin,
            scene,
            dice: Dice::new(seed, 41),
            began: now,
            proxy: None,
            born: now,
            memory: Memory::new(soak),
            lives: Vec::new(),
            device: Device::Well(None),
            device_failures: 0,
            troubles: Vec::new(),
            weather_until: now + Duration::from_secs(8),
            sampled: now,
            said: (now, 0, 0),
            faults: Vec::new(),
            command,
        }
    }

    fn fault(&mut self, what: String) {
        let fault = Fault {
            seed: self.seed,
            setup: format!("picaflor serve, {} {}", self.serving.preset, durability_word(self.serving.durability)),
            life: format!(
                "{:.1} s after its start, process {}",
                self.began.elapsed().as_secs_f64(),
                self.lives.len() + 1
            ),
            what,
            kept: None,
            command: self.command.clone(),
        };
        println!("{fault}");
        self.faults.push(fault);
    }

    /// Starts the proxy.
    ///
    /// # Errors
    /// Those of the system, and a proxy that does not begin to listen.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let mut proxy = self.serving.start()?;
        let listens = proxy.listen();
        let addresses = proxy.addresses;
        self.proxy = Some(proxy);
        let Some(addresses) = addresses.filter(|_| listens) else {
            let said = std::fs::read_to_string(self.serving.folder.join("errors"))?;
            return Err(io::Error::other(format!("the proxy did not begin to listen; it said: {said}")));
        };
        *self.scene.addresses.lock() = addresses;
        self.born = Instant::now();
        self.memory = Memory::new(self.soak);
        self.device = Device::Well(self.soak.device_every.map(|every| Instant::now() + every));
        Ok(())
    }

    /// Until the time is over, or something is wrong.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn run(&mut self) -> io::Result<()> {
        while self.began.elapsed() < self.soak.time && !self.is_enough() {
            std::thread::sleep(TICK);
            self.weather();
            self.sample()?;
            self.device()?;
            self.hear();
            if self.said.0.elapsed() >= 60 * SECOND {
                println!("{}", self.line());
                self.keep_stats();
            }
            let ended = self.proxy.as_mut().map(|proxy| proxy.child.try_wait()).transpose()?.flatten();
            if let Some(status) = ended {
                self.fault(format!("the proxy ended by itself, with {status}"));
                break;
            }
        }
        self.origin.fail(Trouble::None);
        self.keep_stats();
        Ok(())
    }

    fn is_enough(&self) -> bool {
        self.faults.len() >= if self.soak.keep_going { ENOUGH } else { 1 }
    }

    /// Takes over what the clients found.
    pub(super) fn hear(&mut self) {
        let wrong = std::mem::take(&mut *self.scene.wrong.lock());
        wrong.into_iter().take(ENOUGH).for_each(|what| self.fault(what));
    }

    /// What the proxy says of itself, to look into a violation with.
    fn keep_stats(&self) {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        let admin = self.scene.addresses.lock().1;
        if let Ok(stats) = ask_once(admin, "GET", "/stats", &token) {
            let _ = std::fs::write(self.serving.folder.join("stats.json"), stats.body);
        }
    }

    /// Troubles in turn, with spells between in which the origin is well.
    fn weather(&mut self) {
        if Instant::now() < self.weather_until {
            return;
        }
        let is_short = self.soak.time < 120 * SECOND;
        let trouble = match self.origin.site.trouble() {
            Trouble::None => {
                if self.troubles.is_empty() {
                    self.troubles = Trouble::ALL[1..].to_vec();
                    self.dice.shuffle(&mut self.troubles);
                }
                self.troubles.pop().unwrap_or(Trouble::None)
            }
            _ => Trouble::None,
        };
        let (low, high) = match (trouble, is_short) {
            (Trouble::None, true) => (3000, 8000),
            (_, true) => (500, 1500),
            (Trouble::None, false) => (10_000, 30_000),
            (_, false) => (2000, 8000),
        };
        self.weather_until = Instant::now() + Duration::from_millis(self.dice.between(low, high));
        self.origin.fail(trouble);
    }

    fn pid(&self) -> Option<Pid> {
        self.proxy.as_ref().map(|proxy| Pid::from_child(&proxy.child))
    }

    fn sample(&mut self) -> io::Result<()> {
        if self.sampled.elapsed() < SECOND {
            return Ok(());
        }
        self.sampled = Instant::now();
        let Some(pid) = self.pid() else { return Ok(()) };
        let Some(mut resident) = rss::of_process(pid.as_raw_nonzero().get() as u32) else { return Ok(()) };
        if self.scene.sabotage == Break::GrowingMemory {
            resident += self.born.elapsed().as_secs() << 26;
        }
        if let Err(why) = self.memory.sample(self.born.elapsed(), resident) {
            self.fault(why);
        }
        Ok(())
    }

    /// Lets the length of the proxy's files be this at most.
    fn limit(&self, len: Option<u64>) -> io::Result<()> {
        prlimit(self.pid(), Resource::Fsize, Rlimit { current: len, maximum: None })?;
        Ok(())
    }

    fn device(&mut self) -> io::Result<()> {
        match self.device {
            Device::Well(Some(until)) if Instant::now() >= until => {
                self.scene.fail_device();
                let any = self.dice.between(1 << 20, self.soak.capacity / 2);
                let len = self.dice.pick(&[64 << 10, 1 << 20, any, any]);
                self.limit(Some(len))?;
                self.device_failures += 1;
                self.device = Device::Failing(Instant::now());
                println!("  writes beyond byte {len} of the store fail");
            }
            Device::Failing(since) => {
                let admin = self.scene.addresses.lock().1;
                let health = ask_once(admin, "GET", "/health", "")?;
                if health.body.starts_with(b"degraded") {
                    println!("  noticed after {:.1} s", since.elapsed().as_secs_f64());
                    self.device = Device::Failed(Instant::now());
                } else if since.elapsed() > NOTICED {
                    self.fault(format!("writes fail for {} s, and /health says ok", NOTICED.as_secs()));
                    self.device = Device::Failed(Instant::now());
                }
            }
            Device::Failed(since) if since.elapsed() >= FAILED.min(self.soak.time / 10) => {
                self.limit(None)?;
                self.come_back()?;
            }
            Device::Well(_) | Device::Failed(_) => {}
        }
        Ok(())
    }

    /// The device is well again: the proxy is stopped and started, while no client asks.
    fn come_back(&mut self) -> io::Result<()> {
        let scene = self.scene;
        let _alone = scene.gate.write();
        self.stop()?;
        scene.restarted();
        self.start()?;
        println!("  the device is well, and the proxy restarted: {}", self.lives.last().map_or("", |life| life));
        Ok(())
    }

    /// Stops the proxy politely, and judges how it ends.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        let Some(mut proxy) = self.proxy.take() else { return Ok(()) };
        let due: &[i32] = match self.device {
            Device::Well(_) => &[0],
            Device::Failing(_) => &[0, 1],
            Device::Failed(_) => &[1],
        };
        let _ = kill_process(Pid::from_child(&proxy.child), Signal::TERM);
        let status = ended(&mut proxy, STOPPED)?;
        let life = format!("{:.0} s, {}", self.born.elapsed().as_secs_f64(), self.memory);
        match status {
            Some(status) if status.code().is_some_and(|code| due.contains(&code)) => {}
            Some(status) => self.fault(format!("the proxy ended with {status} after TERM, not with one of {due:?}")),
            None => self.fault(format!("the proxy goes on {} s after TERM", STOPPED.as_secs())),
        }
        if let Err(why) = self.memory.judge() {
            self.fault(why);
        }
        self.lives.push(life);
        Ok(())
    }

    /// How it went since the last line, and altogether.
    pub(super) fn line(&mut self) -> String {
        let tally = &self.scene.tally;
        let (asked, hits) = (tally.get(Class::Asked), tally.get(Class::Hit));
        let (since, asked_before, hits_before) = self.said;
        let seconds = since.elapsed().as_secs_f64().max(0.001);
        let share = (hits - hits_before) as f64 * 100.0 / (asked - asked_before).max(1) as f64;
        let rate = (asked - asked_before) as f64 / seconds;
        let failed = |trouble: &Trouble| {
            let count = self.origin.site.failed[*trouble as usize].load(Relaxed);
            format!("{count} {trouble:?}")
        };
        let failed: Vec<_> = Trouble::ALL[1..].iter().map(failed).collect();
        self.said = (Instant::now(), asked, hits);
        format!(
            "{:.1} min: {rate:.0} requests/s, {share:.0}% hits; {} resident, {}; {} asked, {} compared; \
             {}; origin: {}; device failed {} times; {} violations",
            self.began.elapsed().as_secs_f64() / 60.0,
            mib(self.memory.last()),
            self.memory,
            asked,
            mib(tally.get(Class::Bytes)),
            tally.words(),
            failed.join(", ").to_lowercase(),
            self.device_failures,
            self.faults.len()
        )
    }

    /// All of it, at the end.
    pub(super) fn summary(&mut self) -> String {
        self.said = (self.began, 0, 0);
        let lives: Vec<_> = self.lives.iter().map(|life| format!("  process: {life}\n")).collect();
        lives.concat() + &self.line()
    }
}

impl Drop for Conductor<'_> {
    fn drop(&mut self) {
        if let Some(proxy) = &mut self.proxy {
            let _ = proxy.child.kill();
            let _ = proxy.child.wait();
        }
    }
}

/// Waits for its end; kills it where there is none in time.
fn ended(proxy: &mut Proxy, within: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + within;
    while Instant::now() < until {
        if let Some(status) = proxy.child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(TICK / 5);
    }
    proxy.child.kill()?;
    proxy.child.wait()?;
    Ok(None)
}
