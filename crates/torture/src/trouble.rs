//! What devices do to a store: rules of failure for each life, damage between two of them.

use std::time::Duration;

use picaflor_device::Device;
use picaflor_format::zone::{HOT, Map, SUPERBLOCKS, Zone};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};

use crate::{
    dice::Dice,
    plan::{Plan, Trouble},
    report::tracing,
};

/// Fails the power at the `after`-th operation from now, counting all, or one kind only.
pub(crate) fn arm(medium: &FaultyDevice, after: u64, dice: &mut Dice) {
    let (on, after) = match dice.below(4) {
        0 => (On::Write, after.div_ceil(2)),
        1 => (On::Sync, after.div_ceil(8)),
        _ => (On::Any, after),
    };
    medium.add(Rule::nth(Fault::Crash(on), after));
}

/// The rules of one life.
pub(crate) fn rules(plan: &Plan, media: &[FaultyDevice], dice: &mut Dice) {
    // Of several devices one fails; the others must go on.
    let Some(medium) = media.get(dice.below(media.len() as u64) as usize) else { return };
    let mut rate = |fault, per_mille: u64| {
        if dice.percent(40) {
            medium.add(Rule::rate(fault, dice.scaled(1, per_mille) as f64 / 1000.0));
        }
    };
    match plan.trouble {
        Trouble::Failing => {
            rate(Fault::ReadError, 50);
            rate(Fault::WriteError, 10);
            rate(Fault::SyncError, 20);
            rate(Fault::NoSpace, 10);
            rate(Fault::Delay(On::Any, Duration::from_millis(7)), 100);
        }
        Trouble::Lying => {
            rate(Fault::Lost, 20);
            rate(Fault::Torn, 20);
            rate(Fault::Misdirected, 20);
            rate(Fault::Rot, 20);
            rate(Fault::Flicker, 40);
        }
        Trouble::Crashes | Trouble::Damage => {}
    }
}

/// Changes bytes behind the store's back: in one zone, bits or whole blocks.
pub(crate) fn damage(medium: &FaultyDevice, plan: &Plan, dice: &mut Dice) {
    let Some(map) = Map::new(plan.capacity, plan.cluster) else { return };
    let first_clusters = Zone { start: map.clusters.start, len: u64::from(map.cluster) * 8 };
    let zone = dice.pick(&[
        Zone { start: SUPERBLOCKS.start, len: 4096 },
        Zone { start: SUPERBLOCKS.start + 4096, len: 4096 },
        SUPERBLOCKS,
        HOT,
        Zone { start: map.journal.start, len: 64 << 10 },
        map.journal,
        first_clusters,
        map.clusters,
        map.clusters,
    ]);
    for _ in 0..dice.scaled(1, 60) {
        let at = zone.start + dice.below(zone.len);
        // A place without any superblock is a new one, so both are never wiped.
        let kinds = if zone.start < SUPERBLOCKS.end() { 4 } else { 6 };
        match dice.below(kinds) {
            0..4 => flip(medium, at, 1 << dice.below(8)),
            4 => overwrite(medium, at, [0; 4096].into()),
            // A block of another place, as a misdirected write leaves it.
            _ => {
                let from = dice.below(plan.capacity / 4096) * 4096;
                if let Ok(block) = medium.pristine(from, 4096) {
                    overwrite(medium, at, block[..].into());
                }
            }
        }
    }
}

pub(crate) fn flip(medium: &FaultyDevice, at: u64, bit: u8) {
    if tracing() {
        println!("       bits {bit:#04x} of byte {at} are flipped");
    }
    let block = at / 4096 * 4096;
    let mut shown = vec![0; 4096];
    if medium.read(block, &mut shown).is_ok() {
        // Only a device without power refuses, and then there is nothing to damage.
        let _ = medium.damage(at, &[shown[(at - block) as usize] ^ bit]);
    }
}

fn overwrite(medium: &FaultyDevice, at: u64, block: Box<[u8]>) {
    if tracing() {
        println!("       block at {} is written over", at / 4096 * 4096);
    }
    let _ = medium.damage(at / 4096 * 4096, &block);
}

/// Takes all damage back. Whether there was any.
pub(crate) fn heal(media: &[FaultyDevice]) -> bool {
    let mut healed = false;
    for medium in media {
        let all = medium.capacity() as usize;
        healed |= !medium.is_true(0, all).unwrap_or(true);
        medium.heal();
    }
    healed
}

/// Damages the journal of each device, as pages that were written over it would.
pub(crate) fn overrun_journals(plan: &Plan, media: &[FaultyDevice]) {
    let Some(map) = Map::new(plan.capacity, plan.cluster) else { return };
    for medium in media {
        for page in 0..map.journal.len / 4096 {
            flip(medium, map.journal.start + page * 4096 + 64, 1);
        }
    }
}
