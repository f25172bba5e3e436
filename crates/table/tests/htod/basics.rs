//! What the verbs answer, without faults.

use std::collections::BTreeMap;

use picaflor_table::{Error, htod::Durable};

use super::{key, memory, open, value};

#[test]
fn values_come_back_through_doubling_and_reopening() {
    let device = memory(64);
    let (tables, receipt) = open(&device, Durable::AtCommit);
    assert!(receipt.created && receipt.clean);
    let table = tables.table("objects").unwrap();
    let mut expected = BTreeMap::new();
    for number in 0..6000 {
        table.put(&key(number), &value(number, 0)).unwrap();
        expected.insert(key(number), value(number, 0));
    }
    for number in (0..6000).step_by(3) {
        table.put(&key(number), &value(number, 1)).unwrap();
        expected.insert(key(number), value(number, 1));
    }
    for number in (0..6000).step_by(7) {
        assert!(table.remove(&key(number)).unwrap());
        assert!(!table.remove(&key(number)).unwrap());
        expected.remove(&key(number));
    }
    let check = |table: &picaflor_table::htod::Table| {
        assert_eq!(table.len(), expected.len() as u64);
        assert!(table.pages() > 60);
        for number in 0..6010 {
            let got = table.get(&key(number)).unwrap();
            assert_eq!(got.as_ref(), expected.get(&key(number)), "key {number}");
            assert_eq!(table.contains(&key(number)).unwrap(), got.is_some());
        }
        let pairs: Vec<_> = table.pairs().map(Result::unwrap).collect();
        assert_eq!(pairs.len(), expected.len(), "each once");
        assert_eq!(pairs.into_iter().collect::<BTreeMap<_, _>>(), expected);
        assert_eq!(table.keys().count(), expected.len());
        assert_eq!(table.values().count(), expected.len());
    };
    check(&table);
    tables.close().unwrap();
    assert!(matches!(table.get(b"x"), Err(Error::Closed)));
    drop((tables, table));
    let (tables, receipt) = open(&device, Durable::AtCommit);
    assert!(receipt.clean && !receipt.created && receipt.epoch == 2);
    check(&tables.table("objects").unwrap());
    assert!(tables.stats().cached_pages <= 16, "{:?}", tables.stats());
    assert_eq!(tables.mend().unwrap().pages, 0, "nothing to do after a clean stop");
}

#[test]
fn tables_do_not_see_each_other() {
    let device = memory(16);
    let (tables, _) = open(&device, Durable::EachCall);
    let (one, two) = (tables.table("one").unwrap(), tables.table("two").unwrap());
    one.put(b"key", b"1").unwrap();
    two.put(b"key", b"2").unwrap();
    assert_eq!(one.get(b"key").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(one.remove(b"key").unwrap());
    assert_eq!(tables.table("two").unwrap().get(b"key").unwrap().as_deref(), Some(&b"2"[..]));
    drop((tables, one, two));
    let (tables, receipt) = open(&device, Durable::EachCall);
    assert!(!receipt.clean);
    let mut names = tables.names().unwrap();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    assert!(tables.table("one").unwrap().get(b"key").unwrap().is_none());
    assert_eq!(tables.table("two").unwrap().get(b"key").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn keys_outside_the_limits_are_refused() {
    let device = memory(16);
    let (tables, _) = open(&device, Durable::EachCall);
    let table = tables.table("t").unwrap();
    assert!(matches!(table.put(b"", b"v"), Err(Error::Limit { what: "key", .. })));
    assert!(matches!(table.get(&vec![0; (1 << 16) + 1]), Err(Error::Limit { .. })));
    table.put(&vec![7; 1 << 16], b"").unwrap();
    assert_eq!(table.get(&vec![7; 1 << 16]).unwrap().as_deref(), Some(&b""[..]));
}

#[test]
fn a_full_device_refuses_and_goes_on() {
    let device = memory(4);
    let (tables, _) = open(&device, Durable::EachCall);
    let table = tables.table("t").unwrap();
    let big = vec![1; 100_000];
    let mut stored = 0u64;
    let refused = loop {
        match table.put(&key(stored), &big) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(stored > 25, "{stored} of 100 KB in 4 MiB");
    assert!(table.remove(&key(0)).unwrap());
    table.put(&key(stored), &big).unwrap();
    for number in 1..=stored {
        assert_eq!(table.get(&key(number)).unwrap().as_ref(), Some(&big));
    }
}

#[test]
fn going_through_a_table_that_grows_meets_what_stays_once() {
    let device = memory(64);
    let (tables, _) = open(&device, Durable::AtCommit);
    let table = tables.table("t").unwrap();
    for number in 0..1000 {
        table.put(&key(number), &value(number, 0)).unwrap();
    }
    let mut met = BTreeMap::new();
    for (step, pair) in table.pairs().enumerate() {
        let (met_key, _) = pair.unwrap();
        *met.entry(met_key).or_insert(0) += 1;
        for extra in 0..4 {
            table.put(&key(10_000 + step as u64 * 4 + extra), b"new").unwrap();
        }
    }
    for number in 0..1000 {
        assert_eq!(met.get(&key(number)), Some(&1), "key {number}");
    }
}
