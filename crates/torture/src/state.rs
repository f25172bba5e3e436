//! A run under way: what its parts share.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use picaflor::{Departure, Error, Mode, PutStream, Store};
use picaflor_device::{Clock, MemoryDevice};
use picaflor_sim::FaultyDevice;

use crate::{
    bounds::GroupBounds,
    dice::Dice,
    excuse::Excuse,
    operation::{Draft, Op, STREAMS},
    oracle::{Oracle, Value},
    pin_bounds::PinBounds,
    plan::{Plan, Trouble},
    plug::Plug,
    report::{Tally, Violation},
    sabotage::Sabotage,
    whims::Whims,
};

/// What the listener heard.
pub(crate) type Departures = Vec<(Vec<u8>, Departure)>;

pub(crate) type Outcome<T = ()> = Result<T, Violation>;

/// A stream that stays open while other things happen.
pub(crate) struct Stream {
    pub(crate) put: PutStream,
    pub(crate) draft: Draft,
    pub(crate) value: Value,
    pub(crate) written: usize,
    pub(crate) announced: bool,
}

/// What a look may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// What it saw is what there is.
    Decides,
    /// It may see what a power failure still takes.
    Glance,
}

/// A run under way.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) sabotage: Sabotage,
    pub(crate) clock: Clock,
    pub(crate) memories: Vec<MemoryDevice>,
    pub(crate) media: Vec<FaultyDevice>,
    pub(crate) plugs: Vec<Arc<Plug>>,
    pub(crate) store: Option<Store>,
    pub(crate) streams: [Option<Stream>; STREAMS],
    pub(crate) oracle: Oracle,
    pub(crate) left: Arc<Mutex<Departures>>,
    pub(crate) groups: GroupBounds,
    pub(crate) pins: PinBounds,
    /// No record was pinned since the opening.
    pub(crate) pins_due: bool,
    /// Decides what happens between lives.
    pub(crate) dice: Dice,
    pub(crate) tally: Tally,
    /// What this life was opened with.
    pub(crate) whims: Whims,
    /// It was opened with more bytes than it was made with, or fewer. A crash may have come before it had them.
    pub(crate) resized: bool,
    /// Decides what only plans of the second edition have.
    pub(crate) whim_dice: Dice,
    /// Decides when a store at work is given more bytes.
    pub(crate) grow_dice: Dice,
    /// The store is open only to look, and what it shows has this weight.
    pub(crate) looking: Option<Weight>,
    /// In this life a device was told to fail and stay so.
    pub(crate) fails_for_good: bool,
    /// Objects left by themselves in this run.
    pub(crate) evicted: bool,
    /// Bytes of a device were changed behind the store's back.
    pub(crate) damaged: bool,
    /// They were changed after a crash: what no sync has vouched for cannot be told from what was lost.
    pub(crate) doubtful: bool,
    /// The store has lived with that damage.
    pub(crate) scarred: bool,
    /// Lives in a row that were closed at once.
    pub(crate) hurries: u32,
    /// Failed calls in this life.
    pub(crate) errors: u32,
    /// The receipt of this opening was not asked for yet.
    pub(crate) receipt_due: bool,
    /// What was missed before that.
    pub(crate) losses: Vec<Excuse>,
    /// What gets have called damaged since the opening.
    pub(crate) named: HashSet<String>,
    pub(crate) at: usize,
    pub(crate) op: Option<Op>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, sabotage: Sabotage) -> Self {
        let clock = Clock::virtual_at(1_700_000_000_000);
        let memories: Vec<_> =
            plan.devices().map(|(bytes, block)| MemoryDevice::with_block_size(bytes, block)).collect();
        let faulty = |(at, memory): (usize, &MemoryDevice)| {
            FaultyDevice::with_clock(Arc::new(memory.clone()), plan.seed ^ (at as u64) << 40, clock.clone())
        };
        Self {
            plan,
            sabotage,
            media: memories.iter().enumerate().map(faulty).collect(),
            clock,
            memories,
            plugs: Vec::new(),
            store: None,
            streams: Default::default(),
            oracle: Oracle::new(plan.keys.len()),
            left: Arc::default(),
            groups: Default::default(),
            pins: Default::default(),
            pins_due: false,
            dice: Dice::new(plan.seed, 3),
            tally: Tally::default(),
            whims: Whims::none(plan, false),
            resized: false,
            whim_dice: Dice::new(plan.seed, 9),
            grow_dice: Dice::new(plan.seed, 11),
            looking: None,
            fails_for_good: false,
            evicted: false,
            damaged: false,
            doubtful: false,
            scarred: false,
            hurries: 0,
            errors: 0,
            receipt_due: false,
            losses: Vec::new(),
            named: HashSet::new(),
            at: 0,
            op: None,
        }
    }
}

impl Run<'_> {
    /// What is wrong, and where in the run.
    pub(crate) fn violation(&self, expected: impl Into<String>, found: impl Into<String>) -> Violation {
        Violation {
            seed: self.plan.seed,
            plan: self.plan.describe(),
            step: self.at,
            operation: self.op.map_or_else(|| "the final look".into(), |op| format!("{op:?}")),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now_millis()
    }

    /// Whether an opening for writing has succeeded: before, there may be nothing to look at.
    pub(crate) fn is_made(&self) -> bool {
        self.tally.openings > 0
    }

    /// Whether objects may leave by themselves.
    pub(crate) fn is_cache(&self) -> bool {
        self.plan.mode == Mode::Cache
    }

    /// Whether this opening says that the store started empty.
    pub(crate) fn is_cold(&self) -> bool {
        let receipt = self.store.as_ref().map(|store| store.receipt());
        receipt.is_some_and(|receipt| receipt.volumes.iter().any(|volume| volume.dropped.cold_start))
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.media.iter().any(picaflor_sim::FaultyDevice::is_crashed)
    }

    /// Whether nothing on the devices is an excuse for another answer than the right one.
    pub(crate) fn looks_sound(&self) -> bool {
        self.plan.is_honest() || self.plan.trouble == Trouble::Damage && !self.damaged
    }

    /// A cache that started empty has forgotten what its groups were set to. Waits as the receipt does.
    pub(crate) fn note_cold_start(&mut self) -> bool {
        let is_cold = self.receipt_due && self.is_cold();
        if is_cold {
            self.groups.forget();
        }
        is_cold
    }

    /// Hears what the listener heard. Returns whose objects left.
    pub(crate) fn note_departures(&mut self) -> Vec<usize> {
        let mut numbers = Vec::new();
        for (key, _) in self.left.lock().drain(..) {
            self.evicted = true;
            if let Some(at) = self.plan.keys.iter().position(|known| *known == key) {
                self.oracle.left(at);
                numbers.push(at);
            }
        }
        numbers
    }

    /// Only a device that fails is an excuse for a call that does.
    pub(crate) fn must_be_excused(&mut self, error: &Error) -> Outcome {
        if self.has_crashed() {
            return Ok(());
        }
        if !self.plan.is_honest() && !matches!(error, Error::Option { .. }) {
            self.tally.excused.note(Excuse::FailedCall);
            return Ok(());
        }
        Err(self.violation("the call succeeds: nothing has failed", error.to_string()))
    }
}
