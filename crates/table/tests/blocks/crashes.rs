//! A crash at every write and at every sync of seeded lives, and the canary that shows that one would be noticed.

use picaflor_sim::{Fault, On, Rule};
use picaflor_table::blocks::BlockOptions;

use crate::counts::{METHODS, options};
use crate::crash::{Plan, live};

fn plan(seed: u64, options: BlockOptions) -> Plan {
    Plan { seed, options, operations: 120, bytes: 512 << 10, crash: None, lies: false }
}

/// Crashes a life at each of its writes and syncs; the failures.
fn every_crash(plan: &Plan) -> Vec<String> {
    let (writes, syncs) = live(plan).unwrap_or_else(|wrong| panic!("without a crash: {wrong}"));
    let at = |on, n| Plan { crash: Some(Rule::nth(Fault::Crash(on), n)), ..plan.clone() };
    let lives = (1..=writes).map(|n| (On::Write, n)).chain((1..=syncs).map(|n| (On::Sync, n)));
    lives
        .filter_map(|(on, n)| live(&at(on, n)).err().map(|why| format!("seed {} {on:?} {n}: {why}", plan.seed)))
        .collect()
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash_point() {
    let seeds: u64 = std::env::var("PICAFLOR_BLOCK_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for method in METHODS {
        for seed in 0..seeds {
            let mut options = options(method);
            if seed % 2 == 1 {
                // So few that lists and walk go on in steps, beside puts and frees.
                (options.step_blocks, options.checkpoint_every) = (2, 8);
            }
            let wrong = every_crash(&plan(seed, options));
            assert!(wrong.is_empty(), "{method:?}: {} lives: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
        }
    }
}

#[test]
fn a_device_that_does_not_sync_is_noticed() {
    let mut plan = plan(1, BlockOptions::default());
    plan.lies = true;
    let wrong = (20..200)
        .filter(|&n| live(&Plan { crash: Some(Rule::nth(Fault::Crash(On::Write), n)), ..plan.clone() }).is_err())
        .count();
    assert!(wrong > 20, "the canary sang {wrong} times of 180");
}
