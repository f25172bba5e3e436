//! Openings that only look, between the lives of a store: what they answer is judged as any answer is, and so is what
//! the audit says of the store.
//!
//! A look after a power failure decides as a get of the next life does: both see the same bytes. After a kill it does
//! not, for what it shows may be volatile still, and it syncs nothing.
//!
//! Invariant: a look changes no byte and leaves no trace in the run but what it saw.

use picaflor::{CheckReport, Store};
use picaflor_device::Device;
use picaflor_sim::FaultyDevice;

use crate::{
    excuse::Excuse,
    plan::Trouble,
    plug::{Plug, Wiring},
    report::tracing,
    sabotage::Sabotage,
    state::{Outcome, Run, Weight},
    trouble,
    whims::Whims,
};

/// Bytes of a body that tell where it lies.
const TELLING: usize = 48;
/// Bytes read at once where bodies are looked for.
const STRIDE: usize = 256 << 10;

impl Run<'_> {
    /// Opens the store only to look, and judges every key and the audit.
    pub(crate) fn look(&mut self, weight: Weight) -> Outcome {
        if !self.plan.extended || !self.is_made() || self.has_crashed() {
            return Ok(());
        }
        self.tally.looks += 1;
        let Some(store) = self.open_to_look()? else { return Ok(()) };
        self.store = Some(store);
        self.looking = Some(weight);
        let judged = self.judge_look();
        self.looking = None;
        self.end_look(judged)
    }

    /// None if the store is refused by name, and may be.
    fn open_to_look(&mut self) -> Outcome<Option<Store>> {
        self.plugs = Plug::all(&self.media, Wiring::default());
        let whims =
            std::mem::replace(&mut self.whims, Whims { read_only: true, ..Whims::none(self.plan, self.resized) });
        let opened = Store::open(self.options());
        self.whims = whims;
        if tracing() {
            println!("       a look{}", opened.as_ref().err().map_or_else(String::new, |error| format!(": {error}")));
        }
        match opened {
            Ok(store) => Ok(Some(store)),
            Err(error) if self.may_be_refused(&error) => {
                self.tally.excused.note(Excuse::RefusedOpening);
                self.end_look(Ok(())).map(|()| None)
            }
            Err(error) => Err(self.violation("the store opens, read-only", error.to_string())),
        }
    }

    /// The audit first, as of a store that was opened for it; then every key; in some runs the audit again, which must
    /// not be misled by what gets have brought into memory.
    fn judge_look(&mut self) -> Outcome {
        self.judge_audit("")?;
        self.judge_pins(false)?;
        let hits = self.tally.hits;
        for key in 0..self.plan.keys.len() {
            self.get(key)?;
        }
        if self.is_cold() {
            // The opening that follows says so too.
            self.losses.clear();
        }
        self.settle_losses(false);
        let found = self.tally.hits - hits;
        if (self.plan.seed / 16) % 8 == 5 {
            self.judge_audit(&format!(", after gets that brought {found} objects"))?;
        }
        Ok(())
    }

    /// A healthy store is called healthy.
    fn judge_audit(&mut self, when: &str) -> Outcome {
        let Some(store) = self.store.clone().filter(|_| self.plan.audited) else { return Ok(()) };
        let (report, damage) = audit(&store);
        if tracing() {
            println!("       {}\n       {report:?}", store.receipt());
        }
        let cries = self.sabotage == Sabotage::CheckCriesWolf && self.tally.looks.is_multiple_of(5);
        if !self.looks_sound() || report.is_clean() && damage.is_empty() && !cries {
            return Ok(());
        }
        let named: Vec<&String> = damage.iter().chain(&report.damaged).chain(&report.refused).take(5).collect();
        let found = format!(
            "{} of {} entries intact, {} lost, unreadable clusters {:?}; {named:?}",
            report.intact, report.entries, report.lost, report.unreadable_clusters
        );
        Err(self.violation(format!("the audit{when} finds nothing wrong: the devices are honest"), found))
    }

    fn end_look(&mut self, judged: Outcome) -> Outcome {
        self.left.lock().clear();
        self.plugs.iter().for_each(|plug| plug.pull());
        self.store = None;
        let changes: u64 = self.plugs.iter().map(|plug| plug.changes()).sum();
        judged?;
        if changes > 0 {
            return Err(self.violation("an opening to look changes nothing", format!("{changes} writes and syncs")));
        }
        Ok(())
    }

    /// Damages one object of a store that was closed, and looks whether the audit says so.
    pub(crate) fn plant(&mut self) -> Outcome {
        if !self.plan.audited || !self.plan.is_honest() || self.plan.hides_damage() || !self.whim_dice.percent(15) {
            return Ok(());
        }
        let Some(store) = self.open_to_look()? else { return Ok(()) };
        let first = self.whim_dice.below(self.plan.keys.len() as u64) as usize;
        let keys = (0..self.plan.keys.len()).map(|at| (first + at) % self.plan.keys.len());
        let body_of = |key: usize| {
            let object = store.get(&self.plan.keys[key]).ok()??;
            object.body().ok().filter(|body| body.len() >= TELLING)
        };
        let chosen = keys.take(40).find_map(|key| body_of(key).map(|body| (key, body)));
        drop(store);
        self.end_look(Ok(()))?;
        let Some((key, body)) = chosen else { return Ok(()) };
        let bit = 1 << self.whim_dice.below(8);
        let at = self.whim_dice.below(TELLING as u64);
        for medium in &self.media[..self.plan.volumes] {
            for place in places_of(medium, &body[..TELLING]) {
                trouble::flip(medium, place + at, bit);
            }
        }
        let judged = self.judge_planted(key);
        self.media.iter().for_each(FaultyDevice::heal);
        judged
    }

    /// The audit of a store in which this key's object is damaged, if the store finds no other copy.
    fn judge_planted(&mut self, key: usize) -> Outcome {
        let Some(store) = self.open_to_look()? else { return Ok(()) };
        self.tally.planted += 1;
        let (report, damage) = audit(&store);
        // What a crash left in tables looks like what damage took; the audit says that it cannot tell.
        let is_silent = report.is_clean() && damage.is_empty() && report.unsettled == 0;
        let silent = is_silent || self.sabotage == Sabotage::CheckIsBlind;
        let answer = store.get(&self.plan.keys[key]).and_then(|object| object.map(|object| object.body()).transpose());
        let is_gone = !matches!(answer, Ok(Some(_)));
        if tracing() {
            println!(
                "       planted in key {key}: {:?}; {report:?} {damage:?}",
                answer.as_ref().map(|body| body.is_some())
            );
            println!("       {}", store.receipt());
        }
        drop(store);
        self.end_look(Ok(()))?;
        if silent && is_gone {
            let found = format!("{} of {} entries intact, and nothing wrong", report.intact, report.entries);
            return Err(self.violation(format!("the audit names the damage of key {key}"), found));
        }
        Ok(())
    }

    /// Whether an opening may be refused for this.
    pub(crate) fn may_be_refused(&self, error: &picaflor::Error) -> bool {
        use picaflor::Error;
        // Of several places one whose superblocks were never written looks new.
        let looks_new = matches!(error, Error::Option { name: "places", .. });
        let named = matches!(error, Error::Damaged { .. } | Error::Version { .. }) || looks_new;
        // And what was made for less is made anew for all there is, if that was what the opening asked for.
        let made_anew = matches!(error, Error::Option { name: "capacity", .. });
        match self.plan.trouble {
            Trouble::Lying => named || made_anew,
            Trouble::Damage => named && self.damaged,
            Trouble::Crashes | Trouble::Failing => false,
        }
    }
}

/// What the audit says of a store, and what its opening said.
fn audit(store: &Store) -> (CheckReport, Vec<String>) {
    let report = store.check(|_, _| {});
    let receipt = store.receipt();
    let mut damage = Vec::new();
    for volume in &receipt.volumes {
        damage.extend(volume.damage.iter().chain(&volume.refused).cloned());
        if volume.dropped.cold_start {
            damage.push(format!("{} started empty", volume.place));
        }
    }
    (report, damage)
}

/// Every place of a device where these bytes lie.
fn places_of(medium: &FaultyDevice, bytes: &[u8]) -> Vec<u64> {
    let mut places = Vec::new();
    let capacity = medium.capacity();
    let mut start = 0;
    while start < capacity {
        let len = ((STRIDE + 4096) as u64).min(capacity - start) as usize;
        let Ok(shown) = medium.pristine(start, len) else { break };
        let mut from = 0;
        while let Some(at) = shown[from..].iter().position(|byte| *byte == bytes[0]).map(|at| at + from) {
            if shown[at..].starts_with(bytes) && at < STRIDE {
                places.push(start + at as u64);
            }
            from = at + 1;
        }
        start += STRIDE as u64;
    }
    places
}
