//! Group commit: what was appended before a commit began is durable when its waiters go on, threads and tasks alike.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use super::{
    draw, finds, holds,
    shuttle::{future::block_on, thread},
};
use picaflor_common::{Commits, Turn};

use crate::Error;

/// A log of numbers, on a device that keeps what a sync covers.
#[derive(Default)]
struct Log {
    commits: Commits<Error>,
    appended: AtomicU64,
    durable: AtomicU64,
    over: AtomicBool,
}

impl Log {
    /// Appends, and says which commit covers it. The fault: it asks first, and appends then.
    fn append(&self, fault: bool) -> (u64, u64) {
        let before = fault.then(|| self.commits.next());
        thread::yield_now();
        let own = self.appended.fetch_add(1, SeqCst) + 1;
        thread::yield_now();
        (own, before.unwrap_or_else(|| self.commits.next()))
    }

    /// Waits as a thread does, and leads if it is its turn. True if what was waited for is durable.
    fn wait(&self, number: u64) -> bool {
        loop {
            match self.commits.wait(number) {
                Ok(Turn::Durable) => return true,
                Ok(Turn::Lead(led)) => {
                    let covered = self.appended.load(SeqCst);
                    thread::yield_now();
                    let refused = draw(0..4) == 0;
                    let result = if refused {
                        Err(Error::JournalFull { place: "the model".into() })
                    } else {
                        self.durable.fetch_max(covered, SeqCst);
                        Ok(())
                    };
                    self.commits.complete(led, result, Duration::from_micros(draw(0..50)));
                }
                Err(Error::JournalFull { .. }) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn check(&self, own: u64) {
        let durable = self.durable.load(SeqCst);
        assert!(durable >= own, "told durable, and is not: {own}, with {durable} on the device");
    }

    fn thread(&self, fault: bool) {
        for _ in 0..3 {
            let (own, number) = self.append(fault);
            if self.wait(number) {
                self.check(own);
            }
        }
    }

    fn task(&self) {
        for _ in 0..2 {
            let (own, number) = self.append(false);
            let mut counted = false;
            let wait = poll_fn(|context| match self.commits.poll(number, &mut counted, context.waker()) {
                Some(outcome) => Poll::Ready(outcome.is_ok()),
                None => Poll::Pending,
            });
            if block_on(wait) {
                self.check(own);
            }
        }
    }
}

fn model(fault: bool) {
    let log = Arc::new(Log::default());
    let spawn = |act: fn(&Log, bool)| {
        let log = Arc::clone(&log);
        thread::spawn(move || act(&log, fault))
    };
    // Tasks do not lead; in the engine a daemon does when they are due.
    let keeper = spawn(|log, _| {
        while !log.over.load(SeqCst) {
            log.wait(log.commits.next());
            thread::yield_now();
        }
    });
    let workers = [spawn(Log::thread), spawn(Log::thread), spawn(|log, _| log.task())];
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    log.over.store(true, SeqCst);
    keeper.join().unwrap();
}

#[test]
fn commits() {
    holds("commits", || model(false));
}

#[test]
fn canary_commits() {
    finds("canary_commits", "told durable", || model(true));
}
