//! Packing (Shriver et al. 2001, §3.1 and §3.5): objects wait in memory, and are put into clusters as late as
//! possible, with those that hints name. The default's caches do so as long as puts name neighbours, in a share of
//! the memory; then a set's page comes first, for where less than a cluster is read, it is what lies behind the
//! object that was asked for.
//!
//! Steps: a put waits, and the index says *buffered* → when what waits takes more than it may, or a commit has to make
//! it durable, those whose turn it is fill a cluster: each with what waits of its locality set → the cluster is sealed,
//! with copies of those partners that lie in others and are in memory → their hints are forgotten.
//!
//! Invariants: what waits is volatile; a commit packs whatever was promised before it began, or gives it up by name;
//! one cluster is packed at a time, under its lane's lock. A store, which loses nothing, does not let objects wait: it
//! may have room for them in no cluster when their turn comes.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use picaflor_format::frame::{self, Kind};

use crate::{
    Departure, Durability, Mode, Result,
    base::blocked::{Blocked, Purpose},
    base::frame::Draft,
    base::frame::Frame,
    base::group::CheckpointInterval,
    base::policy::Placement,
    base::stats::add,
    cache::buffers::Slot,
    cache::residents::FEWEST,
    index::{IndexEntry, Location},
    read::parts::Parts,
    space::{Queue, SPARE},
    write::append::Appender,
    write::placement::Class,
    write::staging::{End, StagedObject, Staging, Turn},
};

/// Sets that are passed over, for they do not fit in what is left of a cluster, before it is sealed as it is.
const PASSED_OVER: usize = 16;
/// Share of the memory tier that objects wait in where clusters are not what it holds.
const GATHERED: u64 = 8;
/// Part of a cluster that the default does not leave empty, though a set has to be cut for it.
const WORTH_CUTTING: usize = 8;
/// Objects whose turn is looked at for one cluster.
const LOOKED_AT: usize = 4096;

/// An object whose turn it is, and those it takes along.
struct Set {
    /// Hash of its page.
    head: u64,
    /// The object first; in the default its page, and the others as they came.
    objects: Vec<StagedObject>,
    /// Bytes of copies that will be laid beside them.
    copies: usize,
    /// What stands for the server of objects of no group; 0 if nothing does.
    affinity: u32,
}

impl Set {
    fn bytes(&self) -> usize {
        self.objects.iter().map(|staged| Packer::packed_len(&staged.frame)).sum::<usize>() + self.copies
    }
}

pub(crate) struct Packer {
    parts: Parts,
    pub(crate) appender: Arc<Appender>,
}

impl Packer {
    pub(crate) fn new(parts: &Parts, appender: &Arc<Appender>) -> Self {
        Self { parts: parts.clone(), appender: Arc::clone(appender) }
    }

    /// Bytes of a cluster that a frame takes, its row included.
    fn packed_len(frame: &Frame) -> usize {
        frame.header.frame_len() + picaflor_format::cluster::table_len(1) - picaflor_format::cluster::table_len(0)
    }

    /// Where this object has to wait, if it has to.
    pub(crate) fn waits(&self, draft: &Draft<'_>, class: Class, purpose: Purpose) -> Option<&Staging> {
        let waits = draft.header.kind == Kind::Whole && class != Class::Bypass && purpose == Purpose::Put;
        self.gathers().filter(|_| waits)
    }

    /// Where objects wait, as long as that may pay. What is durable when its put returns cannot wait for others.
    pub(crate) fn gathers(&self) -> Option<&Staging> {
        let may = self.parts.catalog.placer.packs() || self.parts.shared.options.durability != Durability::EveryPut;
        self.parts.catalog.buffers.staging().filter(|_| may && self.parts.catalog.placer.gathers())
    }

    /// Memory for what waits and for clusters, of this volume.
    fn own_tier(&self, staging: &Staging) -> u64 {
        (self.parts.shared.tier_budget() + staging.bytes()) / self.parts.shared.options.places.len() as u64
    }

    /// Most bytes of objects that wait, in any order: what was asked for, but no more than half of what index
    /// and buffers leave; else a share of that, or all but what reads of clusters need; and an eighth of the device.
    fn staging_max(&self, staging: &Staging) -> u64 {
        let options = &self.parts.shared.options;
        let tier = self.own_tier(staging);
        let asked = match options.unpacked / options.places.len() as u64 {
            0 if !self.parts.catalog.placer.packs() => tier / GATHERED,
            0 => tier.saturating_sub((FEWEST * self.parts.medium.cluster_len() as u64).max(tier / 8)).max(tier / 2),
            asked => asked.min(tier / 2),
        };
        asked.min(self.parts.medium.map().clusters.len / 8)
    }

    /// Whether it is the turn of what waits to make room for so many bytes: memory is full, and nothing else is in it
    /// that was asked for less recently (Shriver et al. 2001, §3.1: a file is packed as late as possible, when space is
    /// needed; §3.5: memory is given up by the LRU lists of files and of clusters). Not where what waits has memory of
    /// its own.
    fn is_turn_of_staging(&self, staging: &Staging, bytes: u64) -> bool {
        let shared = &self.parts.shared;
        if shared.options.unpacked != 0 || !self.parts.catalog.placer.packs() {
            return false;
        }
        let Some(oldest) = staging.oldest() else { return false };
        // Clusters on their way to the device can leave when they are there.
        let coming = (self.parts.log.queue.unlanded() * self.parts.medium.cluster_len()) as u64;
        let free = shared.tier_budget().saturating_sub(shared.memory.held()) + coming;
        free < bytes && free + shared.memory.older_than(oldest, bytes - free) < bytes
    }

    /// Whether a crash may cost an object of this group until the application says otherwise.
    fn may_stay_volatile(&self, group: u32) -> bool {
        match (self.parts.shared.groups.interval(group), self.parts.shared.options.durability) {
            (_, Durability::EveryPut) => false,
            (CheckpointInterval::Off, _) => true,
            (CheckpointInterval::Every(_), _) => false,
            (CheckpointInterval::OfStore, asked) => asked == Durability::None,
        }
    }

    /// Lets an object wait, and enters it in the index in place of `old`.
    pub(crate) fn stage(
        &self,
        staging: &Staging,
        draft: &Draft<'_>,
        class: Class,
        old: Option<IndexEntry>,
    ) -> Result<(), Blocked> {
        let mut bytes = vec![0; draft.header.frame_len()];
        let header = draft.lay(0, &mut bytes);
        bytes.truncate(frame::HEADER + header.payload_len());
        let frame = Arc::new(Frame::new(draft.hash, header, bytes.into()));
        let (charge, held) = (Staging::charge(&frame), staging.bytes());
        // Nor may one that takes the place of one that may not: a commit would find neither.
        let promised = !self.may_stay_volatile(header.group)
            || old.is_some_and(|old| self.parts.catalog.waiting().is_promised(old));
        if held > 0 && (held + charge > self.staging_max(staging) || self.is_turn_of_staging(staging, charge)) {
            return Err(Blocked::Staging);
        }
        // What a commit has to pack must find clusters then, half full at the worst, beside what is kept back.
        let most = || {
            let clean = self.parts.space.available().saturating_sub(SPARE + self.parts.residents.checkpoint_reserve());
            u64::from(clean) * u64::from(self.parts.medium.map().cluster) / 2
        };
        if promised && staging.promised() + charge > most() {
            return Err(if held > 0 { Blocked::Staging } else { Blocked::Space });
        }
        self.parts.shared.reserve_memory(charge, || self.parts.shared.buffer_bytes.fetch_add(charge, Relaxed));
        let slot = staging.add(&frame, (class, self.parts.shared.memory.next_number()), (promised, old.is_some()));
        let Some(slot) = slot else {
            self.parts.shared.buffer_bytes.fetch_sub(charge, Relaxed);
            return Err(Blocked::Staging);
        };
        let location = Location::Buffered { slot, offset: 0 };
        if !self.parts.catalog.put_in_memory(draft, location, old) {
            self.parts.catalog.unstage(slot);
            return Err(Blocked::Moved);
        }
        Ok(())
    }

    /// One step of the packing daemon. Ahead of need while there are no reads, else when it is needed. Returns whether
    /// it packed anything.
    pub(crate) fn pack_step(&self, idle: bool) -> Result<bool> {
        let Some(staging) = self.parts.catalog.buffers.staging() else { return Ok(false) };
        let most = self.staging_max(staging);
        let ahead = (most / 4).min(self.own_tier(staging) / 8) / if idle { 1 } else { 2 };
        let mut packed = false;
        while (staging.bytes() > most - ahead || self.is_turn_of_staging(staging, ahead))
            && self.pack_cluster(End::First)?.is_ok()
        {
            packed = true;
        }
        Ok(packed)
    }

    /// Packs a cluster with those at this end of the order. The inner result says what was in the way.
    pub(crate) fn pack_cluster(&self, end: End) -> Result<Result<(), Blocked>> {
        let Some(staging) = self.parts.catalog.buffers.staging() else { return Ok(Ok(())) };
        if let Some(failure) = self.parts.log.commits.failure() {
            return Err(failure);
        }
        let turn = staging.turn();
        self.pack(staging, &turn, (false, end), Purpose::Put)
    }

    /// Packs all that a commit has to make durable, by the holder of the writer's turn, which makes buffers free by
    /// writing them, which is what `write` does. What finds no cluster is given up.
    pub(crate) fn pack_promised(&self, write: impl Fn()) -> Result<()> {
        let Some(staging) = self.parts.catalog.buffers.staging() else { return Ok(()) };
        // Not what comes meanwhile: it has a commit of its own.
        let last = self.parts.shared.generation.load(Relaxed);
        let is_due = |staged: &StagedObject| staged.frame.header.generation <= last;
        while staging.promised() > 0 {
            let turn = staging.turn();
            // An object that came since may have an earlier turn.
            if !staging.any(|staged| staged.promised && is_due(staged)) {
                return Ok(());
            }
            let blocked = self.pack(staging, &turn, (true, End::First), Purpose::Survivor)?.err();
            match blocked {
                None | Some(Blocked::Moved) => {}
                Some(Blocked::Buffers) => {
                    drop(turn);
                    write();
                }
                Some(_) => staging.next(usize::MAX, true).iter().for_each(|staged| self.give_up_staged(staged)),
            }
            if self.parts.log.commits.failure().is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Its promise cannot be kept: it leaves by name, and no older version of it comes back.
    fn give_up_staged(&self, staged: &StagedObject) {
        let frame = &staged.frame;
        let Some(entry) =
            self.parts.catalog.index.find(frame.hash, Location::Buffered { slot: staged.slot, offset: 0 })
        else {
            return;
        };
        if self.parts.catalog.drop_entry(frame.hash, entry) {
            self.parts.log.forget(self.parts.medium.hasher.key(frame.key()), frame.header.generation);
            add(&self.parts.shared.counters.evicted, 1);
            self.parts.shared.note_departure(frame.key(), Departure::Evicted);
        }
    }

    /// Fills what is left of the open buffer, or a new one, and seals it when nothing more fits.
    fn pack(
        &self,
        staging: &Staging,
        _turn: &Turn<'_>,
        (promised, end): (bool, End),
        purpose: Purpose,
    ) -> Result<Result<(), Blocked>> {
        let mut turns = staging.turns(promised, end).take(LOOKED_AT).peekable();
        let Some((class, len)) = turns.peek().map(|first| (first.class, first.frame.header.frame_len())) else {
            return Ok(Ok(()));
        };
        let number = self.parts.catalog.placer.lane(class, Queue::Small, self.parts.shared.generation.load(Relaxed));
        let mut lane = self.appender.lanes[number].lock();
        let slot = match self.appender.lane_with_room(&mut lane, len, class, purpose)? {
            Ok(slot) => slot,
            Err(blocked) => return Ok(Err(blocked)),
        };
        let cuts = !self.parts.catalog.placer.packs();
        let (mut copies, mut passed_over) = (0, Vec::new());
        for staged in turns.filter(|staged| staged.class == class) {
            // It may have gone along with another.
            if staging.get(staged.slot).is_none_or(|now| !Arc::ptr_eq(&now.frame, &staged.frame)) {
                continue;
            }
            if cuts && passed_over.iter().any(|set: &Set| set.head == staged.head()) {
                continue;
            }
            let turn = staged.slot;
            let set = self.set_of(staging, staged);
            let (room, fresh) = match &*self.parts.catalog.buffers.slot(slot).read() {
                Slot::Open(open) => (open.room().saturating_sub(copies), open.is_empty()),
                _ => break,
            };
            if set.bytes() <= room || fresh {
                staging.pass(turn);
                copies += set.copies.min(room);
                set.objects.iter().for_each(|staged| self.pack_one(slot, staged, set.affinity));
                continue;
            }
            passed_over.push(set);
            if passed_over.len() >= PASSED_OVER {
                break;
            }
        }
        if let Some(set) = passed_over.first() {
            // Its end, so that most of it stays with the page.
            if cuts
                && (class != Class::Rest
                    || self.parts.catalog.buffers.room_in(slot) >= self.parts.medium.cluster_len() / WORTH_CUTTING)
            {
                set.objects.iter().rev().for_each(|staged| self.pack_one(slot, staged, set.affinity));
            }
            if let Some(at) = lane.iter().position(|open| *open == Some(slot)) {
                self.appender.seal(&mut lane[at])?;
            }
        }
        Ok(Ok(()))
    }

    /// What an object takes along: what waits of its locality set. The set is that of the page it was hinted to lie
    /// beside last, be that packed by now or not, or its own. The paper tells only what the least recently used one
    /// was to take along itself (§3.1); by that alone, the rest of a set that is larger than a cluster, and what is
    /// asked for beside a page that was packed before, would each lie among strangers.
    fn set_of(&self, staging: &Staging, first: StagedObject) -> Set {
        let head = first.head();
        let leads = head == first.frame.hash;
        let leader = if leads { None } else { self.parts.catalog.waiting().get(head) };
        let is_here = leads || leader.is_some();
        let objects = std::iter::once(first).chain(leader).collect();
        let mut set = Set { head, objects, copies: 0, affinity: self.parts.catalog.placer.affinity_of(head, None) };
        for hash in self.parts.catalog.placer.partners(head) {
            match self.parts.catalog.waiting().get(hash) {
                Some(staged) => set.objects.push(staged),
                // Copies are laid beside the one that was to take them along.
                None if is_here => {
                    set.copies += self.parts.catalog.resident(hash).map_or(0, |frame| Self::packed_len(&frame))
                }
                None => {}
            }
        }
        set.objects.extend(staging.led_by(head));
        let mut seen = HashSet::new();
        set.objects.retain(|staged| seen.insert(staged.slot));
        if !self.parts.catalog.placer.packs() {
            set.objects.sort_by_key(|staged| (staged.frame.hash != head, staged.number));
        }
        set
    }

    /// Moves an object from where it waits into the open buffer, if it is current and fits.
    fn pack_one(&self, slot: u32, staged: &StagedObject, affinity: u32) {
        let frame = &staged.frame;
        let Some(old) = self.parts.catalog.index.find(frame.hash, Location::Buffered { slot: staged.slot, offset: 0 })
        else {
            return;
        };
        let body = frame.body();
        let server = if staged.class == Class::Rest && affinity != 0 { affinity } else { frame.header.server };
        let header = frame::Header { server, ..frame.header };
        let draft = Draft { hash: frame.hash, header, key: frame.key(), metadata: frame.metadata(), body: &body };
        match &mut *self.parts.catalog.buffers.slot(slot).write() {
            Slot::Open(open) if open.fits(frame.header.frame_len()) => open.number = open.number.max(staged.number),
            _ => return,
        }
        if self.parts.catalog.enter_in(slot, &draft, Some(old)).is_ok() {
            add(&self.parts.shared.counters.packed, 1);
        }
    }
}

/// Whether objects may wait to be packed where they are placed so, in a store of this mode.
pub(crate) fn lets_wait(placement: Placement, mode: Mode) -> bool {
    mode == Mode::Cache && matches!(placement, Placement::Packing | Placement::Together)
}
