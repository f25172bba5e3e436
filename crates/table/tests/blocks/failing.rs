//! A device that fails a write or a sync, at every single operation: what was synced is there, and the allocator goes
//! on or says that it has stopped.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::sync::Arc;

use picaflor_device::{CountedDevice, MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice, Rule};
use picaflor_table::blocks::{Address, Block, BlockError, BlockOptions, BlockResult, FreeLists, Method};

use crate::counts::METHODS;

#[derive(Default)]
struct Known {
    durable: Vec<(Block, Vec<u8>)>,
    since: Vec<(Block, Vec<u8>)>,
}

/// One call of a workload of puts, batches, frees and syncs.
fn call(lists: &FreeLists, step: usize, known: &mut Known) -> BlockResult<()> {
    let bytes = |number: usize| vec![(step * 7 + number) as u8; 200 + (step * 611 + number * 1777) % 9000];
    match step % 6 {
        0..=2 => known.since.push((lists.put(&bytes(0))?, bytes(0))),
        3 => {
            let bodies = [bytes(1), bytes(2), bytes(3)];
            let blocks = lists.put_batch(&[&bodies[0], &bodies[1], &bodies[2]])?;
            known.since.extend(blocks.into_iter().zip(bodies));
        }
        // From here on whether it is there is not known.
        4 if !known.durable.is_empty() => lists.free(&known.durable.remove(step % known.durable.len()).0)?,
        4 => {}
        _ => {
            lists.sync()?;
            known.durable.append(&mut known.since);
            lists.step()?;
        }
    }
    Ok(())
}

/// False if the rule never came to it.
fn fails(method: Method, rule: Rule, fault: Fault) -> bool {
    let what = format!("{method:?} {rule:?}");
    let device = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(2 << 20, 512)), 3);
    let counted = CountedDevice::new(Arc::new(device.clone()));
    let mut options = BlockOptions::sparing();
    (options.method, options.checkpoint_every) = (method, 4);
    let open = || FreeLists::open(Arc::new(counted.clone()), options.clone()).map(|(lists, _)| lists);
    let lists = open().unwrap();
    let mut known = Known::default();
    device.add(rule);
    let mut stopped = false;
    for step in 0..60 {
        let before = counted.counts();
        let Err(error) = call(&lists, step, &mut known) else {
            // What asks nothing of the device may still be done.
            assert!(!stopped || counted.counts() == before, "{what}: it has stopped, and goes on");
            continue;
        };
        let text = error.to_string();
        match error {
            BlockError::Stopped(_) => {
                assert!(text.contains("open it again"), "{what}: {text}");
                let cost = counted.counts() - before;
                assert!(!stopped || cost.writes + cost.syncs == 0, "{what}: {text}, and writes: {cost:?}");
                stopped = true;
            }
            BlockError::Io { what: place, .. } => {
                assert!(place.contains("at byte") || place.contains("ing "), "{text}")
            }
            error => panic!("{what}: {error}"),
        }
        for (block, bytes) in &known.durable {
            assert!(lists.read(block.address()).unwrap().1 == *bytes, "{what}: what was durable is still read");
        }
    }
    let met = device.injected(fault) > 0;
    drop(lists);
    device.clear_rules();
    device.crash().and_then(|_| device.revive()).unwrap();
    let lists = open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let verify = |lists: &FreeLists, when: &str| {
        for (block, bytes) in &known.durable {
            let at: Address = block.address();
            let found = lists.read(at).unwrap_or_else(|error| panic!("{what}, {when}: {at:?} {error}"));
            assert!(found.1 == *bytes, "{what}, {when}: {at:?}");
        }
    };
    verify(&lists, "opened again");
    // Nothing of it is given out.
    while lists.step().unwrap() {}
    for number in 0..60_usize {
        lists.put(&vec![0xee; 300 + number * 131]).unwrap();
    }
    lists.sync().unwrap();
    verify(&lists, "used again");
    met
}

#[test]
fn whichever_write_or_sync_fails_what_was_synced_is_there() {
    let mut points = 0;
    for method in METHODS {
        for fault in [Fault::WriteError, Fault::SyncError, Fault::NoSpace] {
            for once in [true, false] {
                let rule = |point| if once { Rule::nth(fault, point) } else { Rule::since(fault, point) };
                points += (1..).take_while(|&point| fails(method, rule(point), fault)).count();
            }
        }
    }
    assert!(points > 400, "{points}");
}
