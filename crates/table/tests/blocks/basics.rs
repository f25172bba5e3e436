//! What a block is, what is refused, and what a clean shutdown keeps.

use std::sync::Arc;

use picaflor_device::{Device, MemoryDevice};
use picaflor_table::blocks::{Address, Block, BlockError, BlockOptions, FreeLists};

use crate::counts::METHODS;

fn memory(bytes: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_block_size(bytes, 512))
}

fn open(device: &Arc<MemoryDevice>) -> FreeLists {
    FreeLists::open(Arc::clone(device) as Arc<dyn Device>, BlockOptions::default()).expect("it opens").0
}

#[test]
fn a_block_comes_back_as_it_was_put_and_not_after_it_is_freed() {
    let device = memory(1 << 20);
    let lists = open(&device);
    let bytes: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
    let block = lists.put(&bytes).unwrap();
    let small = lists.put(b"").unwrap();
    assert_eq!(lists.read(block.address()).unwrap().1, bytes);
    assert_eq!(lists.read(small.address()).unwrap().1, b"");
    assert_eq!((block.len(), block.capacity()), (3000, 6 * 512 - 64));
    let word = block.address().word();
    assert_eq!(Address::from_word(word), Some(block.address()));
    assert_eq!(Address::from_word(0), None);
    lists.free(&block).unwrap();
    assert!(matches!(lists.read(block.address()), Err(BlockError::NotAllocated(_))));
    assert!(matches!(lists.free(&block), Err(BlockError::NotAllocated(_))), "before the sync");
    lists.sync().unwrap();
    assert!(matches!(lists.free(&block), Err(BlockError::NotAllocated(_))), "after it");
    let again = lists.put(&bytes).unwrap();
    assert_eq!(again.address(), block.address(), "the head of the quick list");
    lists.retire(&again).unwrap();
    assert_eq!(lists.read(again.address()).unwrap().1, bytes, "until the next sync");
    lists.sync().unwrap();
    assert!(lists.read(again.address()).is_err());
}

#[test]
fn what_was_only_allocated_cannot_be_read_and_can_be_written() {
    let lists = open(&memory(1 << 20));
    let block = lists.allocate(1000).unwrap();
    assert!(matches!(lists.read(block.address()), Err(BlockError::Damaged { .. })));
    let written = lists.write(&block, &[7; 900]).unwrap();
    assert_eq!(lists.read(written.address()).unwrap().1, [7; 900]);
    let too_long = vec![0; block.capacity() as usize + 1];
    assert!(matches!(lists.write(&block, &too_long), Err(BlockError::Outside { .. })));
}

#[test]
fn an_area_is_read_and_written_in_parts() {
    let device = memory(1 << 20);
    let lists = open(&device);
    let area = lists.allocate_area(4096).unwrap();
    lists.write_area(&area, 512, &[1; 1024]).unwrap();
    lists.write_area(&area, 3584, &[2; 512]).unwrap();
    let mut buf = [0; 512];
    lists.read_area(&area, 1024, &mut buf).unwrap();
    assert_eq!(buf, [1; 512]);
    for (offset, len) in [(1, 512), (0, 100), (3584, 1024), (u64::MAX - 511, 512)] {
        let refused = lists.write_area(&area, offset, &vec![0; len]);
        assert!(matches!(refused, Err(BlockError::Outside { .. })), "{offset}+{len}");
    }
    assert!(lists.write(&area, b"x").is_err() && lists.read(area.address()).is_err());
    let word = area.address();
    lists.close().unwrap();
    let lists = open(&device);
    let area = lists.locate(word).unwrap();
    lists.read_area(&area, 3584, &mut buf).unwrap();
    assert!(area.is_area() && buf == [2; 512]);
}

#[test]
fn a_clean_shutdown_keeps_lists_roots_and_counts_and_looks_at_no_header() {
    let device = memory(4 << 20);
    let lists = open(&device);
    let blocks: Vec<_> = (0..200).map(|n| lists.put(&vec![n as u8; n * 40]).unwrap()).collect();
    for block in blocks.iter().step_by(3) {
        lists.free(block).unwrap();
    }
    lists.set_roots([9, 8, 7, 6, 5, 4, 3, 2]).unwrap();
    lists.sync().unwrap();
    let before = lists.stats();
    lists.close().unwrap();
    let (lists, receipt) = FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, BlockOptions::default()).unwrap();
    assert!(receipt.clean && !receipt.created && receipt.undiscovered == 0);
    assert_eq!(lists.roots(), [9, 8, 7, 6, 5, 4, 3, 2]);
    let after = lists.stats();
    assert_eq!(
        (before.blocks, before.allocated, before.requested, &before.lists, before.free, before.most),
        (after.blocks, after.allocated, after.requested, &after.lists, after.free, after.most)
    );
    for (n, block) in blocks.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        assert_eq!(lists.read(block.address()).unwrap().1, vec![n as u8; n * 40]);
    }
    let found: Vec<_> = lists.blocks().map(|block| block.unwrap().address()).collect();
    let expected: Vec<_> =
        blocks.iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, block)| block.address()).collect();
    assert_eq!(found, expected);
}

#[test]
fn freed_blocks_are_joined_when_nothing_else_serves_a_request() {
    let lists = open(&memory(256 << 10));
    let mut blocks = Vec::new();
    let full = loop {
        match lists.put(&[1; 1900]) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, BlockError::Full { .. }), "{full}");
    let (keep, free) = blocks.split_at(20);
    for block in free {
        lists.free(block).unwrap();
    }
    let large = lists.put(&vec![3; 100_000]).unwrap();
    assert_eq!(lists.read(large.address()).unwrap().1, vec![3; 100_000]);
    for block in keep {
        assert_eq!(lists.read(block.address()).unwrap().1, [1; 1900]);
    }
}

#[test]
fn a_full_allocator_is_closed_cleanly_as_long_as_a_free_block_has_room_for_the_image() {
    for method in METHODS {
        let device = memory(512 << 10);
        let open = || {
            let mut options = BlockOptions::default();
            options.method = method;
            FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap()
        };
        let lists = open().0;
        let bytes = |n: usize| vec![n as u8; 1000 + n * 37 % 3000];
        let mut blocks: Vec<_> = (0..).map_while(|n| Some((n, lists.put(&bytes(n)).ok()?))).collect();
        // To the last grain.
        while lists.put(b"").is_ok() {}
        for n in [90, 50, 10] {
            lists.free(&blocks.remove(n).1).unwrap();
        }
        lists.sync().unwrap();
        let before = lists.stats();
        lists.close().unwrap();
        let (lists, receipt) = open();
        assert!(receipt.clean && receipt.undiscovered == 0, "{method:?} {receipt:?}");
        let after = lists.stats();
        assert_eq!((before.blocks, before.free, &before.lists), (after.blocks, after.free, &after.lists), "{method:?}");
        // Where the image lay is room like any other, and after a crash it is nothing.
        blocks.extend((200..).map_while(|n| Some((n, lists.put(&bytes(n)).ok()?))));
        lists.sync().unwrap();
        let known = lists.stats().blocks;
        drop(lists);
        let (lists, receipt) = open();
        assert!(!receipt.clean, "{method:?} {receipt:?}");
        while lists.step().unwrap() {}
        assert_eq!(lists.stats().blocks, known, "{method:?}");
        for (n, block) in &blocks {
            assert_eq!(lists.read(block.address()).unwrap().1, bytes(*n), "{method:?} {n}");
        }
        assert_eq!(lists.blocks().filter(Result::is_ok).count() as u64, known, "{method:?}");
    }
}

#[test]
fn a_device_that_holds_something_else_is_left_alone() {
    let device = memory(1 << 20);
    device.write(512, &[1; 512]).unwrap();
    let refused = FreeLists::open(Arc::clone(&device) as Arc<dyn Device>, BlockOptions::default());
    assert!(matches!(refused.map(|_| ()), Err(BlockError::Foreign(_))));
    let options = BlockOptions::default();
    for (name, options) in [
        ("grain", {
            let mut o = options.clone();
            o.grain = 700;
            o
        }),
        ("min_quick", {
            let mut o = options.clone();
            o.min_quick = 0;
            o
        }),
        ("max_quick", {
            let mut o = options.clone();
            o.max_quick = 4000;
            o
        }),
    ] {
        let device = memory(1 << 20);
        let refused = FreeLists::open(device as Arc<dyn Device>, options).map(|_| ());
        assert!(matches!(refused, Err(BlockError::Option { name: found, .. }) if found == name), "{name}");
    }
}

#[test]
fn a_damaged_header_is_reported_and_its_neighbours_are_kept() {
    let device = memory(1 << 20);
    let lists = open(&device);
    let blocks: Vec<_> = (0..20).map(|n| lists.put(&[n; 1200]).unwrap()).collect();
    lists.free(&blocks[9]).unwrap();
    lists.free(&blocks[15]).unwrap();
    lists.sync().unwrap();
    drop(lists);
    let at = blocks[8].address().grain() * 512;
    let mut sector = [0; 512];
    device.read(at, &mut sector).unwrap();
    sector[20] ^= 1;
    device.write(at, &sector).unwrap();
    let lists = open(&device);
    while lists.step().unwrap() {}
    assert!(matches!(lists.read(blocks[8].address()), Err(BlockError::Damaged { .. })));
    let damaged: Vec<_> = lists.blocks().filter_map(Result::err).collect();
    assert!(!damaged.is_empty() && damaged.iter().all(|error| matches!(error, BlockError::Damaged { .. })));
    // The free block behind the damage is not trusted either; the one behind an allocated block is.
    assert_eq!(lists.stats().alone, 2 * 3 * 512);
    assert_eq!(lists.stats().free.0, 1);
    let filled: Vec<_> = std::iter::from_fn(|| lists.put(&[99; 1200]).ok()).collect();
    assert!(filled.iter().all(|block| block.address().grain() * 512 != at));
    for (n, block) in blocks.iter().enumerate().filter(|(n, _)| ![8, 9, 15].contains(n)) {
        assert_eq!(lists.read(block.address()).unwrap().1, [n as u8; 1200]);
    }
}

#[test]
fn blocks_in_what_a_split_left_are_kept_though_the_first_of_them_is_overwritten() {
    let device = memory(1 << 20);
    let lists = open(&device);
    let large = lists.put(&[0; 60_000]).unwrap();
    while lists.put(b"behind it").is_ok() {}
    lists.free(&large).unwrap();
    lists.sync().unwrap();
    let blocks: Vec<_> = (1..=8).map(|n| lists.put(&[n; 1200]).unwrap()).collect();
    let within = |block: &Block| (0..118).contains(&(block.address().grain() - large.address().grain()));
    assert!(blocks.iter().all(within) && lists.stats().splits > 0, "they were split off");
    lists.sync().unwrap();
    drop(lists);
    // Not even a header: the block before says that all from here on is free.
    device.write(blocks[3].address().grain() * 512, &[0xA5; 512]).unwrap();
    let lists = open(&device);
    while lists.step().unwrap() {}
    let more = std::iter::from_fn(|| lists.put(&[99; 1200]).ok()).count();
    assert!((1..35).contains(&more), "{more} in what is free behind them");
    for (n, block) in (1..).zip(&blocks).filter(|&(n, _)| n != 4) {
        assert_eq!(lists.read(block.address()).unwrap().1, [n; 1200]);
    }
}
