//! Reading ahead while opening: several threads read and decode, one takes what they made, in order.
//!
//! Invariants: `take` sees the outcomes in the order of the things asked about, whichever was faster, so what is
//! recovered does not depend on it; at most two outcomes a reader wait to be taken; with one reader everything
//! happens on the caller's thread.

use std::{sync::mpsc::sync_channel, thread};

use crate::{Daemons, Options};

/// Most threads that read: a device answers that many small reads hardly later than one.
const READERS: u64 = 8;

/// How many threads may read clusters at once: few enough that what they hold is a sixteenth of the memory, and
/// one where the caller wants no threads.
pub(super) fn readers(options: &Options) -> usize {
    match options.daemons {
        Daemons::Manual => 1,
        Daemons::Threads => (options.memory / u64::from(options.cluster) / 32).clamp(1, READERS) as usize,
    }
}

/// Calls `act` for each of `things`, on up to `readers` threads, and `take` with the outcomes in order, on this
/// one. Ends at the first error of `take`.
pub(super) fn in_order<T: Sync, R: Send, E>(
    things: &[T],
    readers: usize,
    act: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R) -> Result<(), E>,
) -> Result<(), E> {
    let readers = readers.min(things.len());
    if readers < 2 {
        return things.iter().try_for_each(|thing| take(thing, act(thing)));
    }
    thread::scope(|scope| {
        let act = &act;
        let read = |first: usize| {
            let (sender, receiver) = sync_channel(1);
            let work = move || {
                for thing in things.iter().skip(first).step_by(readers) {
                    if sender.send(act(thing)).is_err() {
                        // No more are taken: one met an error.
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, work).is_ok().then_some(receiver)
        };
        let receivers: Vec<_> = (0..readers).map(read).collect();
        for (number, thing) in things.iter().enumerate() {
            let outcome = match &receivers[number % readers] {
                Some(receiver) => receiver.recv(),
                // The system gives no more threads.
                None => Ok(act(thing)),
            };
            // A reader that panicked sends nothing more, and the panic goes on at the end of the scope.
            let Ok(outcome) = outcome else { break };
            take(thing, outcome)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_in_order_and_an_error_ends_it() {
        let things: Vec<u64> = (0..1000).collect();
        for readers in [1, 2, 8] {
            let mut seen = Vec::new();
            let slow_at_times = |thing: &u64| {
                if thing.is_multiple_of(97) {
                    thread::yield_now();
                }
                thing * 2
            };
            let all: Result<(), ()> = in_order(&things, readers, slow_at_times, |thing, twice| {
                assert_eq!(twice, thing * 2);
                seen.push(*thing);
                Ok(())
            });
            assert!(all.is_ok() && seen == things, "{readers}");
            let mut count = 0;
            let cut = in_order(&things, readers, slow_at_times, |thing, _| {
                count += 1;
                if *thing == 10 { Err("enough") } else { Ok(()) }
            });
            assert_eq!((cut, count), (Err("enough"), 11));
        }
    }
}
