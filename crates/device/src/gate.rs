//! Whether a file is still this process's to write: it is given back to others while handles on it are left.
//!
//! Invariant: when [`Gate::shut`] has returned, no write is under way, and none begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    /// Writes under way.
    writes: Mutex<usize>,
    none_left: Condvar,
}

impl Gate {
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Relaxed)
    }

    /// Begins a write, which is under way until what this returns is dropped. None: the gate is shut.
    pub(crate) fn pass(self: &Arc<Self>) -> Option<Passage> {
        let mut writes = self.writes.lock();
        if self.is_shut() {
            return None;
        }
        *writes += 1;
        Some(Passage(Arc::clone(self)))
    }

    /// Waits for the writes that are under way, and lets no other pass.
    pub(crate) fn shut(&self) {
        let mut writes = self.writes.lock();
        self.shut.store(true, Relaxed);
        while *writes > 0 {
            self.none_left.wait(&mut writes);
        }
    }
}

/// A write that is under way.
pub(crate) struct Passage(Arc<Gate>);

impl Drop for Passage {
    fn drop(&mut self) {
        let mut writes = self.0.writes.lock();
        *writes -= 1;
        if *writes == 0 {
            self.0.none_left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shuts_it_waits_for_what_is_under_way() {
        let gate = Arc::new(Gate::default());
        let (first, second) = (gate.pass().unwrap(), gate.pass().unwrap());
        let shut = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.shut();
                shut.store(true, Relaxed);
            });
            while gate.pass().is_some() {
                std::thread::yield_now();
            }
            drop(first);
            for _ in 0..10_000 {
                assert!(!shut.load(Relaxed));
                std::thread::yield_now();
            }
            drop(second);
        });
        assert!(shut.load(Relaxed) && gate.pass().is_none());
        gate.shut();
    }
}
