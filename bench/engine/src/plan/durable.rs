//! The table of what cannot be fetched again: every put and delete is durable when it returns, for all of them alike.

use std::path::Path;

use anyhow::Result;
use bench_common::limit::MemoryLimit;

use super::{Bench, DEVICE, LEAST_CAPACITY, clear, spawn, wait_for};
use crate::work::{By, Work, durable::Verb, reopen::READY};

pub(super) const OURS: &str = "picaflor-htod";

/// Bytes of index that ours needs for a key: the measure of what all are given where 5% of it is to be in memory.
const INDEX_PER_KEY: u64 = 46;
/// What a process takes before it has done anything, in MiB: most of it are the bodies.
const BASE: u64 = 44;
/// Storage age at which space is compared, and the part of the objects that it takes to reach it in time.
const AGE: f64 = 10.0;
const CHURNED: u64 = 80;

impl Bench<'_> {
    /// What the device can do of this, measured in the same round.
    pub(super) fn durable_ceilings(&mut self, round: usize) -> Result<()> {
        let Some(fio) = self.fio.as_ref().filter(|_| self.arguments.wants("put")) else { return Ok(()) };
        for writers in [1, 8] {
            let figures = fio.durable(writers)?;
            self.report.add(&puts(writers), DEVICE, round, &figures);
        }
        Ok(())
    }

    /// Every work wanted, on one engine.
    pub(super) fn one_durable(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let wants = |work| self.arguments.wants(work);
        if wants("put") {
            for writers in [1, 8] {
                self.durable_puts(engine, folder, round, writers, true)?;
                if engine == OURS {
                    self.durable_puts(engine, folder, round, writers, false)?;
                }
            }
        }
        if ["reopen", "get", "delete"].into_iter().any(wants) {
            self.on_killed(engine, folder, round)?;
        }
        if wants("churn") {
            clear(folder)?;
            let mut job = self.durable_job(engine, folder, Work::Load);
            job.objects = (self.arguments.objects / CHURNED).max(100);
            (job.config.durable, job.config.commit_every) = (false, 1000);
            self.figures(&job)?;
            job.work = Work::Churn { age: AGE };
            (job.config.durable, job.config.commit_every) = (true, 1);
            self.measure("space after churn to age 10", &job, round)?;
        }
        Ok(())
    }

    /// `written`: ours has written its file once, as SQLite has its log and a file that was in use for a while; else
    /// each block's first write is noted by the file system, as in the files of the others that grow.
    fn durable_puts(&mut self, engine: &str, folder: &Path, round: usize, writers: usize, written: bool) -> Result<()> {
        clear(folder)?;
        let mut job = self.durable_job(engine, folder, Work::Durable { writers, verb: Verb::Put });
        job.config.written = written;
        let mut name = puts(writers);
        if !written {
            name += ", blocks only reserved";
        }
        self.measure(&name, &job, round)
    }

    /// What is found after `kill -9`: how soon, got with little of the index in memory, and deleted.
    fn on_killed(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let wants = |work| self.arguments.wants(work);
        clear(folder)?;
        let mut job = self.durable_job(engine, folder, Work::Wait);
        (job.config.durable, job.config.commit_every) = (false, 1000);
        let mut child = spawn(&job)?;
        let filled = wait_for(&mut child, READY);
        child.kill()?;
        child.wait()?;
        filled?;
        (job.config.durable, job.config.commit_every) = (true, 1);
        if wants("reopen") {
            job.work = Work::Reopen;
            self.measure("reopen after kill -9", &job, round)?;
        }
        if wants("get") {
            let part = job.objects * INDEX_PER_KEY / 20;
            // Page cache included: what a peer leaves to the kernel is no more than what it is given.
            let room = (BASE << 20) + part.max(1 << 20);
            let limit = MemoryLimit::new(&format!("bench-engine-part-{}", std::process::id()), room).ok();
            let mut job = job.clone();
            job.config.memory = part;
            job.door = limit.as_ref().map(MemoryLimit::door);
            for (name, in_flight) in [("1 thread", 1), ("8 threads", 8)] {
                job.work = Work::Get { in_flight, by: By::Threads };
                self.measure(&format!("get with 5% of the index in memory, {name}"), &job, round)?;
            }
        }
        if wants("delete") {
            job.work = Work::Durable { writers: 1, verb: Verb::Delete };
            self.measure("durable delete, 1 writer", &job, round)?;
        }
        Ok(())
    }

    fn durable_job(&self, engine: &str, folder: &Path, work: Work) -> crate::work::Job {
        let mut job = self.job(engine, folder, work);
        (job.config.durable, job.config.commit_every) = (true, 1);
        job.config.capacity = (self.total * 3 / 2).max(LEAST_CAPACITY);
        job
    }
}

/// What a reader must know to judge the table.
pub(super) fn note() -> String {
    format!(
        "Engines are given {} MiB; for gets as much as 5% of the index of {OURS} takes, and 1 MiB of page cache at least.",
        super::SMALL_MEMORY >> 20
    )
}

pub(super) fn puts(writers: usize) -> String {
    format!("durable put, {writers} writer{}", if writers == 1 { "" } else { "s" })
}
