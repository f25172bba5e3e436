//! `kill -9` of real processes under load, on real files: what was acknowledged as durable is there afterwards.
//!
//! The test binary starts itself as a child, which writes to a store and acknowledges on its standard output;
//! the parent kills it at some moment, opens the store and compares every key.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use picaflor::{Durability, Error, Mode, Options, Store};
use picaflor_torture::{Dice, bytes_of};

const CHILD: &str = "PICAFLOR_TORTURE_CHILD";
const KEYS: u64 = 300;
const ROUNDS: u64 = 50;

/// The last part of a store's path says its preset.
fn options(path: &Path, mode: Mode, durability: Durability) -> Options {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap();
    let preset = name.split('.').next().unwrap();
    let mut options = picaflor_literature::preset(preset)
        .unwrap()
        .place(path)
        .capacity(32 << 20)
        .memory(4 << 20)
        .mode(mode)
        .durability(durability);
    options.cluster = 64 << 10;
    // One reader waits for no other.
    options.read_batch_time = Duration::from_millis(1);
    options
}

fn durabilities() -> [Durability; 4] {
    let bounded = Durability::Bounded { time: Duration::from_millis(5), puts: 20 };
    [Durability::EveryPut, bounded, Durability::default(), Durability::None]
}

fn key(key: u64) -> Vec<u8> {
    format!("http://example.org/{key}").into_bytes()
}

fn body(id: u64) -> Vec<u8> {
    let mut body = id.to_le_bytes().to_vec();
    let len = Dice::new(id, 9).scaled(1, 30_000) as usize;
    body.extend(bytes_of(id, len));
    body
}

/// The child: puts, deletes and flushes until it is killed. One line for each thing done, `f` for a flush.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let parts: Vec<&str> = what.split(' ').collect();
    let (mode, durability) = mode_of(parts[1].parse().unwrap());
    let first: u64 = parts[2].parse().unwrap();
    let store = open(Path::new(parts[0]), mode, durability);
    let mut out = std::io::stdout().lock();
    let mut dice = Dice::new(first, 1);
    // Apart from what the test harness writes before it.
    writeln!(out).unwrap();
    for id in first.. {
        let at = dice.below(KEYS);
        let line = match dice.below(20) {
            0 => {
                store.flush().unwrap();
                "f".to_owned()
            }
            1 | 2 => {
                writeln!(out, "< d {at} {id}").unwrap();
                store.delete(&key(at)).unwrap();
                format!("> d {at} {id}")
            }
            _ => {
                writeln!(out, "< p {at} {id}").unwrap();
                store.put(&key(at), &body(id)).unwrap();
                format!("> p {at} {id}")
            }
        };
        writeln!(out, "{line}").unwrap();
        out.flush().unwrap();
    }
}

fn mode_of(round: u64) -> (Mode, Durability) {
    let mode = if round.is_multiple_of(2) { Mode::Store } else { Mode::Cache };
    (mode, durabilities()[(round / 2 % 4) as usize])
}

fn start(path: &Path, round: u64, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{} {round} {first}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Opens the store once the kernel has let go of what the killed process had open.
fn open(path: &Path, mode: Mode, durability: Durability) -> Store {
    for _ in 0..500 {
        match Store::open(options(path, mode, durability)) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("the file of a killed process stays locked");
}

/// What is durable when it returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    Nothing,
    Puts,
    /// Deletes, too, whatever was asked for, and no object ever leaves.
    All,
}

fn promise_of(preset: &str, durability: Durability) -> Promise {
    match durability {
        _ if preset.starts_with("pmflf") || preset == "oba" => Promise::All,
        Durability::EveryPut => Promise::Puts,
        _ => Promise::Nothing,
    }
}

/// Whether a version must be there though the cache may drop things and the bound may cost some: it was put 60 steps
/// before the last one, three times what a bound of 20 puts may cost, and not so long ago that its place was needed.
fn is_due(newest: u64, last: u64, durability: Durability) -> bool {
    let bounded = matches!(durability, Durability::EveryPut | Durability::Bounded { puts: 20, .. });
    bounded && newest != 0 && (newest + 60..newest + 300).contains(&last)
}

/// What a key may hold: the versions begun since the newest durable one, that one first. 0 is nothing.
type Truth = HashMap<u64, Vec<u64>>;

/// Reads what the child said, and what that means for each key.
fn listen(child: &mut Child, until: Duration, promise: Promise, truth: &mut Truth) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(tell.send(line))));
    let mut all = Vec::new();
    // The clock starts with the first word: before that it was opening.
    while let Ok(line) = told.recv_timeout(Duration::from_secs(20)) {
        let begun = line.starts_with('<') || line == "f";
        all.push(line);
        if begun {
            std::thread::sleep(until);
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    all.extend(told.iter());
    let mut last = 0;
    for line in all {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["f"] => truth.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1))),
            ["<", what, at, id] => {
                last = id.parse().unwrap();
                let value = if what == "p" { last } else { 0 };
                truth.entry(at.parse().unwrap()).or_insert_with(|| vec![0]).push(value);
            }
            [">", what, at, _] if promise == Promise::All || what == "p" && promise == Promise::Puts => {
                let versions = truth.get_mut(&at.parse().unwrap()).unwrap();
                versions.drain(..versions.len() - 1);
            }
            _ => {}
        }
    }
    last
}

#[test]
fn fifty_processes_are_killed_and_lose_nothing_durable() {
    let (did, due) = killed("picaflor", ROUNDS);
    assert!(did > 1000 && due > 200, "the children did {did} things, of which {due} had to be there in a cache too");
}

#[test]
fn no_preset_loses_anything_durable_when_it_is_killed() {
    for preset in picaflor_literature::presets().skip(1) {
        assert!(killed(preset, 4).0 > 10, "{preset}: the children did something");
    }
}

/// Kills so many processes that write to stores of a preset, one after the other. Returns how much they did, and how
/// many versions had to be there whatever the mode.
fn killed(preset: &str, rounds: u64) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let (mut ids, mut due, mut missing) = (1, 0, 0);
    let mut truths: HashMap<bool, Truth> = HashMap::new();
    for round in 0..rounds {
        let (mode, durability) = mode_of(round);
        let path = folder.path().join(format!("{preset}.{mode:?}"));
        let truth = truths.entry(mode == Mode::Store).or_default();
        let mut child = start(&path, round, ids);
        let until = Duration::from_millis(10 + round * 37 % 190);
        let promise = promise_of(preset, durability);
        let last = listen(&mut child, until, promise, truth);
        ids = last.max(ids) + 1;
        let store = open(&path, mode, durability);
        for (at, versions) in truth.iter_mut() {
            let seen = store.get(&key(*at)).unwrap().map(|object| object.body().unwrap());
            let id = seen.as_ref().map_or(0, |body| u64::from_le_bytes(body[..8].try_into().unwrap()));
            if let Some(seen) = &seen {
                assert!(*seen == body(id), "{preset}, round {round}: key {at} has other bytes than were put");
            }
            let may_be_gone = mode == Mode::Cache && id == 0 && promise != Promise::All;
            let receipt = store.receipt();
            assert!(
                versions.contains(&id) || may_be_gone,
                "{preset}, round {round}: key {at} is {id}, not {versions:?}\n{receipt}"
            );
            let newest = versions.last().copied().unwrap_or(0);
            if preset == "picaflor" && is_due(newest, last, durability) {
                let as_put = id == newest || id == 0 && mode == Mode::Cache;
                assert!(as_put, "{mode:?}, {durability:?}, round {round}: key {at} is {id}, not {newest}");
                due += 1;
                missing += u64::from(id == 0);
            }
            if !may_be_gone {
                *versions = vec![id];
            }
        }
        // Every other time the store is left as a crash would leave it.
        if round % 4 < 2 {
            store.close().unwrap();
        }
    }
    // A cache gives an object's place in the index to another key once in a while, and no more than that.
    assert!(missing * 20 <= due, "{preset}: {missing} of {due} are not there");
    (ids, due)
}
