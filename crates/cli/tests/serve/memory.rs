//! What the process has of the allocator.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use crate::kit::{Origin, Serve, noise, ok};

/// Where the allocator's arenas for threads begin, and what they reserve.
const ARENA: u64 = 64 << 20;

/// Arenas in this list of mappings: each begins with what is in use of it, and behind that is what it reserved.
fn arenas(maps: &str) -> usize {
    let lines: Vec<_> = maps
        .lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?, rest))
        })
        .collect();
    let is_one = |pair: &&[(u64, u64, &str)]| {
        let (used, reserved) = (pair[0], pair[1]);
        used.0 % ARENA == 0
            && used.1 == reserved.0
            && reserved.1 == used.0 + ARENA
            && used.2.starts_with("rw-p")
            && reserved.2.starts_with("---p")
    };
    lines.windows(2).filter(is_one).count()
}

#[test]
fn its_threads_share_what_the_allocator_keeps() {
    let body = noise(1 << 20);
    let origin = Origin::start(move |_| ok("cache-control: max-age=3600", &body));
    let folder = tempfile::tempdir().unwrap();
    // With one worker: the first thread's, and one for all others.
    let serve = Serve::start(folder.path(), origin.address, &["--capacity", "128MiB"]);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let serve = &serve;
            scope.spawn(move || (0..8).for_each(|n| drop(serve.get(&format!("/{client}/{n}")))));
        }
    });
    assert_eq!(arenas(&serve.maps()), 1);
}
