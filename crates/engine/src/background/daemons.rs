//! The daemons: flusher, reclaimer, and keeper (checkpoints, then warming and scrubbing).
//!
//! Each is a `step` that anyone may call; the only threads of the engine are made here. Simulators and
//! the torture harness call [`Volume::step_all`] instead, on one thread.
//!
//! A daemon that panics is not begun again, however small its steps are: its locks are open again behind it, and what
//! they guard may be half changed, which no later step could tell. What is on the device recovery can judge, and it is
//! tested at every point. So the volume stops writing, as when its device fails: puts, and callers that wait, are told
//! why, gets go on, and the next opening recovers.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_common::panics;

use crate::{
    Daemons, Error, Result, base::layout::Layout, base::stats::add, log::flush_queue::Woken, recovery::Deferred,
    shared::Shared, volume::Volume,
};

/// The threads of one store.
pub(crate) struct Threads {
    volumes: Vec<Arc<Volume>>,
    layout: Option<Arc<dyn Layout>>,
    handles: Mutex<Option<Vec<JoinHandle<()>>>>,
}

type Daemon = fn(&Arc<Volume>);

/// How long the scrubber keeps still after a get needed the device.
const POLITENESS: Duration = Duration::from_millis(20);

impl Threads {
    /// Starts the daemons of every volume, or the keeper of the tables, unless the caller is to step them. Those of
    /// volumes begin by ending the opening.
    ///
    /// # Errors
    /// [`Error::Io`] if one of them cannot be had: puts would wait for it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        volumes: &[Arc<Volume>],
        layout: Option<&Arc<dyn Layout>>,
        deferred: &Arc<Deferred>,
    ) -> Result<Self> {
        let threads = Self { volumes: volumes.to_vec(), layout: layout.cloned(), handles: Mutex::default() };
        let mut handles = Vec::new();
        let begun = Self::spawn(shared, volumes, layout, deferred, &mut handles);
        *threads.handles.lock() = Some(handles);
        if let Err(error) = begun {
            threads.stop();
            return Err(Error::io("starting the store's threads, or open it with Daemons::Manual", error));
        }
        Ok(threads)
    }

    fn spawn(
        shared: &Arc<Shared>,
        volumes: &[Arc<Volume>],
        layout: Option<&Arc<dyn Layout>>,
        deferred: &Arc<Deferred>,
        handles: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<()> {
        if shared.options.daemons == Daemons::Threads {
            let all: [(&'static str, Daemon); 3] = [("keeper", keeper), ("flusher", flusher), ("reclaimer", reclaimer)];
            // A store that may not write needs only the one that reads.
            let daemons = if shared.options.read_only { &all[..1] } else { &all };
            for volume in volumes {
                for (name, run) in daemons {
                    let (volume, deferred, name, run) = (Arc::clone(volume), Arc::clone(deferred), *name, *run);
                    let thread = std::thread::Builder::new().name(format!("picaflor-{name}"));
                    handles.push(thread.spawn(move || {
                        let whole = || {
                            deferred.end();
                            run(&volume);
                        };
                        watch(&volume.shared, name, whole, |why| {
                            volume.log.stop(Error::Daemon { place: volume.medium.place.clone(), daemon: name, why });
                        });
                    })?);
                }
            }
            if let Some(layout) = layout.filter(|_| !shared.options.read_only) {
                let (layout, shared) = (Arc::clone(layout), Arc::clone(shared));
                let thread = std::thread::Builder::new().name("picaflor-keeper".into());
                handles.push(thread.spawn(move || {
                    watch(&shared, "keeper", || layout.run_keeper(), |why| layout.lost_keeper(why));
                })?);
            }
        }
        Ok(())
    }

    /// Stops and joins the threads. False if that was done before.
    pub(crate) fn stop(&self) -> bool {
        let Some(handles) = self.handles.lock().take() else { return false };
        for volume in &self.volumes {
            volume.log.queue.stop();
            volume.room.reclaimer.state.wake();
        }
        self.layout.iter().for_each(|layout| layout.stop());
        for handle in handles {
            // A panic was caught, and told of.
            let _ = handle.join();
        }
        true
    }
}

/// Runs a daemon to its end; if that is a panic, it is counted and `stop` is told of it.
fn watch(shared: &Shared, daemon: &'static str, run: impl FnOnce(), stop: impl FnOnce(String)) {
    panics::watch(daemon, run, |why| {
        add(&shared.counters.daemons_ended, 1);
        stop(why);
    });
}

impl Volume {
    /// Runs one step of each daemon. Returns whether there was anything to do.
    pub(crate) fn step_all(self: &Arc<Self>) -> Result<bool> {
        if let Some(failure) = self.log.commits.failure() {
            return Err(failure);
        }
        if self.shared.options.read_only {
            return Ok(self.batch.issue_due_reads() | self.scrubber.step());
        }
        let issued = self.batch.issue_due_reads();
        // What finds no buffer finds one when those before it are written.
        let mut packed = false;
        while self.packer.pack_step(true)? {
            packed = true;
            self.committer.write_queued(true);
        }
        self.committer.write_queued(true);
        let committed = self.room.commit_if_due()?;
        let reclaimed = self.room.reclaim_step()?;
        let checkpointed = self.room.checkpoint_step()?;
        let released = self.frames.drop_released();
        Ok(self.scrubber.step() | released | issued | committed | packed | reclaimed | checkpointed)
    }
}

/// A failed volume has nothing left to do but to answer gets; its failure is in the statistics.
fn running(volume: &Volume) -> bool {
    volume.log.commits.failure().is_none()
}

fn flusher(volume: &Arc<Volume>) {
    while running(volume) {
        let most = volume.batch.until_reads_are_due().min(Duration::from_millis(100));
        let woken = volume.log.queue.rest(&volume.shared.clock, most);
        volume.batch.issue_due_reads();
        // They have no clock of their own.
        volume.log.queue.wake_tasks();
        match woken {
            Woken::Stop => break,
            Woken::Work => volume.committer.write_queued(false),
            Woken::Time => {}
        }
        if volume.room.commit_if_due().is_err() {
            volume.log.commit_later();
        }
    }
    volume.batch.issue_reads();
}

fn reclaimer(volume: &Arc<Volume>) {
    let mut next = 0;
    while running(volume) && !volume.log.queue.is_stopped() {
        // The keeper would be deferred: a checkpoint takes seconds.
        volume.shared.give_back_freed(&mut next);
        // It also packs what waits, ahead of the put that would have to.
        let packed = matches!(volume.packer.pack_step(is_quiet(&volume.shared)), Ok(true));
        let reclaimed = matches!(volume.room.reclaim_step(), Ok(true));
        if reclaimed {
            volume.log.queue.wake_tasks();
        } else if !packed && !volume.room.reclaimer.state.rest(Duration::from_millis(20)) {
            volume.room.reclaimer.forget_ahead();
        }
    }
}

/// Whether no get needed the device for a while.
pub(crate) fn is_quiet(shared: &Shared) -> bool {
    shared.clock.now_nanos().saturating_sub(shared.last_read.load(Relaxed)) > POLITENESS.as_nanos() as u64
}

fn keeper(volume: &Arc<Volume>) {
    while running(volume) && !volume.log.queue.is_stopped() {
        let shared = &volume.shared;
        if shared.options.read_only {
            // There is no flusher.
            volume.batch.issue_due_reads();
        }
        volume.frames.drop_released();
        let began = shared.clock.now_nanos();
        let worked = !shared.options.read_only && matches!(volume.room.checkpoint_step(), Ok(true));
        if worked && !is_quiet(shared) {
            // Gets that need the device and a processor have both half of the time.
            std::thread::sleep(Duration::from_nanos(shared.clock.now_nanos() - began).min(POLITENESS));
        }
        let presses = volume.scrubber.is_warming() || volume.scrubber.recovers_in_steps();
        let quiet = is_quiet(shared);
        let more = !volume.scrubber.is_done() && (quiet || presses) && volume.scrubber.step();
        // Where puts wait for it, it goes on beside gets, but leaves them room.
        let more = more && (quiet || volume.scrubber.is_warming());
        if !worked && !more {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    volume.batch.issue_reads();
}
