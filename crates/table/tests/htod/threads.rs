//! Many threads at once.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use picaflor_device::{Clock, CountedDevice, Device, MemoryDevice};
use picaflor_sim::{Fault, FaultyDevice};
use picaflor_table::{
    Error,
    blocks::BlockOptions,
    htod::{Durable, HashTables, HtodOptions},
};

use super::{key, memory, open, value};

#[test]
fn threads_that_put_get_and_remove_see_their_own_keys_right() {
    let device = memory(64);
    let (tables, _) = open(&device, Durable::EachCall);
    let table = tables.table("t").unwrap();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let table = table.clone();
            scope.spawn(move || {
                let mut mine = BTreeMap::new();
                for step in 0..900u64 {
                    let number = thread * 1000 + step.wrapping_mul(7919) % 300;
                    match step % 5 {
                        0 => assert_eq!(table.remove(&key(number)).unwrap(), mine.remove(&number).is_some()),
                        1 => {
                            let got = table.get(&key(number)).unwrap();
                            let expected = mine.get(&number).map(|&version| value(number, version));
                            assert_eq!(got, expected, "key {number}");
                        }
                        _ => {
                            table.put(&key(number), &value(number, step)).unwrap();
                            mine.insert(number, step);
                        }
                    }
                }
                for (number, version) in mine {
                    assert_eq!(table.get(&key(number)).unwrap(), Some(value(number, version)));
                }
            });
        }
    });
    assert_eq!(table.keys().count() as u64, table.len());
}

#[test]
fn threads_that_put_the_same_keys_leave_one_of_their_values() {
    let device = memory(64);
    let (tables, _) = open(&device, Durable::EachCall);
    let table = tables.table("t").unwrap();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let table = table.clone();
            scope.spawn(move || {
                for step in 0..300u64 {
                    table.put(&key(step % 10), &value(step % 10, thread)).unwrap();
                    assert!(table.get(&key(step % 10)).unwrap().is_some(), "a key that is replaced is there all along");
                }
            });
        }
    });
    assert_eq!(table.len(), 10);
    let pairs: Vec<_> = table.pairs().map(Result::unwrap).collect();
    assert_eq!(pairs.len(), 10);
    for number in 0..10 {
        let got = table.get(&key(number)).unwrap().unwrap();
        assert!((0..8).any(|thread| value(number, thread) == got));
    }
    tables.close().unwrap();
    drop((tables, table));
    let (tables, _) = open(&device, Durable::EachCall);
    assert_eq!(tables.table("t").unwrap().keys().count(), 10);
}

#[test]
fn eight_writers_share_syncs() {
    let slow = FaultyDevice::with_clock(Arc::new(MemoryDevice::with_block_size(64 << 20, 512)), 1, Clock::real());
    slow.add(picaflor_sim::Rule::rate(Fault::Delay(picaflor_sim::On::Sync, Duration::from_millis(2)), 1.0));
    let device = CountedDevice::new(Arc::new(slow));
    let options = HtodOptions::default();
    let as_device: Arc<dyn Device> = Arc::new(device.clone());
    let (tables, _) = HashTables::open(as_device, BlockOptions::default(), options).unwrap();
    let table = tables.table("t").unwrap();
    let before = device.counts();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let table = table.clone();
            scope.spawn(move || (0..100).for_each(|n| table.put(&key(thread * 1000 + n), b"v").unwrap()));
        }
    });
    let syncs = (device.counts() - before).syncs;
    assert!(syncs < 400, "{syncs} syncs for 800 durable puts of eight writers");
}

/// Panics if `work` has not come to its end after a time that is long for it.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    end.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} hangs"))
}

#[test]
fn tables_are_made_while_others_mend_and_close() {
    let device = memory(64);
    let (tables, _) = open(&device, Durable::AtCommit);
    (0..200).for_each(|number| tables.table("t").unwrap().put(&key(number), b"one").unwrap());
    tables.commit().unwrap();
    drop(tables);
    let (tables, receipt) = open(&device, Durable::AtCommit);
    assert!(!receipt.clean && tables.wants_mending());
    let (is_made, made) = mpsc::channel();
    let maker = {
        let tables = tables.clone();
        thread::spawn(move || {
            let make = |number: &u64| match tables.table(&format!("table {number}")) {
                Ok(table) => table.put(b"a", b"b").inspect(|_| _ = is_made.send(())).is_ok(),
                Err(error) => {
                    assert!(matches!(error, Error::Closed), "{error}");
                    false
                }
            };
            (0..5000).take_while(make).count()
        })
    };
    let (mends, closes) = (tables.clone(), tables);
    made.recv().unwrap();
    in_time("mending", move || mends.mend().unwrap());
    in_time("closing", move || closes.close().unwrap());
    in_time("making", move || maker.join().unwrap());
    let (tables, receipt) = open(&device, Durable::AtCommit);
    assert!(receipt.clean && tables.names().unwrap().len() > 1);
    assert_eq!(tables.table("t").unwrap().len(), 200);
}

#[test]
fn going_through_a_table_ends_when_it_is_closed() {
    let device = memory(64);
    let (tables, _) = open(&device, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    (0..6000).for_each(|number| table.put(&key(number), b"one").unwrap());
    let mut pairs = table.pairs();
    assert!(pairs.by_ref().take(10).all(|pair| pair.is_ok()));
    tables.close().unwrap();
    let rest: Vec<_> = pairs.take(20_000).collect();
    assert!(rest.len() < 6000 && matches!(rest.last(), Some(Err(Error::Closed))), "{} more", rest.len());
    assert_eq!(rest.iter().filter(|pair| pair.is_err()).count(), 1);
}
