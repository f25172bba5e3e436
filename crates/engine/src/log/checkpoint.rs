//! Question 6, persistence, second part: checkpoints, taken in slices while the store works.
//!
//! Steps: note the journal's next page and the clusters that are not wholly written → copy the index
//! segment by segment into clusters of the checkpoint's own → a commit, so that whatever the images name
//! is durable → the directory → the superblock, which is the commit point. The checkpoint before stays
//! whole until the next one, in case the newer is damaged.
//!
//! Invariants: an image may be older than the index by the time it is committed; everything that changed
//! since the first step is found through the journal and the clusters it names (`docs/FORMAT.md`).

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_format::{
    BLOCK,
    checkpoint::{BEGUN, Begun, Directory, PAGES, PIECE_HEADER, PINNED, encode_cluster, push_piece, room},
    cluster::{self, Content},
    doubt::Doubt,
    journal::RECORDS_MIN,
    superblock::CheckpointRef,
};

use crate::{
    Error, Result,
    base::stats::add,
    log::hot::HotLog,
    log::unfinished::begin,
    read::parts::Parts,
    space::{Site, Space, State},
    write::append::Appender,
    write::flush::Committer,
};

#[derive(Default)]
pub(crate) struct CheckpointState {
    running: Option<Running>,
    /// Clusters of the newest checkpoint, and of the one before.
    current: Vec<u32>,
    previous: Vec<u32>,
    /// [`crate::space::Space::granted`] when the newest one began.
    granted: u64,
    /// Clusters that this opening had to scan, and no checkpoint covers.
    scanned: u64,
    /// What `granted` was when it was last seen to change, and when that was, in nanoseconds of the clock.
    seen: Option<(u64, u64)>,
    /// Journal page that was next when the newest one began.
    begun: u64,
    /// How many of the two that are kept an earlier run may have taken.
    inherited: u32,
    /// Whether the newest one began when the scrubber had ended.
    settled: bool,
}

impl CheckpointState {
    /// As recovery found it.
    pub(crate) fn restored(current: Vec<u32>, previous: Vec<u32>, scanned: u64) -> Self {
        Self { current, previous, scanned, inherited: 2, ..Self::default() }
    }
}

struct Running {
    settled: bool,
    granted: u64,
    journal_start: u64,
    open: Vec<u32>,
    sealed_below: u64,
    /// Nothing where objects have places.
    begun: Begun,
    next_segment: u32,
    payload: Vec<u8>,
    parts: Vec<(u32, u64)>,
    clusters: Vec<u32>,
}

impl Running {
    /// Nothing will name what it has written so far.
    fn give_back(self, space: &Space) {
        self.clusters.into_iter().for_each(|cluster| space.set(cluster, State::Free));
    }
}

/// Why a checkpoint is not taken though nothing is wrong with the device.
#[derive(Debug, thiserror::Error)]
#[error("no clean cluster for a checkpoint")]
struct NoCluster;

impl NoCluster {
    fn is(error: &Error) -> bool {
        matches!(error, Error::Io { source, .. } if source.get_ref().is_some_and(|why| why.is::<Self>()))
    }
}

/// Segments copied in one slice at the most, which ends when it has written.
const SLICE: u32 = 64;

/// How long nothing is written before a checkpoint is taken early, for what a crash then costs is only time.
const PAUSE: Duration = Duration::from_secs(3);

pub(crate) struct Checkpointer {
    parts: Parts,
    pub(crate) appender: Arc<Appender>,
    pub(crate) committer: Arc<Committer>,
    state: Mutex<CheckpointState>,
    hot: HotLog,
}

impl Checkpointer {
    pub(crate) fn new(parts: &Parts, committer: &Arc<Committer>, (state, hot): (CheckpointState, HotLog)) -> Self {
        let (committer, appender) = (Arc::clone(committer), Arc::clone(&committer.appender));
        Self { parts: parts.clone(), appender, committer, state: Mutex::new(state), hot }
    }

    /// Whether there are too few clean clusters for one.
    pub(crate) fn lacks_room(&self) -> bool {
        self.parts.space.available() < self.parts.residents.checkpoint_clusters()
    }

    /// Where clusters lack, the checkpoint before the last gives up its own.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn give_up_for_room(&self) -> Result<()> {
        if self.lacks_room() { self.give_up_previous_checkpoint() } else { Ok(()) }
    }

    /// As [`Checkpointer::run`], where there are checkpoints, without clusters being emptied for it.
    ///
    /// # Errors
    /// As [`Checkpointer::step`].
    pub(crate) fn take(&self) -> Result<()> {
        if !self.parts.shared.has_checkpoints() {
            return Ok(());
        }
        self.give_up_for_room()?;
        self.run()
    }

    /// Takes checkpoints, by `take`, until the journal has room for what is pending.
    ///
    /// # Errors
    /// [`Error::JournalFull`] if they do not give it enough, and what `take` says.
    pub(crate) fn relieve_journal(&self, take: impl Fn() -> Result<()>) -> Result<()> {
        // Each frees the pages before the one that precedes it, but for the story of buffers opened since.
        for _ in 0..3 {
            if !self.parts.log.journal.lock().is_tight() {
                return Ok(());
            }
            take().map_err(|error| if NoCluster::is(&error) { self.parts.log.refused_journal() } else { error })?;
        }
        let has_room = self.parts.log.journal.lock().has_room_for_puts();
        if has_room { Ok(()) } else { Err(self.parts.log.refused_journal()) }
    }

    /// Makes everything durable that was done before this call, without clusters being emptied for it.
    ///
    /// # Errors
    /// Those of a commit, and of [`Checkpointer::relieve_journal`].
    pub(crate) fn commit_now(&self) -> Result<()> {
        self.relieve_journal(|| self.take())?;
        self.committer.wait_commit(self.parts.log.commits.next())
    }

    /// Whether one should begin.
    pub(crate) fn is_due(&self) -> bool {
        let mut state = self.state.lock();
        state.running.is_none() && self.wants_checkpoint(&mut state)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().running.is_some()
    }

    /// Begins one that is due, and takes a slice of the one that is running. Returns whether there was anything.
    ///
    /// # Errors
    /// What refuses it, or the failure of the device.
    pub(crate) fn step(&self) -> Result<bool> {
        let mut state = self.state.lock();
        if state.running.is_none() {
            if !self.wants_checkpoint(&mut state) {
                return Ok(false);
            }
            self.begin_checkpoint(&mut state)?;
        }
        self.checkpoint_slice(&mut state)?;
        Ok(true)
    }

    /// A checkpoint from beginning to end, or the rest of the one that is running.
    ///
    /// # Errors
    /// As [`Checkpointer::step`].
    pub(crate) fn run(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.running.is_none() {
            self.begin_checkpoint(&mut state)?;
        }
        while state.running.is_some() {
            self.checkpoint_slice(&mut state)?;
        }
        Ok(())
    }

    /// What a crash left in doubt is in the log of an earlier run's checkpoint. If the newest one rots, that log is
    /// read again, and what has rotted meanwhile looks torn: so none of the two that a closed store keeps is that old,
    /// unless there is no room for another.
    pub(crate) fn outlive_doubt(&self) -> Result<()> {
        let is_left = self.parts.shared.has_checkpoints() && self.state.lock().inherited > 0;
        match if is_left { self.run() } else { Ok(()) } {
            Err(Error::JournalFull { .. }) => Ok(()),
            Err(error) if NoCluster::is(&error) => Ok(()),
            taken => taken,
        }
    }

    /// A quarter of the journal, an eighth of the device, or 64 times its own size since the last one; where nothing is
    /// being written, a 64th of the device or its own size, so that it never writes more than what it covers.
    fn wants_checkpoint(&self, state: &mut CheckpointState) -> bool {
        let granted = self.parts.space.granted();
        if state.seen.is_none_or(|(seen, _)| seen != granted) {
            state.seen = Some((granted, self.parts.shared.clock.now_nanos()));
        }
        let since = granted - state.granted + state.scanned;
        let (own, count) = (u64::from(self.parts.residents.checkpoint_clusters()), u64::from(self.parts.space.count()));
        // What was written since the last but one is no victim yet, and would fill the small queue.
        let has_queues = self.parts.shared.eviction().has_queues();
        let part = if has_queues { (count / 16).max(8 * own).min(count / 8) } else { count / 8 };
        let enough = (64 * own).max(64).min(part.max(own + 2));
        since >= enough
            || self.pauses(state) && since >= (own + 2).max(count / 64)
            || self.parts.log.journal.lock().wants_checkpoint()
    }

    /// Whether nothing was written for a while.
    fn pauses(&self, state: &CheckpointState) -> bool {
        let now = self.parts.shared.clock.now_nanos();
        state.seen.is_some_and(|(_, when)| now.saturating_sub(when) >= PAUSE.as_nanos() as u64)
    }

    /// The current checkpoint stays, alone until the next one: its clusters and its log are whole.
    fn give_up_previous_checkpoint(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.running.is_some() || state.previous.is_empty() {
            return Ok(());
        }
        self.parts.log.write_superblock(|block| block.previous = None)?;
        for cluster in std::mem::take(&mut state.previous) {
            self.parts.space.set(cluster, State::Free);
        }
        self.parts.residents.checkpoint_held.store(state.current.len() as u32, Relaxed);
        Ok(())
    }

    fn begin_checkpoint(&self, state: &mut CheckpointState) -> Result<()> {
        // One that cannot come to its end must not begin: it would take pages of the journal for nothing.
        let own = self.parts.residents.checkpoint_clusters();
        if self.parts.space.available() < own {
            return Err(self.no_cluster());
        }
        if !self.parts.log.journal.lock().has_room(u64::from(own) / RECORDS_MIN as u64 + 1) {
            return Err(self.parts.log.refused_journal());
        }
        // What is pending would be told on a page of this checkpoint's, and keep old clusters young.
        self.committer.wait_commit(self.parts.log.commits.next())?;
        let next_page = {
            // Not between the record of a place and the end of the row that it replaced: of two rows of one
            // key nothing but the record says which is newer.
            let _turn = self.parts.catalog.places.as_ref().map(|places| places.turn());
            self.parts.log.journal.lock().next_page()
        };
        // Buffers that the checkpoint before found open are sealed, lest the journal grow with their age; in a pause
        // all are, so that none keeps the log of what came after it.
        let pauses = self.pauses(state);
        self.write_open(|slot| pauses || self.parts.catalog.buffers.is_older_than(slot, state.begun))?;
        let (mut begun, mut open, mut since) = begin(&self.parts, &self.appender);
        if begun.words().len() * 8 > Begun::room(self.parts.medium.cluster_len()) {
            self.write_open(|_| true)?;
            (begun, open, since) = begin(&self.parts, &self.appender);
        }
        state.begun = next_page;
        open.iter().for_each(|cluster| self.parts.space.told(*cluster, next_page));
        state.running = Some(Running {
            settled: self.parts.log.is_settled.load(Relaxed),
            granted: self.parts.space.granted(),
            // An object in a buffer that a crash may find on the device must not outlive its delete.
            journal_start: since.map_or(next_page, |page| page.min(next_page)),
            open,
            sealed_below: begun.unfinished.iter().copied().min().unwrap_or(begun.below),
            begun,
            next_segment: 0,
            payload: Vec::new(),
            parts: Vec::new(),
            clusters: Vec::new(),
        });
        Ok(())
    }

    /// Seals these of the open buffers, and writes whatever is sealed.
    fn write_open(&self, which: impl Fn(u32) -> bool) -> Result<()> {
        for lane in self.appender.all_lanes() {
            for open in lane.lock().iter_mut() {
                if open.is_some_and(&which) {
                    self.appender.seal(open)?;
                }
            }
        }
        self.committer.write_queued(true);
        Ok(())
    }

    fn checkpoint_slice(&self, state: &mut CheckpointState) -> Result<()> {
        let Some(mut running) = state.running.take() else { return Ok(()) };
        let written = match self.advance(&mut running) {
            Ok(false) => {
                state.running = Some(running);
                return Ok(());
            }
            Ok(true) => self.write_directory(&mut running),
            Err(error) => Err(error),
        };
        match written {
            // Whether a superblock that failed names its clusters is not known.
            Ok(reference) => {
                self.commit_checkpoint(state, running, reference)
                    .inspect_err(|error| self.parts.log.stop(error.clone()))?;
                self.hot.write().inspect_err(|error| self.stop_if_broken(error))
            }
            Err(error) => {
                self.stop_if_broken(&error);
                running.give_back(&self.parts.space);
                Err(error)
            }
        }
    }

    /// Writes the hot log by the clock. Returns whether it did.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn hot_step(&self) -> Result<bool> {
        self.hot.step().inspect_err(|error| self.stop_if_broken(error))
    }

    /// A device that failed a checkpoint's write or sync, be it for want of blocks of its own, is not trusted with
    /// another; want of clusters is no failure.
    fn stop_if_broken(&self, error: &Error) {
        if matches!(error, Error::Io { .. }) && !NoCluster::is(error) {
            self.parts.log.stop(error.clone());
        }
    }

    /// Copies a slice of segments. True when all are copied.
    fn advance(&self, running: &mut Running) -> Result<bool> {
        let segments = self.parts.catalog.images().count();
        let (end, written) = ((running.next_segment + SLICE).min(segments), running.parts.len());
        while running.next_segment < end && running.parts.len() == written {
            let segment = running.next_segment;
            self.push_image(running, segment, &self.parts.catalog.images().get(segment))?;
            running.next_segment += 1;
        }
        if running.next_segment < segments {
            return Ok(false);
        }
        self.push_image(running, PAGES, &self.parts.residents.pages.image())?;
        self.push_image(running, PINNED, &self.parts.shared.pins.image())?;
        if self.parts.catalog.places.is_none() {
            let begun = running.begun.words();
            self.push_image(running, BEGUN, &begun)?;
        }
        if !running.payload.is_empty() {
            self.write_part(running)?;
        }
        Ok(true)
    }

    /// Adds an image, cut where parts end.
    fn push_image(&self, running: &mut Running, segment: u32, words: &[u64]) -> Result<()> {
        let room = room(self.parts.medium.cluster_len());
        let mut first = 0;
        while first < words.len() {
            let fit = room.saturating_sub(running.payload.len() + PIECE_HEADER) / 8;
            if fit == 0 {
                self.write_part(running)?;
                continue;
            }
            let piece = &words[first..(first + fit).min(words.len())];
            push_piece(&mut running.payload, segment, words.len() as u32, first as u32, piece);
            first += piece.len();
        }
        Ok(())
    }

    fn write_part(&self, running: &mut Running) -> Result<()> {
        let payload = std::mem::take(&mut running.payload);
        let part = self.write_checkpoint_cluster(Content::CheckpointPart, &payload)?;
        running.parts.push(part);
        running.clusters.push(part.0);
        Ok(())
    }

    fn write_checkpoint_cluster(&self, content: Content, payload: &[u8]) -> Result<(u32, u64)> {
        if !self.parts.space.reserve(0) {
            return Err(self.no_cluster());
        }
        let seq = self.parts.log.number_cluster();
        let id = self.parts.log.grant(State::Checkpoint, seq, Site::Rest)?;
        let mut buf = self.parts.shared.pool.take(self.parts.medium.cluster_len());
        let header = cluster::Header { seq, store: self.parts.medium.store_id, id, content, class: 0 };
        encode_cluster(&mut buf, &header, payload);
        // Only the blocks that hold something.
        let len = (self.parts.medium.cluster_len() - room(self.parts.medium.cluster_len()) + payload.len())
            .next_multiple_of(BLOCK);
        let bytes = buf.into_bytes().slice(..len);
        add(&self.parts.shared.counters.checkpoint_bytes, len as u64);
        self.parts
            .medium
            .write_all(vec![(self.parts.medium.map().cluster_start(id), bytes)])
            .map_err(|error| Error::io(format!("{}: writing a checkpoint", self.parts.medium.place), error))?;
        Ok((id, seq))
    }

    /// Writes the directory, and makes durable what it and the images name.
    fn write_directory(&self, running: &mut Running) -> Result<CheckpointRef> {
        let directory = Directory {
            cursor: self.parts.catalog.cursor(),
            open: std::mem::take(&mut running.open),
            parts: std::mem::take(&mut running.parts),
            groups: self.parts.shared.groups.all(),
        };
        let (id, seq) = self.write_checkpoint_cluster(Content::CheckpointDirectory, &directory.encode())?;
        running.clusters.push(id);
        self.parts.catalog.waiting().promise_replacing();
        self.committer.wait_commit(self.parts.log.commits.next())?;
        Ok(CheckpointRef { directory: id, seq, journal_start: running.journal_start })
    }

    /// From here on it is the newest checkpoint.
    fn commit_checkpoint(&self, state: &mut CheckpointState, running: Running, reference: CheckpointRef) -> Result<()> {
        self.parts.log.write_superblock(|block| {
            block.previous = block.current;
            block.current = Some(reference);
            block.durable = self.parts.log.durable_seal.load(Relaxed);
            block.sealed_below = running.sealed_below;
            if running.settled && state.settled {
                block.doubt = Doubt::default();
            }
        })?;
        state.settled = running.settled;
        for cluster in std::mem::replace(&mut state.previous, std::mem::replace(&mut state.current, running.clusters)) {
            self.parts.space.set(cluster, State::Free);
        }
        self.parts.residents.checkpoint_held.store((state.current.len() + state.previous.len()) as u32, Relaxed);
        (state.granted, state.scanned) = (running.granted, 0);
        state.inherited = state.inherited.saturating_sub(1);
        let floor = {
            let mut journal = self.parts.log.journal.lock();
            journal.checkpointed(running.journal_start);
            journal.start()
        };
        self.parts.space.set_floor(floor);
        add(&self.parts.shared.counters.checkpoints, 1);
        Ok(())
    }

    fn no_cluster(&self) -> Error {
        Error::io(self.parts.medium.place.clone(), io::Error::new(io::ErrorKind::StorageFull, NoCluster))
    }
}
