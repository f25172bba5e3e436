//! One run: a plan, its operations, and the lives of a store from opening to crash.
//!
//! Everything happens on one thread and on a virtual clock, so a seed gives the same run every time. A *life*
//! begins with an opening, at which the power may fail again, and ends with a crash, a kill or a close.

use std::time::Duration;

use picaflor::{Error, Mode, Store};
use picaflor_sim::FaultyDevice;

use crate::{
    bounds::GroupBounds,
    excuse::Excuse,
    operation::Op,
    plan::{Plan, Trouble},
    plug::Plug,
    report::{Tally, Violation, tracing},
    sabotage::Sabotage,
    state::{Outcome, Run, Weight},
    trouble,
};

/// Openings that may be cut short by a further crash, one after the other.
const CRASHES_IN_A_ROW: u32 = 6;
/// Refused operations after which a failed store is taken down and opened again.
const PATIENCE: u32 = 12;
/// Lives that are closed at once, one after the other.
const HURRIES: u32 = 12;

/// Runs these operations of a plan.
///
/// # Errors
/// The first thing that was not as the oracle says.
pub fn run(plan: &Plan, operations: &[Op], sabotage: Sabotage) -> Result<Tally, Violation> {
    let mut run = Run::new(plan, sabotage);
    match run.all(operations) {
        Ok(()) => Ok(run.tally),
        Err(End::Violation(violation)) => Err(*violation),
        Err(End::Refused) => {
            run.tally.refused_to_open += 1;
            Ok(run.tally)
        }
    }
}

/// Why a run ends before its operations do.
pub(crate) enum End {
    Violation(Box<Violation>),
    /// A damaged store said so, and was not opened.
    Refused,
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Violation(Box::new(violation))
    }
}

impl Run<'_> {
    fn all(&mut self, operations: &[Op]) -> Result<(), End> {
        if tracing() {
            let twins = self.plan.twins.iter().enumerate().filter(|(_, twin)| **twin);
            println!("       twins: {:?}", twins.map(|(key, _)| key).collect::<Vec<_>>());
        }
        self.begin()?;
        self.check_receipt()?;
        for (at, op) in operations.iter().enumerate() {
            (self.at, self.op) = (at, Some(*op));
            self.tally.operations += 1;
            self.tally.excused.expose(self.plan);
            if tracing() {
                println!("  {at:3}: {op:?}");
            }
            if self.grow_dice.percent(2) {
                self.grow()?;
            }
            match *op {
                Op::Crash => self.crash()?,
                Op::Kill => self.kill()?,
                Op::Reopen(armed) => self.reopen(armed)?,
                Op::ArmCrash(after) => self.arm(after),
                op => {
                    self.verb(op)?;
                    if !op.only_looks() {
                        self.check_receipt()?;
                    }
                    if tracing()
                        && !self.receipt_due
                        && let Some(store) = &self.store
                    {
                        println!("       {} objects", store.stats().objects);
                    }
                    self.note_departures();
                    self.check_limits()?;
                }
            }
            self.plugs.iter().for_each(|plug| plug.let_some_land());
            let gives_up = self.errors > PATIENCE && !self.fails_for_good;
            if self.media.iter().any(FaultyDevice::is_crashed) || gives_up {
                self.crash()?;
            }
        }
        self.op = None;
        self.reopen(None)?;
        self.sweep()?;
        self.check_receipt()?;
        self.judge_pins(true)?;
        self.check_unused_bytes()?;
        Ok(())
    }

    /// Carries out one operation on the open store.
    fn verb(&mut self, op: Op) -> Outcome {
        match op {
            Op::Put(draft) => self.put(draft),
            Op::PutMany { draft, count, stride } => self.put_many(&draft.many(count, stride, self.plan.keys.len())),
            Op::DeleteMany { key, count, stride } => self.delete_many(key, count as usize, stride),
            Op::Stream { draft, piece, announce, finish } => self.stream(draft, piece, announce, finish),
            Op::Begin { slot, draft, announce } => self.begin_stream(slot, draft, announce),
            Op::Write { slot, len } => self.write(slot, len),
            Op::End { slot, finish } => self.end(slot, finish),
            Op::Fetch(draft) => self.fetch(draft),
            Op::Delete(key) => self.delete(key),
            Op::Get(key) => self.get(key),
            Op::TryGet(key) => self.try_get(key),
            Op::Range { key, from, len } => self.range(key, from, len),
            Op::Contains(key) => self.contains(key),
            Op::Sweep => self.sweep(),
            Op::Collocate(a, b) => {
                if let Some(store) = &self.store {
                    store.collocate(&self.plan.keys[a], &self.plan.keys[b]);
                }
                Ok(())
            }
            Op::Priority { group, priority } => self.priority(group, priority),
            Op::Interval { group, millis } => self.interval(group, millis),
            Op::Page { group, bytes } => self.page(group, bytes),
            Op::Pin { name, id } => self.pin(name, id),
            Op::Flush => self.flush(),
            Op::Step(count) => self.step(count),
            Op::Advance { millis } => {
                self.clock.advance(Duration::from_millis(millis));
                Ok(())
            }
            Op::SetClock { millis } => {
                self.set_clock(millis);
                Ok(())
            }
            Op::Lasting { device, how, after } => {
                self.fail_for_good(device, how, after);
                Ok(())
            }
            Op::Churn { id, count, deletes } => self.churn(id, count, deletes),
            Op::ArmCrash(_) | Op::Crash | Op::Kill | Op::Reopen(_) => Ok(()),
        }
    }

    fn arm(&mut self, after: u64) {
        let medium = self.dice.below(self.media.len() as u64) as usize;
        trouble::arm(&self.media[medium], after, &mut self.dice);
    }

    /// Opens the store, however often the power fails on the way.
    pub(crate) fn begin(&mut self) -> Result<(), End> {
        let mut retried = false;
        self.whimsical()?;
        for attempt in 0.. {
            let wiring = self.wiring();
            self.plugs = Plug::all(&self.media, wiring);
            if attempt < CRASHES_IN_A_ROW && self.dice.percent(25) {
                let after = self.dice.scaled(1, 60);
                self.arm(after);
            }
            if !retried {
                trouble::rules(self.plan, &self.media[..self.plan.troubled()], &mut self.dice);
            }
            let opened = Store::open(self.options());
            let crashed = self.media.iter().any(FaultyDevice::is_crashed);
            self.tally.growths += u64::from(opened.is_ok() && self.whims.grow(self.plan));
            self.tally.shrinks += u64::from(opened.is_ok() && self.whims.shrink(self.plan));
            if tracing() {
                match &opened {
                    Ok(_) => println!("       opened, crashed {crashed}"),
                    Err(error) => println!("       not opened, crashed {crashed}: {error}"),
                }
            }
            match opened {
                Ok(store) if !crashed => {
                    self.store = Some(store);
                    break;
                }
                Ok(store) => {
                    self.store = Some(store);
                    self.power_off()?;
                }
                Err(_) if crashed => self.power_off()?,
                // A store that holds more than would fit stays as it is.
                Err(Error::Option { name: "capacity", .. })
                    if self.whims.shrink(self.plan) && self.plan.mode == Mode::Store =>
                {
                    self.whims.capacity = 0;
                }
                Err(error) if self.plan.trouble == Trouble::Failing && !retried => {
                    // The medium works again: now it must open.
                    retried = true;
                    self.tally.failed_openings += 1;
                    self.tally.excused.note(Excuse::FailedOpening);
                    self.media.iter().for_each(FaultyDevice::clear_rules);
                    let _ = error;
                }
                Err(error) => self.refused(&error)?,
            }
        }
        self.errors = 0;
        self.tally.openings += 1;
        (self.receipt_due, self.pins_due) = (true, true);
        self.named.clear();
        Ok(())
    }

    /// The store does not open. An honest device gives it no reason to; a damaged one must be named as such.
    fn refused(&mut self, error: &Error) -> Result<(), End> {
        if !self.may_be_refused(error) {
            return Err(self.violation("the store opens", format!("{error}")).into());
        }
        self.tally.excused.note(Excuse::RefusedOpening);
        match self.plan.trouble {
            Trouble::Damage => {
                if !trouble::heal(&self.media[..self.plan.volumes]) {
                    return Err(End::Refused);
                }
                // Refusing changes nothing, so everything must be there now. Of several volumes one may have been
                // opened, with its damage, before the other was refused.
                self.damaged = self.scarred || self.plan.volumes > 1;
                self.tally.refused_to_open += 1;
                Ok(())
            }
            _ => Err(End::Refused),
        }
    }

    /// Asked for only after the first gets: the receipt waits until everything found is merged, and a cache answers
    /// before.
    fn check_receipt(&mut self) -> Outcome {
        let is_cold = self.note_cold_start();
        let due = std::mem::take(&mut self.receipt_due);
        if due {
            self.settle_losses(is_cold);
        }
        let Some(store) = self.store.as_ref().filter(|_| due) else { return Ok(()) };
        if tracing() {
            println!("       {}", store.receipt());
        }
        if !self.plan.is_honest() {
            return Ok(());
        }
        for volume in &store.receipt().volumes {
            if !volume.damage.is_empty() || volume.dropped.cold_start {
                return Err(self.violation("no damage: the device is honest", store.receipt().to_string()));
            }
        }
        Ok(())
    }

    /// All devices lose their power at once, and with it everything above them; then it returns.
    fn power_off(&mut self) -> Outcome {
        self.note_departures();
        self.plugs.iter().for_each(|plug| plug.let_go());
        for medium in &self.media {
            if !medium.is_crashed() {
                medium.crash().map_err(|error| self.violation("a crash", error.to_string()))?;
            }
        }
        self.end_life();
        for medium in &self.media {
            medium.clear_rules();
            medium.revive().map_err(|error| self.violation("a device that comes back", error.to_string()))?;
        }
        self.tally.crashes += 1;
        self.tally.crashes_of_several += u64::from(self.plan.volumes > 1);
        if tracing() {
            println!("       power failure");
        }
        self.oracle.crash();
        if self.plan.trouble == Trouble::Lying {
            self.oracle.distrust();
        }
        self.groups.crash();
        if self.sabotage == Sabotage::OverrunJournal && self.fails_for_good {
            trouble::overrun_journals(self.plan, &self.media[..self.plan.volumes]);
        }
        self.fails_for_good = false;
        self.look(Weight::Decides)
    }

    fn end_life(&mut self) {
        self.settle_losses(false);
        self.plugs.iter().for_each(|plug| plug.pull());
        self.streams = Default::default();
        self.store = None;
        self.plugs.iter().for_each(|plug| plug.throw_away());
        self.tally.device_operations += self.plugs.iter().map(|plug| plug.operations()).sum::<u64>();
        self.left.lock().clear();
        if self.plan.forgets_groups() {
            // Their row does not keep what groups were told.
            self.groups = GroupBounds::default();
        }
    }

    fn crash(&mut self) -> Result<(), End> {
        self.power_off()?;
        self.after_a_stop(false)
    }

    /// The process dies, the machine does not.
    fn kill(&mut self) -> Result<(), End> {
        if self.plan.trouble == Trouble::Failing || self.media.iter().any(FaultyDevice::is_crashed) {
            // After a failed sync the medium may show what it will not keep: then only a crash tells the truth.
            return self.crash();
        }
        self.note_departures();
        self.plugs.iter().for_each(|plug| plug.let_go());
        self.end_life();
        self.tally.kills += 1;
        self.oracle.crash();
        self.groups.crash();
        if self.plan.trouble == Trouble::Lying {
            self.oracle.distrust();
        }
        if self.plan.extended {
            self.media.iter().for_each(FaultyDevice::clear_rules);
            self.look(Weight::Glance)?;
        }
        self.after_a_stop(false)
    }

    fn reopen(&mut self, armed: Option<u64>) -> Result<(), End> {
        if let Some(after) = armed {
            self.arm(after);
        }
        self.streams = Default::default();
        let Some(store) = self.store.take() else { return self.crash() };
        let closed = store.close();
        self.note_departures();
        let crashed = self.media.iter().any(FaultyDevice::is_crashed);
        match closed {
            Ok(()) => {
                self.oracle.all_durable();
                self.groups.flushed();
            }
            Err(_) if crashed => {}
            Err(error) if self.plan.is_honest() => return Err(self.violation("a close", error.to_string()).into()),
            Err(error) => {
                if tracing() {
                    println!("       not closed: {error}");
                }
                return self.crash();
            }
        }
        if crashed {
            return self.crash();
        }
        self.end_life();
        self.tally.closes += 1;
        self.media.iter().for_each(FaultyDevice::clear_rules);
        if self.plan.trouble == Trouble::Lying {
            self.oracle.distrust();
        }
        self.fails_for_good = false;
        if self.whim_dice.percent(30) {
            self.look(Weight::Decides)?;
        }
        self.plant()?;
        self.after_a_stop(true)
    }

    /// Perhaps damage, then the next life, and mostly a look at everything.
    fn after_a_stop(&mut self, clean: bool) -> Result<(), End> {
        let mut wounded = false;
        if self.plan.trouble == Trouble::Damage && self.dice.percent(60) {
            wounded = true;
            self.damaged = true;
            self.doubtful |= !clean;
            self.tally.damages += 1;
            for medium in &self.media[..self.plan.volumes] {
                trouble::damage(medium, self.plan, &mut self.dice);
            }
            if self.whim_dice.percent(30) {
                self.look(Weight::Glance)?;
            }
        }
        self.begin()?;
        self.scarred = self.damaged;
        // One that is damaged may refuse to close for ever.
        if !clean && self.plan.hurried && self.hurries < HURRIES {
            self.hurries += 1;
            return self.reopen(None);
        }
        self.hurries = 0;
        if wounded && clean || self.dice.percent(70) {
            self.sweep()?;
            self.check_receipt()?;
        }
        Ok(())
    }

    /// Never more memory than given.
    fn check_limits(&mut self) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        if !self.tally.operations.is_multiple_of(8) {
            return Ok(());
        }
        let mut stats = store.stats();
        if self.sabotage == Sabotage::Gluttony && self.tally.operations > 100 {
            stats.memory_used += stats.memory_limit;
        }
        self.tally.memory_most = self.tally.memory_most.max(stats.memory_used);
        if stats.memory_used > stats.memory_limit {
            let found = format!("{} bytes", stats.memory_used);
            return Err(self.violation(format!("at most {} bytes of memory", stats.memory_limit), found));
        }
        self.evicted |= stats.counts.evicted > 0;
        Ok(())
    }

    /// What lies beyond the capacity given was never written.
    fn check_unused_bytes(&self) -> Outcome {
        let is_other = matches!(self.plan.trouble, Trouble::Lying | Trouble::Damage) || self.plan.has_files();
        if is_other || self.resized {
            return Ok(());
        }
        for memory in &self.memories[..self.plan.volumes] {
            let mut rest = vec![0; (self.plan.device - self.plan.capacity) as usize];
            let read = picaflor_device::Device::read(memory, self.plan.capacity, &mut rest);
            read.map_err(|error| self.violation("a read of unused bytes", error.to_string()))?;
            if rest.iter().any(|byte| *byte != 0) {
                return Err(self.violation("no byte written beyond the capacity", "some"));
            }
        }
        Ok(())
    }
}
