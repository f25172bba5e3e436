//! Memory as the kernel counts it, held to what the user gave: what the allocator keeps beyond what was asked, and
//! what connections take, comes out of the store's.
//!
//! Steps, four times a second: what is resident → what of it is over the aim, a little below the bound, is reserved in
//! the store, whose tier makes room for it → pages that came free go back to the system. What is not needed any more is
//! given back slowly.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use picaflor::device::give_back_freed;

use crate::proxy::Proxy;

const PERIOD: Duration = Duration::from_millis(250);
/// What a process takes that does nothing; its own text is most of it.
const IDLE: u64 = 16 << 20;
/// What a connection takes beside.
const CONNECTION: u64 = 6 << 10;

/// Bytes that may be resident for this cap and so many connections.
fn bound(cap: u64, connections: u64) -> u64 {
    cap + cap / 10 + IDLE + connections * CONNECTION
}

/// What to reserve when so much is over the aim (or below it), and so much is reserved.
fn reserved(cap: u64, now: u64, over: i64) -> u64 {
    match u64::try_from(over) {
        // Not all of what is reserved comes free: so more and more, while it is over.
        Ok(over) => (now + over).min(cap / 2),
        // Back in some eight seconds, and not sooner, or it would swing.
        Err(_) => now - (now / 32).min(over.unsigned_abs() / 4),
    }
}

/// Bytes that are resident; none where the kernel does not say.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Keeps the process within its bound, for as long as it is polled.
pub(crate) async fn keep(proxy: Arc<Proxy>) {
    let cap = proxy.config.store.memory.0;
    let margin = (2 << 20) + cap / 32;
    let (mut reserve, mut bytes, mut next) = (proxy.store.reserve(), 0, Instant::now());
    while let Some(resident) = resident() {
        let aim = bound(cap, proxy.connections.count() as u64) - margin;
        let over = resident as i64 - aim as i64;
        bytes = reserved(cap, bytes, over);
        reserve.set(bytes);
        let now = Instant::now();
        if over > 0 && now >= next {
            give_back_freed();
            // It holds the allocator up: for a twentieth of the time at most.
            next = now + 20 * now.elapsed();
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 64 << 20;

    #[test]
    fn what_is_over_is_reserved_until_it_is_not_over_and_then_let_go() {
        // A process of which one byte in three that is reserved comes free.
        let (mut bytes, other) = (0, 9 << 20);
        let mut over = vec![];
        for _ in 0..200 {
            over.push(other - (bytes / 3) as i64);
            bytes = reserved(CAP, bytes, over[over.len() - 1]);
        }
        assert!(over[30..].iter().all(|over| over.abs() < 256 << 10), "{over:?}");
        for _ in 0..400 {
            bytes = reserved(CAP, bytes, -(20 << 20));
        }
        assert!(bytes < 4 << 10, "{bytes}");
    }

    #[test]
    fn the_store_keeps_half_of_its_memory() {
        assert_eq!(reserved(CAP, CAP / 2 - 5, 1 << 30), CAP / 2);
    }

    #[test]
    fn the_kernel_says_what_is_resident() {
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20));
    }
}
