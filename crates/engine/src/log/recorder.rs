//! What a volume remembers of itself beside its objects: records in the journal, group commits, the superblock, and the
//! numbers that order them.
//!
//! Lock order: superblock → journal. Neither is held while a device syncs.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_common::KeyHash;
use picaflor_format::{BLOCK, journal::Record, superblock::Superblock};

use crate::{
    Commits, Error, Mode, Result,
    base::medium::Medium,
    base::places::LogEnv,
    log::flush_queue::FlushQueue,
    log::journal::Journal,
    shared::Shared,
    space::{Site, Space, State},
};

/// How long until a commit that was refused for want of room in the journal is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Records that wait in memory for a commit that no caller asked for, at most.
const RECORDS_MAX: usize = 8192;

/// Where superblocks are kept: on the device, or in a file beside the objects.
pub(crate) type SuperblockHome = Box<dyn Fn(&Superblock) -> io::Result<()> + Send + Sync>;

pub(crate) struct Log {
    medium: Arc<Medium>,
    shared: Arc<Shared>,
    pub(crate) queue: FlushQueue,
    space: Arc<Space>,
    home: SuperblockHome,
    superblock: Mutex<Superblock>,
    pub(crate) journal: Mutex<Journal>,
    pub(crate) commits: Commits,
    /// Next sequence number of a cluster, and of a seal.
    pub(crate) next_seq: AtomicU64,
    pub(crate) next_seal: AtomicU64,
    /// Every seal up to this one is durable.
    pub(crate) durable_seal: AtomicU64,
    /// The scrubber has gone over everything: checkpoints that begin now lead to nothing that had left before a crash.
    pub(crate) is_settled: AtomicBool,
}

impl Log {
    /// A log whose numbers begin with `first`, which this opening was given.
    pub(crate) fn new(
        (medium, shared): (&Arc<Medium>, &Arc<Shared>),
        space: &Arc<Space>,
        (superblock, home): (Superblock, SuperblockHome),
        first: u64,
    ) -> Self {
        Self {
            journal: Mutex::new(Journal::new(medium.map(), medium.store_id, 1, 1, 1)),
            medium: Arc::clone(medium),
            shared: Arc::clone(shared),
            queue: FlushQueue::new(),
            space: Arc::clone(space),
            home,
            superblock: Mutex::new(superblock),
            commits: Commits::default(),
            next_seq: AtomicU64::new(first),
            // The epoch's first number is no seal's: it vouches for none.
            next_seal: AtomicU64::new(first + 1),
            durable_seal: AtomicU64::new(first),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Goes on where recovery found that the journal ends. What recovery recorded itself is told first.
    pub(crate) fn go_on_with(&self, mut journal: Journal) {
        let mut of_opening = self.journal.lock();
        journal.take_over(&mut of_opening);
        *of_opening = journal;
    }

    /// The superblock as it was written last.
    pub(crate) fn superblock(&self) -> Superblock {
        *self.superblock.lock()
    }

    /// Writes the other superblock, changed, and syncs.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut block = self.superblock.lock();
        let mut next = *block;
        change(&mut next);
        next.seq += 1;
        self.medium.count_write(BLOCK);
        (self.home)(&next).map_err(|error| self.medium.io("writing the superblock", error))?;
        *block = next;
        Ok(())
    }

    /// Writes both superblocks, with another size: neither must say alone how large the place is.
    ///
    /// # Errors
    /// As [`Log::write_superblock`].
    pub(crate) fn write_size(&self, capacity: u64) -> Result<()> {
        (0..2).try_for_each(|_| self.write_superblock(|block| *block = block.resized(capacity)))
    }

    /// Whether the store was closed, and the device may be another's.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.commits.failure(), Some(Error::Closed))
    }

    /// Remembers a fact in the journal, durable with the next commit.
    pub(crate) fn record(&self, record: Record) {
        self.journal.lock().push(record);
    }

    /// Whether so much waits in memory to be told that it should be, though no caller asks. Where `none_is` what
    /// waits is dropped, for no page needs it.
    pub(crate) fn has_much_to_tell(&self, none_is: bool) -> bool {
        let mut journal = self.journal.lock();
        let is_long = journal.pending() >= RECORDS_MAX || journal.is_long();
        if is_long && none_is {
            journal.forget();
        }
        is_long && !none_is
    }

    /// The same of facts that belong together: one commit takes them, in this order.
    pub(crate) fn record_all(&self, records: &[Record]) {
        let mut journal = self.journal.lock();
        records.iter().for_each(|record| journal.push(*record));
    }

    /// A version leaves for good: the log says so.
    pub(crate) fn forget(&self, hash: KeyHash, generation: u64) {
        self.record(Record::Delete { hash: hash.0, generation });
    }

    /// Takes a free cluster that was reserved, and remembers to look for this use of it after a crash.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not there, which is a defect.
    pub(crate) fn grant(&self, state: State, seq: u64, site: Site) -> Result<u32> {
        let cluster = self.space.grant(state, site).ok_or_else(|| Error::Damaged {
            place: self.medium.place.clone(),
            why: "a reserved cluster is not there".into(),
            mend: "this is a defect in picaflor: please report it".into(),
        })?;
        self.tell_of_grant(cluster, seq);
        Ok(cluster)
    }

    /// Remembers to look for this use of a cluster after a crash.
    pub(crate) fn tell_of_grant(&self, cluster: u32, seq: u64) {
        let mut journal = self.journal.lock();
        journal.push(Record::Reserve { cluster, seq });
        self.space.told(cluster, journal.page_of_last());
    }

    /// The number of the next cluster that is written.
    pub(crate) fn number_cluster(&self) -> u64 {
        self.next_seq.fetch_add(1, Relaxed)
    }

    /// There is no page for a commit; callers that may not lose more than was acknowledged are told until there is.
    pub(crate) fn refused_journal(&self) -> Error {
        self.commits.refuse();
        Error::JournalFull { place: self.medium.place.clone() }
    }

    /// A commit is due no later than this from now.
    pub(crate) fn due_within(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.queue.due(self.shared.clock.now_nanos().saturating_add(nanos));
    }

    /// A commit that is due was refused: the flusher tries again in a while.
    pub(crate) fn commit_later(&self) {
        self.queue.deadline.store(u64::MAX, Relaxed);
        self.due_within(RETRY);
    }

    /// Stops writing to this volume.
    pub(crate) fn fail(&self, doing: &str, error: io::Error) {
        self.stop(self.medium.io(doing, error));
    }

    /// As [`Log::fail`], for this reason.
    pub(crate) fn stop(&self, why: Error) {
        self.commits.fail(why);
        self.queue.wake_flusher();
        self.queue.wake();
        self.tell_others();
    }

    /// This volume failed: the others commit soon, and with that note it.
    pub(crate) fn tell_others(&self) {
        self.shared.others(self.medium.number).for_each(|(_, other)| other.commit_soon());
    }

    /// Before a commit of a cache vouches for anything, the superblock says which of its other devices failed: such a
    /// device may be back at the next opening, and knows neither what was deleted since nor what was to become durable.
    ///
    /// # Errors
    /// As [`Log::write_superblock`].
    pub(crate) fn note_losses(&self) -> Result<()> {
        if self.shared.options.places.len() < 2 || self.shared.options.mode == Mode::Store {
            return Ok(());
        }
        let others = self.shared.others(self.medium.number);
        let broken: Vec<_> = others.filter(|(_, volume)| volume.is_broken()).collect();
        let lost = broken.iter().fold(0, |lost, (number, _)| lost | 1 << number);
        if lost & !self.superblock().lost != 0 {
            self.write_superblock(|block| block.lost |= lost)?;
            // In both, for one may not be readable at the next opening.
            self.write_superblock(|_| ())?;
        }
        broken.iter().for_each(|(_, volume)| volume.loss_is_noted());
        Ok(())
    }
}

impl LogEnv for Log {
    fn epoch(&self) -> u64 {
        self.superblock().epoch
    }

    fn record(&self, record: Record) {
        self.record(record);
    }

    fn take_untold(&self) {
        self.journal.lock().take_untold();
    }

    fn fail(&self, doing: &str, error: io::Error) -> Error {
        self.fail(doing, error);
        self.commits.failure().unwrap_or(Error::Closed)
    }

    fn failure(&self) -> Option<Error> {
        self.commits.failure()
    }
}
