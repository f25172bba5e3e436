//! What a peer is asked to do, in a process of its own: the same puts and deletes for the same seed, so that
//! the seed and how many were acknowledged say what has to be there. `diskcache_peer.py` does the same.

use std::{
    hint::black_box,
    io::Write,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, bail, ensure};
use bench_common::usage::{Usage, anonymous_memory};

use crate::peers::{self, Peer, Settings};

/// Keys that are put and deleted.
pub(crate) const KEYS: u64 = 300;

/// One change.
pub(crate) struct Change {
    pub(crate) key: u64,
    /// Bytes of the body, none for a delete.
    pub(crate) put: Option<usize>,
}

/// `splitmix64`.
fn mix(number: u64) -> u64 {
    let a = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    c ^ (c >> 31)
}

/// The change with this number: a fifth are deletes, one put in fifty is large.
pub(crate) fn change(seed: u64, number: u64) -> Change {
    let random = mix(mix(seed).wrapping_add(number));
    let len = if (random >> 40).is_multiple_of(50) { 100_000 } else { 64 + (random >> 16) as usize % 2000 * 8 };
    Change { key: random % KEYS, put: (!(random >> 32).is_multiple_of(5)).then_some(len) }
}

/// The body of a put: its number, its key, and a word of its own again and again.
fn body(seed: u64, number: u64, key: u64, len: usize) -> Vec<u8> {
    let word = mix(seed ^ mix(number)).to_le_bytes();
    let mut body = Vec::with_capacity(len);
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(&key.to_le_bytes());
    while body.len() < len {
        body.extend_from_slice(&word);
    }
    body
}

/// The number of the put that made this body, if it is one of this key, byte by byte.
fn number_of(seed: u64, key: u64, found: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*found.first_chunk()?);
    let change = change(seed, number);
    let is_true = change.key == key && change.put.is_some_and(|len| body(seed, number, key, len) == found);
    is_true.then_some(number)
}

fn name(key: u64) -> String {
    format!("object/{key}")
}

/// Microseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// What the other process is told to do: `PEER MODE FOLDER SYNC MEMORY CAPACITY NUMBER`.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [peer, mode, folder, sync, memory, capacity, number] = arguments else { bail!("a child has 7 arguments") };
    let number = number.parse()?;
    let settings = Settings {
        folder: folder.into(),
        sync: sync == "sync",
        bulk: matches!(mode.as_str(), "memory" | "hot" | "load"),
        memory: memory.parse()?,
        capacity: capacity.parse()?,
    };
    let begin = Instant::now();
    let peer = peers::open(peer, &settings)?;
    match mode.as_str() {
        "work" => work(&*peer, number),
        "judge" => judge(&*peer, number, begin),
        "memory" => memory_of(&*peer, number),
        "hot" => hot(&*peer, number),
        "load" => load(peer, number),
        "cold" => cold(&*peer, number),
        _ => bail!("no mode is named {mode}"),
    }
}

/// Tells of each acknowledged change its number and the time, as 16 bytes; first of the opening. Ends by a kill.
fn work(peer: &dyn Peer, seed: u64) -> Result<()> {
    let mut out = std::io::stdout();
    let mut tell = |number: u64| {
        out.write_all(&[number.to_le_bytes(), now().to_le_bytes()].concat())?;
        out.flush()
    };
    tell(u64::MAX)?;
    for number in 0.. {
        let Change { key, put } = change(seed, number);
        match put {
            Some(len) => peer.put(&name(key), &body(seed, number, key, len))?,
            None => peer.delete(&name(key))?,
        }
        tell(number)?;
    }
    Ok(())
}

/// Says how long the opening took, and of each key what is there: the number of its put, `-` for nothing, `?` for bytes
/// that were never put, `!` for an error. Then it ends at once: how a peer closes is not judged.
fn judge(peer: &dyn Peer, seed: u64, begin: Instant) -> Result<()> {
    println!("{}", begin.elapsed().as_micros());
    for key in 0..KEYS {
        let mut seen = None;
        let found = peer.get(&name(key), &mut |body| seen = Some(number_of(seed, key, body)));
        match (found, seen) {
            (Err(error), _) => {
                eprintln!("{}: {error:#}", name(key));
                println!("!");
            }
            (Ok(_), None) => println!("-"),
            (Ok(_), Some(None)) => println!("?"),
            (Ok(_), Some(Some(number))) => println!("{number}"),
        }
    }
    std::process::exit(0)
}

const SMALL: usize = 512;
const PAGE: usize = 4096;

/// Puts so many objects and says how much memory the process has that is in no file.
fn memory_of(peer: &dyn Peer, objects: u64) -> Result<()> {
    for number in 0..objects {
        peer.put(&name(number), &body(1, number, number, SMALL))?;
    }
    for number in 0..20_000 {
        peer.get(&name(mix(number) % objects), &mut |body| {
            black_box(body);
        })?;
    }
    println!("{}", anonymous_memory());
    Ok(())
}

/// Asks for these objects and prints p50, p99, p99.9 in microseconds, the processor's time a get, and misses.
fn tails(peer: &dyn Peer, asked: impl Iterator<Item = u64>) -> Result<()> {
    let (mut times, mut misses, before) = (Vec::new(), 0, Usage::now());
    for number in asked {
        let (name, mut seen) = (name(number), 0);
        let begin = Instant::now();
        peer.get(&name, &mut |body| seen = black_box(body).len())?;
        times.push(begin.elapsed());
        misses += u64::from(seen != PAGE);
    }
    let used = before.until_now().cpu * 1e6 / times.len() as f64;
    times.sort_unstable();
    let at = |part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{:.2} {:.2} {:.2} {used:.2} {misses}", at(0.5), at(0.99), at(0.999));
    Ok(())
}

/// Gets of a thousand objects that every cache here holds.
fn hot(peer: &dyn Peer, gets: u64) -> Result<()> {
    for number in 0..1000 {
        peer.put(&name(number), &body(1, number, number, PAGE))?;
    }
    for number in 0..1000 {
        peer.get(&name(number), &mut |_| {})?;
    }
    tails(peer, (0..gets).map(|number| mix(number) % 1000))
}

fn load(peer: Box<dyn Peer>, objects: u64) -> Result<()> {
    for number in 0..objects {
        peer.put(&name(number), &body(1, number, number, PAGE))?;
    }
    peer.close()
}

/// Gets of objects that are in no memory, the kernel's included, one in four of all.
fn cold(peer: &dyn Peer, objects: u64) -> Result<()> {
    ensure!(objects.is_power_of_two(), "a power of two");
    // An odd step meets each object once.
    tails(peer, (0..objects / 4).map(|number| number.wrapping_mul(0x9E37_79B9) % objects))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_for_what_it_is_and_only_whole() {
        for number in 0..2000 {
            let Change { key, put } = change(7, number);
            let Some(len) = put else { continue };
            let made = body(7, number, key, len);
            assert_eq!((made.len(), number_of(7, key, &made)), (len, Some(number)));
            let mut broken = made.clone();
            broken[len - 1] ^= 1;
            assert_eq!(number_of(7, key, &broken), None);
            assert_eq!(number_of(7, key, &made[..len - 8]), None);
            assert_eq!(number_of(7, (key + 1) % KEYS, &made), None);
        }
    }
}
