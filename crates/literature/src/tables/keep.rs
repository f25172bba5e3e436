//! The keeper: what rotted of the index and what a crash left is put right, and free blocks are joined, while the store
//! is in use. Politely: not within 20 ms of a get that needed the device.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use picaflor::{Error, Result};

use super::{TableLayout, error::of_table};

/// How long the keeper rests when there is nothing to do, and when another caller needs the device.
const REST: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(5);

impl TableLayout {
    /// One step: all that a crash left, or a bit of joining. Ends early if `go_on` says so.
    ///
    /// # Errors
    /// The failure that stopped the tables.
    pub(super) fn keep(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        match self.keep_on(go_on) {
            // What was met just now is the next to be done.
            Err(Error::Damaged { .. }) if self.tables.has_damage() => Ok(true),
            kept => kept,
        }
    }

    fn keep_on(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        if let Some(failure) = self.tables.failure() {
            return Err(of_table(failure));
        }
        if self.env.read_only() {
            return Ok(false);
        }
        if self.drop_released() {
            return Ok(true);
        }
        if self.tables.has_damage() {
            // First: whatever else is to be done may need such a page.
            self.tables.rebuild_while(go_on).map_err(of_table)?;
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
            self.tables.mend_while(go_on).map_err(of_table)?;
            self.account();
            return Ok(true);
        }
        self.tables.step().map_err(of_table)
    }

    /// The keeper's thread.
    pub(super) fn keep_until_stopped(&self) {
        let go_on = || {
            while !self.is_stopped() && !self.env.is_quiet() {
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

    fn is_stopped(&self) -> bool {
        self.rest.lock().stopped
    }

    fn rest(&self, time: Duration) {
        let mut rest = self.rest.lock();
        if !rest.stopped {
            self.stirred.wait_for(&mut rest, time);
        }
    }
}
