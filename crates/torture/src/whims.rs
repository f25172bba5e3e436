//! How a store is opened: as its plan says, or now and then otherwise, within what an opening must take or must refuse
//! by name.
//!
//! Invariant: an opening that is refused for what it was asked changes nothing.

use std::sync::Arc;

use picaflor::{Daemons, Error, Mode, Options, Place, Store};
use picaflor_sim::Elevator;

use crate::{
    dice::Dice,
    folder::LogFolder,
    plan::Plan,
    plug::{Plug, Wiring},
    report::tracing,
    run::{Outcome, Run},
};

/// Rows that leave the same bytes, so that a store of one opens with another.
const FAMILIES: [&[&str]; 3] =
    [&["picaflor", "hummingbird"], &["stream", "stream-pack", "lazy-reads", "lazy-reads-loc"], &["pmflf-pfl", "oba"]];
/// Rows of which no two leave the same bytes.
const STRANGERS: [&str; 5] = ["picaflor", "buddy", "buddy-scan", "stream", "pmflf-ts"];

/// What of a life's options may differ from those of the life before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whims {
    pub(crate) preset: &'static str,
    pub(crate) memory: u64,
    /// Bytes of all devices that are asked for; 0 is as many as there are.
    pub(crate) capacity: u64,
    pub(crate) open_buffers: usize,
    pub(crate) read_only: bool,
}

/// Bytes that are asked for beyond those that a store was made with.
const MORE: u64 = 64 << 20;

/// Whether a store made with more would have more: then it is refused to open this one so.
fn could_have_more(plan: &Plan) -> bool {
    plan.has_files() || plan.capacity < plan.device
}

impl Whims {
    /// As the plan says.
    pub(crate) fn none(plan: &Plan) -> Self {
        let capacity = plan.capacity * plan.volumes as u64;
        Self { preset: plan.preset, memory: plan.memory, capacity, open_buffers: plan.open_buffers, read_only: false }
    }

    /// Others, for a store that was made before: it must open with them.
    fn drawn(plan: &Plan, dice: &mut Dice) -> Self {
        let mut whims = Self::none(plan);
        if dice.percent(30) {
            whims.memory = plan.least_memory().max(plan.memory * dice.between(1, 4) / 2);
        }
        if dice.percent(20) {
            let capacity = dice.pick(&[0, whims.capacity + MORE]);
            whims.capacity = if could_have_more(plan) { 0 } else { capacity };
        }
        if dice.percent(20) {
            whims.open_buffers = dice.between(1, 12) as usize;
        }
        if let Some(family) = FAMILIES.iter().find(|family| family.contains(&plan.preset))
            && dice.percent(25)
        {
            whims.preset = dice.pick(family);
        }
        whims
    }
}

impl Run<'_> {
    pub(crate) fn options(&self) -> Options {
        let plan = self.plan;
        let mut options = Options::on(Arc::clone(&self.plugs[0]) as Arc<dyn picaflor_device::Device>);
        options = options
            .rows(picaflor_literature::ROWS)
            .as_preset(self.whims.preset)
            .unwrap_or_else(|error| panic!("{error}"));
        let place = |plug: &Arc<Plug>| match options.wants_folder() {
            true => Place::Folder(Arc::new(LogFolder::new(Arc::clone(plug)))),
            false => Place::Device(Elevator::of_preset(self.whims.preset).before(Arc::clone(plug) as _)),
        };
        options.places = self.plugs.iter().map(place).collect();
        options.capacity = self.whims.capacity;
        options.memory = self.whims.memory;
        options.mode = plan.mode;
        options.durability = plan.durability;
        options.delete_time = plan.delete_time;
        options.delete_count = plan.delete_count;
        options.default_ttl = plan.default_ttl;
        options.cluster = plan.cluster;
        options.cluster_age = plan.cluster_age;
        options.reopening = plan.reopening;
        options.open_buffers = self.whims.open_buffers;
        options.read_only = self.whims.read_only;
        options.daemons = Daemons::Manual;
        options.clock = self.clock.clone();
        options.seed = Some(plan.seed);
        let left = Arc::clone(&self.left);
        options.eviction_listener = Some(Arc::new(move |key: &[u8], why| left.lock().push((key.to_vec(), why))));
        options
    }

    /// How the plugs of the next life are.
    pub(crate) fn wiring(&mut self) -> Wiring {
        let flights = self.plan.in_flight.then(|| self.whim_dice.roll());
        Wiring { sync_lies: self.sabotage == crate::Sabotage::SyncLies, flights }
    }

    /// What the next life is opened with; before, perhaps, what must be refused, and another time of day.
    pub(crate) fn whimsical(&mut self) -> Outcome {
        if !self.plan.extended {
            return Ok(());
        }
        if self.whim_dice.percent(10) {
            let millis = self.whim_dice.scaled(1, 10 * 86_400_000) as i64;
            let back = self.whim_dice.percent(50);
            self.set_clock(if back { -millis } else { millis });
        }
        self.whims = Whims::none(self.plan);
        if !self.is_made() {
            return Ok(());
        }
        if self.whim_dice.percent(8) && self.looks_sound() {
            self.ask_wrongly()?;
        }
        if self.whim_dice.percent(30) {
            self.whims = Whims::drawn(self.plan, &mut self.whim_dice);
            if tracing() {
                println!("       to be opened with {:?}", self.whims);
            }
        }
        Ok(())
    }

    /// The time of day is set, and nothing else moves.
    pub(crate) fn set_clock(&mut self, millis: i64) {
        if millis < 0 {
            self.oracle.outlived(self.now());
        }
        self.clock.set_by(millis);
        self.tally.clock_sets += 1;
        if tracing() {
            println!("       the clock is set by {millis} ms");
        }
    }

    /// Whether nothing on the devices is an excuse for another answer than the right one.
    pub(crate) fn looks_sound(&self) -> bool {
        self.plan.is_honest() || self.plan.trouble == crate::Trouble::Damage && !self.damaged
    }

    /// An opening that must be refused by name, and change nothing.
    fn ask_wrongly(&mut self) -> Outcome {
        self.plugs = Plug::all(&self.media, Wiring::default());
        let mut options = self.options();
        let what = self.ask(&mut options);
        let Some(what) = what else { return Ok(()) };
        let outcome = Store::open(options);
        self.tally.asked_wrongly += 1;
        let changes: u64 = self.plugs.iter().map(|plug| plug.changes()).sum();
        let named = matches!(outcome, Err(Error::Option { .. }));
        let found = match outcome {
            Ok(_) => "it opened".to_owned(),
            Err(error) => error.to_string(),
        };
        self.plugs.iter().for_each(|plug| plug.pull());
        if !named {
            return Err(self.violation(format!("an opening with {what} is refused by name"), found));
        }
        if changes > 0 {
            return Err(self.violation(format!("an opening with {what}, refused, changes nothing"), "it writes"));
        }
        Ok(())
    }

    /// Makes a mistake in these options; says which, if there is one to make.
    fn ask(&mut self, options: &mut Options) -> Option<&'static str> {
        let plan = self.plan;
        match self.whim_dice.below(5) {
            0 if !plan.has_files() && !plan.has_tables() => {
                options.capacity -= 4096 * plan.volumes as u64;
                Some("less capacity")
            }
            1 if !plan.has_tables() => {
                options.mode = if plan.mode == Mode::Cache { Mode::Store } else { Mode::Cache };
                Some("the other mode")
            }
            2 => {
                options.memory = plan.least_memory() / 2;
                Some("too little memory")
            }
            3 if !plan.has_files() => {
                let other = self.whim_dice.pick(&STRANGERS);
                let same = |family: &&[&str]| family.contains(&other) && family.contains(&plan.preset);
                if other == plan.preset || FAMILIES.iter().any(same) || plan.is_ring() && other == "picaflor" {
                    return None;
                }
                *options = options.clone().rows(picaflor_literature::ROWS).as_preset(other).ok()?;
                Some("a preset of another layout")
            }
            4 if plan.volumes > 1 => {
                options.places.pop();
                Some("a place less")
            }
            4 if could_have_more(plan) => {
                options.capacity += MORE;
                Some("more capacity than it was made with")
            }
            _ => None,
        }
    }
}
