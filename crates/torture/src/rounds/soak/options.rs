//! How a soak is run.

use std::time::Duration;

/// How a soak is run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// How long.
    pub time: Duration,
    /// Requests a second, of all clients together.
    pub rate: u64,
    /// Clients, each with a connection.
    pub clients: usize,
    /// Objects of the origin.
    pub keys: u32,
    /// Bytes of the store.
    pub capacity: u64,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes by which the process may have more resident than is promised.
    pub memory_over: u64,
    /// Time from one failure of the device to the next; none for a device that is well.
    pub device_every: Option<Duration>,
    /// Whether it goes on after a violation.
    pub keep_going: bool,
}

impl Default for Soak {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(3600),
            rate: 150,
            clients: 24,
            keys: 6000,
            capacity: 256 << 20,
            memory: 64 << 20,
            memory_over: 0,
            device_every: Some(Duration::from_secs(1200)),
            keep_going: false,
        }
    }
}

impl Soak {
    /// Takes an argument, and its value. False if it is none of these.
    ///
    /// # Errors
    /// What is wrong with its value.
    pub fn take(&mut self, name: &str, args: &mut impl Iterator<Item = String>) -> Result<bool, String> {
        const NAMES: [&str; 8] =
            ["--soak", "--rate", "--clients", "--keys", "--capacity", "--memory", "--memory-over", "--device-every"];
        if !NAMES.contains(&name) {
            return Ok(false);
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a number"))?;
        let needs = |what: &str| format!("{name} needs {what}, not {value:?}");
        let number = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| needs(&format!("a number from {least} to {most}")))
        };
        let fraction = |unit: f64| {
            let number = value.parse::<f64>().ok().filter(|number| (0.0..10_000.0).contains(number));
            number.map(|number| Duration::from_secs_f64(number * unit)).ok_or_else(|| needs("a number"))
        };
        match name {
            "--soak" => self.time = fraction(3600.0)?,
            "--rate" => self.rate = number(1, 1_000_000)?,
            "--clients" => self.clients = number(1, 1000)? as usize,
            "--keys" => self.keys = number(100, 60_000)? as u32,
            "--capacity" => self.capacity = number(16, 1 << 20)? << 20,
            "--memory" => self.memory = number(8, 1 << 20)? << 20,
            "--memory-over" => self.memory_over = number(0, 1 << 20)? << 20,
            _ => self.device_every = Some(fraction(60.0)?).filter(|every| !every.is_zero()),
        }
        Ok(true)
    }

    pub(super) fn arguments(&self) -> String {
        let device = self.device_every.map_or(0.0, |every| every.as_secs_f64() / 60.0);
        format!(
            "--soak {:.4} --rate {} --clients {} --keys {} --capacity {} --memory {} --memory-over {} \
             --device-every {device}",
            self.time.as_secs_f64() / 3600.0,
            self.rate,
            self.clients,
            self.keys,
            self.capacity >> 20,
            self.memory >> 20,
            self.memory_over >> 20
        )
    }
}
