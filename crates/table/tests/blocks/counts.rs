//! Device writes, exactly: one an allocation, one a free, whatever the method; the home amortised.

use std::sync::Arc;

use picaflor_device::{CountedDevice, Counts, Device, MemoryDevice};
use picaflor_table::blocks::{BlockOptions, FreeLists, Method};

pub(crate) fn options(method: Method) -> BlockOptions {
    let mut options = BlockOptions::default();
    options.method = method;
    options
}

fn counted(options: BlockOptions) -> (CountedDevice, FreeLists) {
    let device = CountedDevice::new(Arc::new(MemoryDevice::with_block_size(64 << 20, 512)));
    let (lists, _) = FreeLists::open(Arc::new(device.clone()) as Arc<dyn Device>, options).expect("it opens");
    (device, lists)
}

fn counts_of(device: &CountedDevice, act: impl FnOnce()) -> Counts {
    let before = device.counts();
    act();
    device.counts() - before
}

#[test]
fn an_allocation_is_one_write_and_a_free_is_one_write() {
    for method in METHODS {
        let (device, lists) = counted(options(method));
        let mut blocks = Vec::new();
        let puts = counts_of(&device, || blocks.extend((0..50).map(|n| lists.put(&vec![1; n * 100]).unwrap())));
        assert_eq!((puts.writes, puts.reads, puts.syncs), (50, 0, 0), "{method:?}: from the tail");
        let frees = counts_of(&device, || blocks.iter().for_each(|block| lists.free(block).unwrap()));
        assert_eq!((frees.writes, frees.reads, frees.syncs), (50, 0, 0), "{method:?}: known sizes");
        lists.sync().unwrap();
        let again = counts_of(&device, || {
            blocks = (0..50).map(|n| lists.allocate(n * 100).unwrap()).collect();
        });
        assert_eq!((again.writes, again.reads, again.syncs), (50, 0, 0), "{method:?}: from quick lists");
        let found = counts_of(&device, || blocks.iter().for_each(|block| lists.free_at(block.address()).unwrap()));
        assert_eq!((found.writes, found.reads), (50, 50), "{method:?}: the size is read");
    }
}

#[test]
fn the_tail_costs_one_write_where_an_eager_one_costs_two() {
    for (every, expected) in [(64, 640 + 10), (1, 2 * 640)] {
        let mut options = options(Method::Ts);
        options.checkpoint_every = every;
        let (device, lists) = counted(options);
        let writes = counts_of(&device, || {
            for _ in 0..640 {
                lists.put(&[1; 1000]).unwrap();
                lists.sync().unwrap();
            }
        });
        assert_eq!(writes.writes, expected, "a home every {every} allocations");
        assert_eq!(lists.stats().from_tail, 640);
    }
}

#[test]
fn a_read_is_one_read_and_a_split_is_one_write() {
    let (device, lists) = counted(options(Method::Ts));
    let large = lists.put(&vec![1; 60_000]).unwrap();
    let read = counts_of(&device, || drop(lists.read(large.address()).unwrap()));
    assert_eq!((read.reads, read.writes), (1, 0));
    lists.free(&large).unwrap();
    lists.sync().unwrap();
    let split = counts_of(&device, || {
        lists.put(&vec![2; 50_000]).unwrap();
    });
    assert_eq!((split.writes, lists.stats().splits), (1, 1), "the rest needs no header yet");
}

#[test]
fn a_batch_is_written_in_address_order_and_side_by_side_at_once() {
    let mut options = options(Method::Ts);
    options.batch_threshold = 4096;
    let (device, lists) = counted(options);
    let large = lists.put(&[1; 20_000]).unwrap();
    let small = lists.put(&[1; 1000]).unwrap();
    lists.put(&[1; 1000]).unwrap();
    lists.free_batch(&[small, large]).unwrap();
    lists.sync().unwrap();
    let bodies: Vec<Vec<u8>> = [900, 3000, 1500].iter().map(|&len| vec![len as u8; len]).collect();
    let slices: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
    let mut blocks = Vec::new();
    let batch = counts_of(&device, || blocks = lists.put_batch(&slices).unwrap());
    assert_eq!(batch.writes, 1, "three blocks of one free block");
    // By decreasing size, from the large block: the small one is below the threshold.
    let at = |index: usize| blocks[index].address().grain();
    assert!(at(1) == large.address().grain() && at(1) < at(2) && at(2) < at(0));
    for (block, bytes) in blocks.iter().zip(&bodies) {
        assert_eq!(lists.read(block.address()).unwrap().1, *bytes);
    }
}

#[test]
fn a_batch_uses_what_its_own_splits_leave_however_short_and_others_leave_it_alone() {
    let (_, lists) = counted(options(Method::Pfl));
    let [free, short] = [10_000, 3000].map(|len| lists.put(&vec![1; len]).unwrap());
    lists.put(b"so that nothing joins the tail").unwrap();
    lists.free_batch(&[free, short]).unwrap();
    lists.sync().unwrap();
    let from = free.address().grain();
    // Of 20 grains 12 are taken, and what is left is less than T.
    let blocks = lists.put_batch(&[&[2; 3000], &[3; 6000], &[4; 3000]]).unwrap();
    let mut places: Vec<u64> = blocks.iter().map(|block| block.address().grain()).collect();
    assert_eq!(places.remove(1), from);
    places.sort_unstable();
    assert_eq!(places[0], from + 12, "Figure 8: what is left goes back to the list that is searched");
    assert!(places[1] > from + 20 + 6, "a free block below T is left alone");
    for (block, byte) in blocks.iter().zip(2..) {
        assert!(lists.read(block.address()).unwrap().1.iter().all(|found| *found == byte));
    }
}

pub(crate) const METHODS: [Method; 3] = [Method::Ts, Method::Pl, Method::Pfl];
