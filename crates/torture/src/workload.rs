//! How the operations of a run are drawn: all of them before it begins, so that a failing run can be replayed with
//! some of them left out.

use crate::{
    dice::Dice,
    further::further,
    operation::{Draft, Op, STREAMS},
    pin_bounds::NAMES,
    plan::Plan,
};

/// How likely each kind of operation is in one run.
struct Mix {
    weights: [(Kind, u64); 18],
    total: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Stream,
    Begin,
    Write,
    End,
    Fetch,
    Delete,
    Get,
    TryGet,
    Range,
    Contains,
    Sweep,
    Collocate,
    Group,
    Flush,
    Step,
    Advance,
    Stop,
}

impl Mix {
    fn new(dice: &mut Dice) -> Self {
        let mut weights = [
            (Kind::Put, 300),
            (Kind::Stream, 12),
            (Kind::Begin, 6),
            (Kind::Write, 12),
            (Kind::End, 5),
            (Kind::Fetch, 10),
            (Kind::Delete, 60),
            (Kind::Get, 150),
            (Kind::TryGet, 10),
            (Kind::Range, 10),
            (Kind::Contains, 10),
            (Kind::Sweep, 2),
            (Kind::Collocate, 10),
            (Kind::Group, 6),
            (Kind::Flush, 25),
            (Kind::Step, 120),
            (Kind::Advance, 60),
            (Kind::Stop, 14),
        ];
        // Each run is fond of some things and hardly does others.
        for (_, weight) in &mut weights {
            *weight = *weight * dice.pick(&[1, 2, 4, 4, 4, 8, 16]) / 4;
        }
        let total = weights.iter().map(|(_, weight)| weight).sum();
        Self { weights, total }
    }

    fn draw(&self, dice: &mut Dice) -> Kind {
        let mut left = dice.below(self.total);
        for (kind, weight) in self.weights {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Kind::Get
    }
}

/// Groups and servers that a run uses.
const GROUPS: u64 = 3;

/// The operations of a plan.
#[must_use]
pub fn operations(plan: &Plan) -> Vec<Op> {
    let mut dice = Dice::new(plan.seed, 2);
    let mix = Mix::new(&mut dice);
    // Some runs go round and round a few keys, others over all of them.
    let favourites = dice.between(1, plan.keys.len() as u64);
    let drawn = (0..plan.length as u64).map(|id| one(plan, id + 1, mix.draw(&mut dice), favourites, &mut dice));
    let mut operations: Vec<Op> = drawn.collect();
    if plan.many {
        let mut dice = Dice::new(plan.seed, 4);
        operations.iter_mut().for_each(|op| *op = perhaps_many(*op, plan, &mut dice));
    }
    let mut pages = Dice::new(plan.seed, 5);
    let divides = plan.least_page().is_some() && pages.percent(80);
    let divided = (1..=GROUPS as u32).filter_map(|group| page(plan, group, &mut pages)).filter(|_| divides);
    let mut pins = Dice::new(plan.seed, 6);
    if pins.percent(40) {
        operations = with_pins(operations, &mut pins);
    }
    let all = divided.chain(operations).collect();
    if plan.extended { further(plan, all) } else { all }
}

/// Some calls are for many objects.
fn perhaps_many(op: Op, plan: &Plan, dice: &mut Dice) -> Op {
    let (count, stride) = (dice.scaled(1, 40) as u32, dice.between(1, plan.keys.len() as u64) as usize);
    match op {
        // Not so many of long ones that nothing else fits beside them.
        Op::Put(draft) if dice.percent(40) && draft.len as u64 * u64::from(count) < plan.capacity / 16 => {
            Op::PutMany { draft, count, stride }
        }
        Op::Delete(key) if dice.percent(40) => Op::DeleteMany { key, count, stride },
        op => op,
    }
}

/// Between the operations, records are pinned and taken out.
fn with_pins(operations: Vec<Op>, dice: &mut Dice) -> Vec<Op> {
    let often = dice.between(1, 20);
    let mut all = Vec::with_capacity(operations.len() * 5 / 4);
    for op in operations {
        if dice.percent(often) {
            let id = dice.percent(75).then_some(all.len() as u64 + 1);
            all.push(Op::Pin { name: dice.below(NAMES as u64) as usize, id });
        }
        all.push(op);
    }
    all
}

/// Another size of page for a group, where there are pages.
fn page(plan: &Plan, group: u32, dice: &mut Dice) -> Option<Op> {
    let least = plan.least_page()?;
    let sizes = u64::from((plan.cluster / least).ilog2()) + 1;
    Some(Op::Page { group, bytes: least << dice.below(sizes) })
}

fn one(plan: &Plan, id: u64, kind: Kind, favourites: u64, dice: &mut Dice) -> Op {
    let all = plan.keys.len() as u64;
    let reach = if dice.percent(80) { favourites } else { all };
    let key = dice.below(reach) as usize;
    let slot = dice.below(STREAMS as u64) as usize;
    match kind {
        Kind::Put => Op::Put(draft(plan, key, id, plan.longest, dice)),
        Kind::Fetch => Op::Fetch(draft(plan, key, id, plan.longest.min(30_000), dice)),
        Kind::Stream => {
            let draft = draft(plan, key, id, plan.longest.max(300 << 10), dice);
            let piece = dice.scaled(100, 200_000) as usize;
            Op::Stream { draft, piece, announce: dice.percent(50), finish: dice.percent(75) }
        }
        Kind::Begin => {
            let draft = draft(plan, key, id, plan.longest.max(300 << 10), dice);
            Op::Begin { slot, draft, announce: dice.percent(50) }
        }
        Kind::Write => Op::Write { slot, len: dice.scaled(100, 200_000) as usize },
        Kind::End => Op::End { slot, finish: dice.percent(80) },
        Kind::Delete => Op::Delete(key),
        Kind::Get => Op::Get(key),
        Kind::TryGet => Op::TryGet(key),
        Kind::Range => Op::Range { key, from: dice.below(plan.longest), len: dice.scaled(1, 100_000) },
        Kind::Contains => Op::Contains(key),
        Kind::Sweep => Op::Sweep,
        Kind::Collocate => Op::Collocate(key, dice.below(all) as usize),
        Kind::Group if plan.least_page().is_some() && dice.percent(40) => {
            page(plan, dice.between(1, GROUPS) as u32, dice).unwrap_or(Op::Flush)
        }
        Kind::Group if dice.percent(50) => {
            Op::Priority { group: dice.between(1, GROUPS) as u32, priority: dice.below(3) as u8 }
        }
        Kind::Group => {
            let millis = if dice.percent(30) { 0 } else { dice.scaled(1, 3000) };
            Op::Interval { group: dice.between(1, GROUPS) as u32, millis }
        }
        Kind::Flush => Op::Flush,
        Kind::Step => Op::Step(dice.scaled(1, 20) as u32),
        Kind::Advance => Op::Advance { millis: dice.scaled(1, 4000) },
        Kind::Stop => match dice.below(10) {
            0..5 => Op::ArmCrash(dice.scaled(1, 100)),
            5 => Op::Crash,
            6 => Op::Kill,
            7 => Op::Reopen(Some(dice.scaled(1, 20))),
            _ => Op::Reopen(None),
        },
    }
}

fn draft(plan: &Plan, key: usize, id: u64, longest: u64, dice: &mut Dice) -> Draft {
    let len = match dice.below(20) {
        0 => 0,
        1 => u64::from(plan.cluster) - dice.below(400),
        2..6 => dice.scaled(1, longest),
        _ => dice.scaled(1, longest.min(8000)),
    };
    Draft {
        key,
        id,
        len: len as usize,
        group: if dice.percent(20) { dice.between(1, GROUPS) as u32 } else { 0 },
        server: if dice.percent(40) { dice.between(1, GROUPS) as u32 } else { 0 },
        beside: dice.percent(plan.beside).then(|| dice.below(plan.keys.len() as u64) as usize),
        expires_in: match dice.below(10) {
            0 => Some(dice.scaled(1, 20_000)),
            1..4 => None,
            _ => Some(0),
        },
        bypass: dice.percent(5),
        no_wait: dice.percent(5),
    }
}
