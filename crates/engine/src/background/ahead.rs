//! What is read of victims ahead of their turn. One after the other each would wait for the device, and puts for each,
//! where a device answers eight reads hardly later than one; so a batch of them is read together, and, where the
//! reclaimer is a thread, while the batch before is emptied.
//!
//! Steps: the tables of the next victims are asked for → when they have come, the frames that may be put again, or at
//! once all of each victim → these are found when their cluster's turn comes.
//!
//! Invariant: what was read of a cluster is used only if that was not granted anew since it was asked for; and by the
//! holder of the reclaimer's turn alone.

use std::{collections::HashMap, mem};

use picaflor_format::cluster::Row;

use super::contents::{Bytes, Contents, VictimReader};
use crate::{
    base::medium::Begun,
    base::options::Daemons,
    space::{Space, Victim},
};

/// Most victims of a batch: more would wait in the device rather than in the queue.
const MOST: u64 = 16;
/// What is read of a batch may take so much of the memory.
const PART: u64 = 16;
/// Of all clusters, so many at the most are of a batch.
const SHARE: u64 = 16;

/// What was read of victims, or is under way.
#[derive(Default)]
pub(crate) struct Ahead {
    found: HashMap<u32, Contents>,
    coming: Coming,
    /// The grants of clusters that were asked for.
    asked: HashMap<u32, u32>,
}

/// The batch that is under way.
#[derive(Default)]
enum Coming {
    #[default]
    Nothing,
    Tables(Vec<u32>, Begun),
    /// All of them.
    Wholes(Vec<u32>, Begun),
    Frames(Vec<Wanted>, Begun),
}

/// A victim, its table, and where its frames are read.
type Wanted = (u32, Vec<Row>, Vec<(usize, usize)>);

impl Ahead {
    pub(crate) fn len(&self) -> u32 {
        self.found.len() as u32
    }

    /// What was read of the cluster that is next.
    pub(crate) fn take(&mut self, space: &Space, victim: u32) -> Option<Contents> {
        let found = self.found.remove(&victim);
        if found.is_none() {
            // Others come first than it seemed.
            self.found.clear();
        }
        found.filter(|_| is_as_asked(space, &self.asked, victim))
    }
}

impl VictimReader {
    /// Has something of the next victims, where it is known which these are, and a table is what is read.
    pub(crate) fn fill(&self, ahead: &mut Ahead, most: u32) {
        let Ahead { found, asked, .. } = ahead;
        found.retain(|victim, _| is_as_asked(&self.parts.space, asked, *victim));
        if !self.knows_next() {
            *ahead = Ahead::default();
        } else if ahead.found.is_empty() {
            if matches!(ahead.coming, Coming::Nothing) {
                self.begin(ahead, most);
            }
            self.ask_for_frames(ahead);
            self.end(ahead);
        }
    }

    /// Keeps the device at work while the victims that were found are emptied.
    pub(crate) fn go_on(&self, ahead: &mut Ahead) {
        if self.overlaps() && ahead.len() > 0 {
            let (left, batch) = (ahead.len(), self.batch());
            match ahead.coming {
                Coming::Nothing => self.begin(ahead, batch),
                Coming::Tables(..) if left <= batch / 2 => self.ask_for_frames(ahead),
                _ => {}
            }
        }
    }

    fn overlaps(&self) -> bool {
        self.parts.shared.options.daemons == Daemons::Threads
    }

    fn knows_next(&self) -> bool {
        let parts = &self.parts;
        let is_known = matches!(parts.shared.eviction().victim(), Victim::Oldest | Victim::Queued | Victim::Emptiest);
        is_known && parts.residents.listed.is_none() && !parts.residents.reader.is_by_cluster()
    }

    /// Most victims of a batch.
    fn batch(&self) -> u32 {
        let room = self.parts.shared.options.memory / PART / self.parts.medium.cluster_len() as u64;
        room.min(MOST).min(u64::from(self.parts.space.count()) / SHARE) as u32
    }

    /// Asks for the next batch: for the tables, or for all of each where every header matters.
    fn begin(&self, ahead: &mut Ahead, most: u32) {
        let needs_all = self.needs_all(self.parts.shared.leases.none().is_some());
        let most = if self.overlaps() && !needs_all { self.batch() } else { self.batch().min(most) };
        if most < 2 {
            return;
        }
        let space = &self.parts.space;
        let which = self.parts.shared.eviction().victim();
        let mut victims = space.victims().next(which, ahead.found.len() + most as usize);
        victims.retain(|victim| !ahead.found.contains_key(victim));
        ahead.asked.retain(|victim, _| ahead.found.contains_key(victim));
        ahead.asked.extend(victims.iter().map(|victim| (*victim, space.grants.last(*victim))));
        // Behind that: what was granted anew before it is not on the device yet.
        victims.retain(|victim| space.state(*victim).is_read());
        let medium = &self.parts.medium;
        ahead.coming = if needs_all {
            let reads = medium.batch(victims.iter().map(|victim| (*victim, 0, medium.cluster_len()))).begin();
            Coming::Wholes(victims, reads)
        } else {
            let reads = medium.batch(medium.table_places(&victims)).begin();
            Coming::Tables(victims, reads)
        };
    }

    /// When the tables have come.
    fn ask_for_frames(&self, ahead: &mut Ahead) {
        let (victims, reads) = match mem::take(&mut ahead.coming) {
            Coming::Tables(victims, reads) => (victims, reads),
            other => return ahead.coming = other,
        };
        let (parts, mut left) = (&self.parts, self.budget());
        let wanted = |(victim, rows): (u32, Vec<Row>)| {
            let live = parts.catalog.entries_of(victim, rows.clone());
            (victim, rows, self.survivors(&mut left, &live))
        };
        let tables = parts.medium.tables(&victims, reads.wait());
        let wanted: Vec<Wanted> = tables.into_iter().map(wanted).collect();
        let places = wanted.iter().flat_map(|(victim, _, pieces)| pieces.iter().map(|(at, len)| (*victim, *at, *len)));
        let reads = parts.medium.batch(places).begin();
        ahead.coming = Coming::Frames(wanted, reads);
    }

    fn end(&self, ahead: &mut Ahead) {
        match mem::take(&mut ahead.coming) {
            Coming::Frames(wanted, reads) => {
                let mut read = reads.wait().into_iter();
                for (victim, rows, places) in wanted {
                    let bytes = Bytes::of(places, &mut read);
                    ahead.found.insert(victim, Contents { rows, bytes });
                }
            }
            Coming::Wholes(victims, reads) => {
                for (victim, bytes) in victims.into_iter().zip(reads.wait()) {
                    if let Some(bytes) = bytes
                        && let Ok(rows) = self.parts.medium.rows_in(victim, &bytes)
                    {
                        ahead.found.insert(victim, Contents { rows, bytes: Bytes::All(bytes) });
                    }
                }
            }
            Coming::Nothing | Coming::Tables(..) => {}
        }
    }
}

/// Whether a cluster was not granted anew since it was asked for.
fn is_as_asked(space: &Space, asked: &HashMap<u32, u32>, victim: u32) -> bool {
    asked.get(&victim) == Some(&space.grants.last(victim))
}
