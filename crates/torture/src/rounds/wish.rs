//! What a caller wants of rounds: it narrows what a seed draws, and is handed on to the children.

use std::{path::PathBuf, time::Duration};

use picaflor::{Durability, Mode};

use super::breaks::Break;

/// Narrows what seeds draw. What is not said is drawn.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Row of the engine's table; else all in turn.
    pub preset: Option<&'static str>,
    /// Cache or store.
    pub mode: Option<Mode>,
    /// How many places.
    pub places: Option<usize>,
    /// What a crash may cost.
    pub durability: Option<Durability>,
    /// Deletes that may be volatile, and one.
    pub delete_count: Option<u64>,
    /// Threads that work.
    pub threads: Option<usize>,
    /// Tasks that work.
    pub tasks: Option<usize>,
    /// Kills of one store.
    pub kills: u32,
    /// Longest time that a child works, where no kill comes before.
    pub work: Duration,
    /// How much longer than its bound something may stay volatile: a process that gets no processor keeps no time.
    pub grace: Duration,
    /// What is broken on purpose.
    pub sabotage: Break,
    /// Where files are kept.
    pub folder: PathBuf,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            preset: None,
            mode: None,
            places: None,
            durability: None,
            delete_count: None,
            threads: None,
            tasks: None,
            kills: 6,
            work: Duration::from_millis(600),
            grace: Duration::from_millis(250),
            sabotage: Break::None,
            folder: std::env::temp_dir(),
        }
    }
}

/// The word for a durability; `bounded` is one second.
pub(super) fn durability_word(durability: Durability) -> String {
    match durability {
        Durability::EveryPut => "every-put".into(),
        Durability::Bounded { time, puts: u64::MAX } => time.as_millis().to_string(),
        Durability::Bounded { time, puts } => format!("{},{puts}", time.as_millis()),
        _ => "none".into(),
    }
}

/// What such a word means.
fn durability(word: &str) -> Option<Durability> {
    let bounded =
        |millis: &str, puts| Some(Durability::Bounded { time: Duration::from_millis(millis.parse().ok()?), puts });
    match (word, word.split_once(',')) {
        ("none", _) => Some(Durability::None),
        ("every-put", _) => Some(Durability::EveryPut),
        (_, Some((millis, puts))) => bounded(millis, puts.parse().ok()?),
        _ => bounded(word, u64::MAX),
    }
}

impl Wish {
    /// Takes an argument, and its value if it has one. False if it is none of these.
    ///
    /// # Errors
    /// What is wrong with its value.
    pub fn take(&mut self, name: &str, args: &mut impl Iterator<Item = String>) -> Result<bool, String> {
        match name {
            "--preset" | "--mode" | "--places" | "--durability" | "--delete-count" | "--threads" | "--tasks"
            | "--kills" | "--work" | "--grace" | "--folder" | "--break" => {}
            _ => return Ok(false),
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let needs = |what: &str| format!("{name} needs {what}, not {value:?}");
        let number = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| needs(&format!("a number from {least} to {most}")))
        };
        match name {
            "--preset" => {
                let all: Vec<_> = picaflor_literature::presets().collect();
                let found = all.iter().find(|preset| **preset == value).copied();
                if found.is_none() && value != "all" {
                    return Err(needs(&format!("one of {}, or all", all.join(", "))));
                }
                self.preset = found;
            }
            "--mode" => {
                self.mode = Some(match value.as_str() {
                    "cache" => Mode::Cache,
                    "store" => Mode::Store,
                    _ => return Err(needs("cache or store")),
                });
            }
            "--durability" => {
                let found = durability(&value);
                self.durability = Some(found.ok_or_else(|| needs("none, every-put, MILLIS or MILLIS,PUTS"))?);
            }
            "--places" => self.places = Some(number(1, 4)? as usize),
            "--delete-count" => self.delete_count = Some(number(1, u64::MAX)?),
            "--threads" => self.threads = Some(number(0, 64)? as usize),
            "--tasks" => self.tasks = Some(number(0, 64)? as usize),
            "--kills" => self.kills = number(1, 3000)? as u32,
            "--work" => self.work = Duration::from_millis(number(60, 600_000)?),
            "--grace" => self.grace = Duration::from_millis(number(0, 60_000)?),
            "--break" => {
                let all = Break::ALL.into_iter().chain([Break::LostAnswers, Break::GrowingMemory]);
                let found = all.clone().find(|sabotage| sabotage.name() == value);
                let all = all.map(Break::name).collect::<Vec<_>>().join(", ");
                self.sabotage = found.ok_or_else(|| needs(&format!("one of {all}")))?;
            }
            _ => self.folder = value.into(),
        }
        Ok(true)
    }

    /// The arguments that say this, but for the folder.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mode = self.mode.map(|mode| if mode == Mode::Store { "store" } else { "cache" }.to_owned());
        let sabotage = (self.sabotage != Break::None).then(|| self.sabotage.name().to_owned());
        let given = [
            ("--preset", self.preset.map(str::to_owned)),
            ("--mode", mode),
            ("--places", self.places.map(|places| places.to_string())),
            ("--durability", self.durability.map(durability_word)),
            ("--delete-count", self.delete_count.map(|count| count.to_string())),
            ("--threads", self.threads.map(|threads| threads.to_string())),
            ("--tasks", self.tasks.map(|tasks| tasks.to_string())),
            ("--kills", Some(self.kills.to_string())),
            ("--work", Some(self.work.as_millis().to_string())),
            ("--grace", Some(self.grace.as_millis().to_string())),
            ("--break", sabotage),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wish_is_handed_on_as_it_is() {
        let said = "--preset squid --mode store --places 1 --durability 20,5 --delete-count 1 --threads 3 --tasks 0 \
                    --kills 4 --work 90 --grace 9 --break old-answers";
        let mut wish = Wish::default();
        let mut args = said.split_whitespace().map(str::to_owned);
        while let Some(name) = args.next() {
            assert!(wish.take(&name, &mut args).unwrap(), "{name}");
        }
        assert_eq!(wish.arguments().join(" "), said.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut other = || wish.take("--places", &mut ["9".to_owned()].into_iter());
        assert!(other().unwrap_err().contains("from 1 to 4"));
        assert!(!wish.take("--seeds", &mut std::iter::empty()).unwrap());
    }
}
