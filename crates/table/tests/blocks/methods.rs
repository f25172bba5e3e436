//! What the persistent lists of PL and PFL are for: free blocks after a failure, with few reads.

use std::sync::Arc;

use picaflor_device::{CountedDevice, Device, MemoryDevice};
use picaflor_table::blocks::{BlockReceipt, FreeLists, Method};

use crate::counts::options;

/// 2,000 blocks of one size and one of another, of which every tenth is freed; opened again without a clean shutdown.
#[expect(clippy::unwrap_used, reason = "a failing helper is a failing test")]
fn after_a_failure(method: Method) -> (BlockReceipt, u64, FreeLists, Vec<u64>) {
    let device = Arc::new(MemoryDevice::with_block_size(64 << 20, 512));
    let mut options = options(method);
    options.checkpoint_every = 8;
    let (lists, _) = FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, options.clone()).expect("it opens");
    let blocks: Vec<_> = (0..2000).map(|_| lists.put(&[7; 5000]).unwrap()).collect();
    lists.sync().unwrap();
    let freed: Vec<_> = blocks.iter().step_by(10).collect();
    for block in &freed {
        lists.free(block).unwrap();
        lists.sync().unwrap();
    }
    // The last of them may not be on a list yet; the home with this head is durable.
    lists.set_roots([1; 8]).unwrap();
    lists.sync().unwrap();
    drop(lists);
    let counted = CountedDevice::new(device);
    let (lists, receipt) = FreeLists::open(Arc::new(counted.clone()), options).expect("it opens");
    let places = freed.iter().map(|block| block.address().grain()).collect();
    (receipt, counted.counts().reads, lists, places)
}

#[test]
fn lists_lead_to_free_blocks_and_ts_has_to_look_for_them() {
    let (ts, _, lists, _) = after_a_failure(Method::Ts);
    assert_eq!((ts.from_lists, lists.stats().free.0), (0, 0));
    let (pfl, reads, lists, freed) = after_a_failure(Method::Pfl);
    assert_eq!((pfl.from_lists, lists.stats().free.0), (200, 200), "every free block, and no other");
    assert!(reads < 200 + 20, "{reads} reads");
    let again = lists.put(&[8; 5000]).unwrap();
    assert_eq!(again.address().grain(), freed[0], "the oldest was found last, and so is the head");
    // Lists of all blocks lead through those in use, most of which lie side by side.
    let (pl, reads, lists, _) = after_a_failure(Method::Pl);
    assert_eq!((pl.from_lists, lists.stats().free.0), (200, 200));
    assert!(reads < 200 + 20, "{reads} reads");
    while lists.step().unwrap() {}
    assert_eq!(lists.stats().free.0, 200, "discovery finds no other");
}

#[test]
fn a_block_allocated_since_the_heads_were_written_is_stepped_over() {
    let (_, _, lists, freed) = after_a_failure(Method::Pfl);
    while lists.step().unwrap() {}
    let taken: Vec<_> = (0..100).map(|_| lists.put(&[9; 5000]).unwrap().address()).collect();
    lists.sync().unwrap();
    assert!(taken.iter().all(|at| freed.contains(&at.grain())));
    let found: Vec<_> = lists.blocks().map(|block| block.unwrap().address()).collect();
    assert_eq!(found.len(), 1900);
    assert!(taken.iter().all(|at| found.contains(at)));
}

/// `blocks` blocks, `replaced` of them in turn, the last `freed` of those freed and not put again; then killed.
#[expect(clippy::unwrap_used, reason = "a failing helper is a failing test")]
fn in_steady_state(
    method: Method,
    blocks: usize,
    replaced: usize,
    freed: usize,
    len: usize,
) -> (BlockReceipt, u64, FreeLists) {
    let device = Arc::new(MemoryDevice::with_block_size(256 << 20, 512));
    let (lists, _) = FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, options(method)).expect("it opens");
    let mut held: Vec<_> = (0..blocks).map(|_| lists.put(&vec![7; len]).unwrap()).collect();
    lists.sync().unwrap();
    for number in 0..replaced {
        let at = number * 7919 % blocks;
        lists.free(&held[at]).unwrap();
        lists.sync().unwrap();
        held[at] = lists.put(&vec![8; len]).unwrap();
    }
    for at in 0..freed {
        lists.free(&held[at * (blocks / freed)]).unwrap();
    }
    lists.sync().unwrap();
    drop(lists);
    let counted = CountedDevice::new(device);
    let (lists, receipt) = FreeLists::open(Arc::new(counted.clone()), options(method)).expect("it opens");
    (receipt, counted.counts().reads, lists)
}

#[test]
fn lists_find_what_was_freed_where_no_list_changes() {
    for method in [Method::Pl, Method::Pfl] {
        let (receipt, reads, lists) = in_steady_state(method, 1000, 5000, 100, 5000);
        assert_eq!((receipt.from_lists, lists.stats().free.0), (100, 100), "{method:?}");
        assert!(reads < 150, "{method:?}: {reads}");
    }
}

#[test]
fn lists_are_followed_beyond_what_an_opening_reads() {
    let (receipt, _, lists) = in_steady_state(Method::Pfl, 2000, 0, 2000, 60_000);
    assert!((512..2000).contains(&receipt.from_lists), "{}", receipt.from_lists);
    assert!(lists.step().unwrap() && lists.step().unwrap() && lists.step().unwrap());
    assert_eq!(lists.stats().free.0, 2000, "without a walk");
    assert!(lists.stats().discovering);
}
