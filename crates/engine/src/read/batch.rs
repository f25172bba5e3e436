//! Reads that wait for each other and are issued together, so that the arm leaves the stream of writes once for many
//! (Markatos et al. 1999, §3.6).
//!
//! A batch is issued when it is full, or when its first read has waited for as long as the options allow. With daemons
//! the flusher sees to that, and a caller that waits on a thread of its own sees to it too. With
//! [`Daemons::Manual`] the caller's thread is the only one there is: a get that
//! would block it issues the batch at once, with all the asynchronous reads that wait; `step` issues one that is due.

use std::{sync::Arc, time::Duration};

use picaflor_device::Request;

use crate::{
    Daemons,
    read::parts::Parts,
    read::reading::{InFlight, Outcome},
};

pub(crate) struct ReadBatch {
    parts: Parts,
}

impl ReadBatch {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { parts: parts.clone() }
    }

    /// Adds a read to the batch.
    pub(crate) fn hold_read(&self, request: Request) {
        let options = &self.parts.shared.options;
        let wait = u64::try_from(options.read_batch_time.as_nanos()).unwrap_or(u64::MAX);
        let held = self.parts.residents.reader.hold(request, self.parts.shared.clock.now_nanos().saturating_add(wait));
        // Once writing has stopped, no daemon looks after batches.
        if held >= options.read_batch || self.parts.log.commits.failure().is_some() {
            self.issue_reads();
        } else if held == 1 {
            // The flusher is to know how long it may sleep.
            self.parts.log.queue.wake_flusher();
        }
    }

    /// Issues what waits.
    pub(crate) fn issue_reads(&self) {
        let batch = self.parts.residents.reader.release();
        if !batch.is_empty() {
            self.parts.medium.device.submit(batch);
        }
    }

    /// Issues the batch if it has waited for long enough. Returns whether it had.
    pub(crate) fn issue_due_reads(&self) -> bool {
        let due = self.parts.residents.reader.due() <= self.parts.shared.clock.now_nanos();
        if due {
            self.issue_reads();
        }
        due
    }

    /// Longest time until the batch is due.
    pub(crate) fn until_reads_are_due(&self) -> Duration {
        Duration::from_nanos(self.parts.residents.reader.due().saturating_sub(self.parts.shared.clock.now_nanos()))
    }

    /// Waits for a read that is in the batch, or was in one.
    pub(crate) fn wait_in_batch(&self, flight: &Arc<InFlight>) -> Outcome {
        if self.parts.shared.options.daemons == Daemons::Manual {
            self.issue_reads();
            return flight.wait(self.parts.medium.device.as_ref());
        }
        loop {
            let time = self.until_reads_are_due().min(Duration::from_millis(100));
            if let Some(outcome) = flight.wait_for(time) {
                return outcome;
            }
            self.issue_due_reads();
        }
    }
}
