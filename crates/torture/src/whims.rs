//! What a life of a store is opened with: as its plan says, or now and then otherwise.

use picaflor_format::zone::Map;

use crate::{dice::Dice, plan::Plan};

/// Rows that leave the same bytes, so that a store of one opens with another.
pub(crate) const FAMILIES: [&[&str]; 3] =
    [&["picaflor", "hummingbird"], &["stream", "stream-pack", "lazy-reads", "lazy-reads-loc"], &["pmflf-pfl", "oba"]];

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
pub(crate) const MORE: u64 = 64 << 20;

/// Whether a store made with more would have more, and keeps its size: then it is refused to open it so.
pub(crate) fn keeps_its_size(plan: &Plan) -> bool {
    plan.has_files() || !plan.is_ring() && plan.capacity < plan.device
}

impl Whims {
    /// As the plan says; of a store that was to grow or to shrink, as large as that left it.
    pub(crate) fn none(plan: &Plan, resized: bool) -> Self {
        let capacity = if resized { 0 } else { plan.capacity * plan.volumes as u64 };
        Self { preset: plan.preset, memory: plan.memory, capacity, open_buffers: plan.open_buffers, read_only: false }
    }

    /// Others, for a store that was made before: it must open with them.
    pub(crate) fn drawn(plan: &Plan, resized: bool, dice: &mut Dice) -> Self {
        let mut whims = Self::none(plan, resized);
        if dice.percent(30) {
            whims.memory = plan.least_memory().max(plan.memory * dice.between(1, 4) / 2);
        }
        if dice.percent(20) {
            let more = plan.capacity * plan.volumes as u64 + MORE;
            // Few devices have bytes to grow into.
            let drawn = if plan.capacity < plan.device { more } else { dice.pick(&[0, more]) };
            whims.capacity = if keeps_its_size(plan) { 0 } else { drawn };
        }
        if dice.percent(20) {
            whims.open_buffers = dice.between(1, 12) as usize;
        }
        if let Some(family) = FAMILIES.iter().find(|family| family.contains(&plan.preset))
            && dice.percent(25)
        {
            whims.preset = dice.pick(family);
        }
        if plan.is_ring() && dice.percent(15) {
            let less = plan.capacity / 8 * dice.between(4, 7);
            let may_be = Map::grown(plan.capacity, less, plan.cluster).is_some();
            whims.capacity = if may_be { less * plan.volumes as u64 } else { 0 };
        }
        whims
    }

    /// Whether the store shrinks by it, if the opening comes so far and there is room for what it holds.
    pub(crate) fn shrink(&self, plan: &Plan) -> bool {
        self.capacity > 0 && self.capacity < plan.capacity * plan.volumes as u64
    }

    /// Bytes that a store at work can be given: all that each of its devices has.
    pub(crate) fn most(plan: &Plan) -> u64 {
        plan.device * plan.volumes as u64
    }

    /// Whether the store grows by it, if the opening comes so far.
    pub(crate) fn grow(&self, plan: &Plan) -> bool {
        plan.capacity < plan.device && self.capacity > plan.capacity * plan.volumes as u64
    }
}
