//! How a store is opened: as its plan says, or now and then otherwise, within what an opening must take or must refuse
//! by name.
//!
//! Invariant: an opening that is refused for what it was asked changes nothing.

use std::sync::Arc;

use picaflor::{Daemons, Error, Mode, Options, Place, Store};
use picaflor_sim::Elevator;

use crate::{
    folder::LogFolder,
    plug::{Plug, Wiring},
    report::tracing,
    sabotage::Sabotage,
    state::{Outcome, Run},
    whims::{FAMILIES, MORE, Whims, keeps_its_size},
};

/// Rows of which no two leave the same bytes.
const STRANGERS: [&str; 5] = ["picaflor", "buddy", "buddy-scan", "stream", "pmflf-ts"];

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
        let (of_store, for_files) = self.plugs.split_at(plan.volumes);
        options.places = of_store.iter().map(place).collect();
        let folder = |plug: &Arc<Plug>| Place::Folder(Arc::new(LogFolder::new(Arc::clone(plug))));
        options.long_files = for_files.iter().map(folder).collect();
        options.threshold = plan.long_files_above.unwrap_or(options.threshold);
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
        // Odd seeds as all were before there was a choice.
        options.splits_first = !plan.seed.is_multiple_of(2);
        options.read_only = self.whims.read_only;
        options.daemons = Daemons::Manual;
        options.clock = self.clock.clone();
        options.seed = Some(plan.seed);
        let left = Arc::clone(&self.left);
        if !plan.deaf {
            options.eviction_listener = Some(Arc::new(move |key: &[u8], why| left.lock().push((key.to_vec(), why))));
        }
        options
    }

    /// How the plugs of the next life are.
    pub(crate) fn wiring(&mut self) -> Wiring {
        let flights = self.plan.in_flight.then(|| self.whim_dice.roll());
        Wiring { sync_lies: self.sabotage == Sabotage::SyncLies, flights }
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
        self.whims = Whims::none(self.plan, self.resized);
        if !self.is_made() {
            return Ok(());
        }
        if self.whim_dice.percent(8) && self.looks_sound() {
            self.ask_wrongly()?;
        }
        if self.whim_dice.percent(30) {
            self.whims = Whims::drawn(self.plan, self.resized, &mut self.whim_dice);
            self.resized |= self.whims.grow(self.plan) || self.whims.shrink(self.plan);
            // What a cache evicts to be smaller no count tells.
            self.evicted |= self.whims.shrink(self.plan);
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
                // What lies in clusters gives the rest back, if so many are left as a store has at the least.
                let less = if plan.is_ring() { 4096 } else { plan.capacity - 4096 };
                options.capacity = less * plan.volumes as u64;
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
            4 if keeps_its_size(plan) => {
                options.capacity = plan.capacity * plan.volumes as u64 + MORE;
                Some("more capacity than it was made with")
            }
            _ => None,
        }
    }
}
