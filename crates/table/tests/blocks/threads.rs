//! Many threads on one allocator: no block is two threads', and what they synced together is there.

use std::sync::Arc;
use std::thread;

use picaflor_device::{Device, MemoryDevice};
use picaflor_table::blocks::{Block, FreeLists};

use crate::counts::{METHODS, options};

#[test]
fn threads_share_syncs_and_no_blocks() {
    for method in METHODS {
        let device = Arc::new(MemoryDevice::with_block_size(16 << 20, 512));
        let (lists, _) = FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, options(method)).unwrap();
        let life = |thread: u8| {
            let mut mine: Vec<(Block, Vec<u8>)> = Vec::new();
            for turn in 0..300usize {
                let bytes = vec![thread; 100 + (turn * 37 + usize::from(thread) * 101) % 4000];
                mine.push((lists.put(&bytes).unwrap(), bytes));
                if turn % 3 == 2 {
                    let (block, bytes) = mine.swap_remove(turn % mine.len());
                    assert_eq!(lists.read(block.address()).unwrap().1, bytes);
                    lists.free(&block).unwrap();
                }
                if turn % 5 == 4 {
                    lists.sync().unwrap();
                    lists.step().unwrap();
                }
            }
            lists.sync().unwrap();
            mine
        };
        let life = &life;
        let lives: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = (0..8).map(|thread| scope.spawn(move || life(thread))).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        drop(lists);
        let (lists, receipt) = FreeLists::open(device, options(method)).unwrap();
        assert!(!receipt.clean);
        let kept: usize = lives.iter().map(Vec::len).sum();
        assert_eq!(lists.blocks().map(Result::unwrap).count(), kept, "{method:?}");
        for (block, bytes) in lives.iter().flatten() {
            assert_eq!(lists.read(block.address()).unwrap().1, *bytes, "{method:?}");
        }
    }
}
