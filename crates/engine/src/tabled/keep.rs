//! The keeper: what rotted of the index and what a crash left is put right, and free blocks are joined, while the store
//! is in use. Politely: not within 20 ms of a get that needed the device.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::Tabled;
use crate::{Error, Result, background::daemons::is_quiet};

/// How long the keeper rests when there is nothing to do, and when somebody else needs the device.
const REST: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(5);

impl Tabled {
    /// One step, by hand: all that a crash left, or a bit of joining.
    ///
    /// # Errors
    /// The failure that stopped the tables.
    pub(crate) fn step(&self) -> Result<bool> {
        self.keep(&|| true)
    }

    /// Whether a crash's traces are gone.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.options.read_only || !self.tables.wants_mending() && !self.may_have_orphans.load(Relaxed)
    }

    fn keep(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        match self.keep_on(go_on) {
            // What was met just now is the next to be done.
            Err(Error::Damaged { .. }) if self.tables.has_damage() => Ok(true),
            kept => kept,
        }
    }

    fn keep_on(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        if let Some(failure) = self.tables.failure() {
            return Err(failure.into());
        }
        if self.shared.options.read_only {
            return Ok(false);
        }
        if self.drop_released() {
            return Ok(true);
        }
        if self.tables.has_damage() {
            // First: whatever else is to be done may need such a page.
            self.tables.rebuild_while(go_on)?;
            return Ok(true);
        }
        if self.may_have_orphans.load(Relaxed) {
            // Noted first: who meets a failure meanwhile says so again.
            self.may_have_orphans.store(false, Relaxed);
            let ended = self.drop_orphans(go_on);
            if !matches!(ended, Ok(true)) {
                self.may_have_orphans.store(true, Relaxed);
            }
            return ended.map(|_| true);
        }
        if self.tables.wants_mending() {
            self.tables.mend_while(go_on)?;
            self.account();
            return Ok(true);
        }
        Ok(self.tables.step()?)
    }

    /// The keeper's thread.
    pub(crate) fn run_keeper(self: &Arc<Self>) {
        let go_on = || {
            while !self.is_stopped() && !is_quiet(&self.shared) {
                self.rest(PAUSE);
            }
            !self.is_stopped()
        };
        while !self.is_stopped() {
            match self.keep(&go_on) {
                Ok(true) => {
                    go_on();
                }
                Ok(false) => self.rest(REST),
                // A device that failed has nothing left to do but to answer gets; what is damaged is damaged.
                Err(_) if self.tables.failure().is_some() => break,
                Err(_) => self.rest(REST * 100),
            }
        }
    }

    /// The keeper ended before its time.
    pub(crate) fn lost_keeper(&self, daemon: &'static str, why: String) {
        self.tables.stop(picaflor_table::Error::Daemon { place: self.place.clone(), daemon, why });
    }

    fn is_stopped(&self) -> bool {
        self.rest.lock().stopped
    }

    fn rest(&self, time: Duration) {
        let mut rest = self.rest.lock();
        if !rest.stopped {
            self.stirred.wait_for(&mut rest, time);
        }
    }

    pub(crate) fn stop(&self) {
        self.rest.lock().stopped = true;
        self.stirred.notify_all();
    }
}
