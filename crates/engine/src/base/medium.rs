//! A volume's device, and how it is divided: reads and writes that are counted, and errors that name the place.
//!
//! Invariants: nothing here knows what is in memory; what it reads is as the device has it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
};

use bytes::Bytes;
use picaflor_common::Hasher;
use picaflor_device::{AlignedBuf, BufPool, Device, Op, Reads, Request};
use picaflor_format::{
    frame::GRAIN,
    zone::{Map, Zone},
};

use crate::{
    Error, Result,
    base::stats::{Counters, add},
};

/// A volume's device, and how it is divided.
pub struct Medium {
    pub(crate) number: usize,
    /// For messages: path or description.
    pub place: String,
    /// All of it, superblocks included.
    pub device: Arc<dyn Device>,
    /// Most bytes of the place that the store may have: a device has so many, and a file is made longer.
    pub(crate) room: u64,
    /// How it was divided at the opening.
    pub(crate) map_at_opening: Map,
    pub(crate) clusters: AtomicU32,
    /// The store's.
    pub hasher: Hasher,
    /// The short identity of the store, as clusters and pages carry it.
    pub(crate) store_id: u64,
    /// Buffers for reads and writes.
    pub pool: BufPool,
    pub(crate) counters: Arc<Counters>,
}

impl Medium {
    /// How it is divided.
    pub fn map(&self) -> Map {
        let Map { journal, clusters: Zone { start, .. }, cluster } = self.map_at_opening;
        let len = u64::from(self.clusters.load(Relaxed)) * u64::from(cluster);
        Map { journal, clusters: Zone { start, len }, cluster }
    }

    pub(crate) fn cluster_len(&self) -> usize {
        self.map_at_opening.cluster as usize
    }

    /// Grain at which a frame of a cluster lies.
    pub(crate) fn grain(&self, cluster: u32, offset: u32) -> u64 {
        (self.map().cluster_start(cluster) + u64::from(offset)) / GRAIN as u64
    }

    /// The cluster around a grain.
    pub(crate) fn cluster_of(&self, grain: u64) -> Option<u32> {
        self.map().cluster_of(grain * GRAIN as u64)
    }

    /// What the device said, with its place.
    pub fn io(&self, doing: &str, error: io::Error) -> Error {
        Error::io(format!("{}: {doing}", self.place), error)
    }

    /// Fills the buffer from the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read(&self, start: u64, buf: &mut [u8]) -> io::Result<()> {
        self.count_read(buf.len());
        self.device.read(start, buf)
    }

    /// Reads part of a cluster.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn read_at(&self, cluster: u32, offset: usize, len: usize) -> Result<AlignedBuf> {
        let start = self.map().cluster_start(cluster) + offset as u64;
        let mut buf = self.pool.take(len);
        self.count_read(len);
        read_twice(&*self.device, start, &mut buf)
            .map_err(|error| self.io(&format!("reading {len} bytes at {start}"), error))?;
        Ok(buf)
    }

    /// Pieces of clusters, each of so many bytes from an offset, to be read together.
    pub(crate) fn batch(&self, wanted: impl Iterator<Item = (u32, usize, usize)>) -> Batch {
        let read = |(cluster, offset, len)| {
            self.count_read(len);
            (self.map().cluster_start(cluster) + offset as u64, self.pool.take(len))
        };
        Batch { reads: wanted.map(read).collect(), device: Arc::clone(&self.device) }
    }

    pub(crate) fn count_read(&self, len: usize) {
        add(&self.counters.device_reads, 1);
        add(&self.counters.device_read, len as u64);
    }

    pub(crate) fn count_writes(&self, writes: &[(u64, Bytes)]) {
        writes.iter().for_each(|(_, bytes)| self.count_write(bytes.len()));
    }

    /// Counts a write of so many bytes that goes another way.
    pub fn count_write(&self, len: usize) {
        add(&self.counters.device_writes, 1);
        add(&self.counters.device_written, len as u64);
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&self) -> io::Result<()> {
        self.count_sync();
        self.device.sync()
    }

    /// Counts a sync that goes another way.
    pub fn count_sync(&self) {
        add(&self.counters.device_syncs, 1);
    }

    /// Writes all of these and waits for them; a single one on this thread, without a hand-over.
    ///
    /// # Errors
    /// Those of the device.
    pub fn write_all(&self, writes: Vec<(u64, Bytes)>) -> io::Result<()> {
        self.count_writes(&writes);
        if let [(offset, bytes)] = &writes[..] {
            return self.device.write(*offset, bytes);
        }
        let (sender, receiver) = mpsc::channel();
        let count = writes.len();
        let request = |(offset, bytes)| {
            let sender = sender.clone();
            // The receiver outlives every request: it waits for as many answers as there are requests.
            let done = Box::new(move |outcome: io::Result<_>| drop(sender.send(outcome.map(drop))));
            Request { offset, op: Op::Write(bytes), done }
        };
        self.device.submit(writes.into_iter().map(request).collect());
        self.take_outcomes(&receiver, count)
    }

    /// Waits for the outcomes of so many requests, and turns a device that runs on this thread.
    fn take_outcomes(&self, receiver: &mpsc::Receiver<io::Result<()>>, count: usize) -> io::Result<()> {
        let gone = |_| io::Error::other("the device dropped a request");
        let mut all = Ok(());
        for _ in 0..count {
            let mut outcome = receiver.try_recv().ok();
            while outcome.is_none() && self.device.advance() {
                outcome = receiver.try_recv().ok();
            }
            let outcome = outcome.map_or_else(|| receiver.recv().map_err(gone), Ok).and_then(|outcome| outcome);
            all = all.and(outcome);
        }
        all
    }
}

/// See [`Medium::batch`].
pub(crate) struct Batch {
    reads: Vec<(u64, AlignedBuf)>,
    device: Arc<dyn Device>,
}

/// One that is under way.
pub(crate) struct Begun {
    reads: Reads,
    device: Arc<dyn Device>,
}

impl Batch {
    /// What could be read of each piece.
    pub(crate) fn read(self) -> Vec<Option<AlignedBuf>> {
        intact(picaflor_device::read_all(&*self.device, self.reads))
    }

    /// The caller does something else meanwhile.
    pub(crate) fn begin(self) -> Begun {
        Begun { reads: picaflor_device::begin_reads(&*self.device, self.reads), device: self.device }
    }
}

impl Begun {
    /// As [`Batch::read`].
    pub(crate) fn wait(self) -> Vec<Option<AlignedBuf>> {
        intact(self.reads.wait(&*self.device))
    }
}

fn intact(read: Vec<io::Result<AlignedBuf>>) -> Vec<Option<AlignedBuf>> {
    read.into_iter().map(io::Result::ok).collect()
}

/// Reads; once more if the device refuses, for that may have been the cable. Not for gets: their caller waits.
///
/// # Errors
/// Those of the device, the second time.
pub(crate) fn read_twice(device: &dyn Device, start: u64, buf: &mut [u8]) -> io::Result<()> {
    device.read(start, buf).or_else(|_| device.read(start, buf))
}
