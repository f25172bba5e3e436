//! Changing the graph: many changes at once, all or none of each.
//!
//! Steps: the changes are made to copies of the records, and refused if one cannot be made; then sets of dependents
//! are written with what was added, and synced; then groups that lost a node, without it and else as they were, and
//! synced, if other groups change too; then the nodes, and synced: now they count. Where a mixture of old and new ones
//! could have a cycle, they are written in turns (`order.rs`), each synced. Then what was removed leaves the sets,
//! which is durable with the next call. Where a set moves to chunks, those are synced before it names them.
//!
//! Invariant: what a node is built from may be gone, where a crash came in between, and then it is as if the node were
//! not built from it; so the id of one that is gone is not given away while a node durably names it.

use std::collections::{BTreeMap, BTreeSet};

use picaflor_format::graph::{self, Edges, Node};

use crate::{
    base::{GraphError, Result},
    draft::Draft,
    graph::Graph,
    groups::{Key, damaged},
    order::Turns,
};

/// Most dependents that lie beside those of other nodes, as in the paper.
const SMALL: usize = 50;
/// Dependents of a chunk, on average at most.
const CHUNK: u32 = 512;

/// One change of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a node, or says anew what it is.
    Put {
        /// Its name.
        name: String,
        /// Whether it is a page.
        page: bool,
        /// What it is built from.
        dependencies: Vec<String>,
        /// When it is to be rebuilt at the latest, in seconds since 1970.
        expiry: Option<u64>,
    },
    /// Removes a node, from what others are built from, too. Of a name that is not there, nothing.
    Remove {
        /// Its name.
        name: String,
    },
}

impl Graph {
    /// Makes changes, in their order. They are durable when this returns; after a crash before, each has been made or
    /// not, and a later one may have been where an earlier one has not, but what is there has no cycle. After an error
    /// of the kinds below the store's, none was.
    ///
    /// # Errors
    /// [`GraphError::Cycle`] with the path, [`GraphError::Unknown`], [`GraphError::Full`]; those of the store.
    pub fn apply(&self, changes: &[Change]) -> Result<()> {
        let _turn = self.turn.write();
        let mut draft = Draft::default();
        for change in changes {
            match change {
                Change::Put { name, page, dependencies, expiry } => {
                    self.draft_put(&mut draft, name, *page, dependencies, *expiry)?;
                }
                Change::Remove { name } => self.draft_remove(&mut draft, name)?,
            }
        }
        self.write_draft(draft)
    }

    fn draft_put(
        &self,
        draft: &mut Draft,
        name: &str,
        page: bool,
        dependencies: &[String],
        expiry: Option<u64>,
    ) -> Result<()> {
        let mut ids = Vec::with_capacity(dependencies.len());
        for dependency in dependencies {
            if dependency == name {
                return Err(GraphError::Cycle(vec![name.to_owned(), name.to_owned()]));
            }
            let found = self.draft_find(draft, dependency)?;
            ids.push(found.ok_or_else(|| GraphError::Unknown(dependency.clone()))?);
        }
        ids.sort_unstable();
        ids.dedup();
        let id = match self.draft_find(draft, name)? {
            Some(id) => {
                self.refuse_cycle(draft, id, &ids)?;
                id
            }
            None => self.draft_place(draft, name)?,
        };
        let expiry = expiry.unwrap_or(0);
        let node = Node { page, expiry, name: name.as_bytes().to_vec(), dependencies: ids };
        let old = self.draft_node(draft, id)?.cloned().unwrap_or_default();
        for &dependency in node.dependencies.iter().filter(|it| old.dependencies.binary_search(it).is_err()) {
            draft.added.entry(dependency).or_default().insert(id);
        }
        draft.forget(id, &old, &node);
        if expiry != 0 && expiry / 60 != old.expiry / 60 {
            draft.expires.push((expiry / 60, id));
        }
        self.draft_set(draft, id, Some(node))
    }

    fn draft_remove(&self, draft: &mut Draft, name: &str) -> Result<()> {
        let Some(id) = self.draft_find(draft, name)? else { return Ok(()) };
        for dependent in self.draft_dependents(draft, id)? {
            if let Some(mut node) = self.draft_node(draft, dependent)?.cloned() {
                node.dependencies.retain(|&it| it != id);
                self.draft_set(draft, dependent, Some(node))?;
                draft.removed.push((id, dependent));
            }
        }
        let old = self.draft_node(draft, id)?.cloned().unwrap_or_default();
        draft.forget(id, &old, &Node::default());
        draft.gone.insert(id);
        self.draft_set(draft, id, None)
    }

    fn write_draft(&self, mut draft: Draft) -> Result<()> {
        let turns = self.turns(&mut draft)?;
        self.image.lock().outdate(&self.tables)?;
        for &(minute, id) in &draft.expires {
            self.change_expiries(minute, |ids| ids.insert(id))?;
        }
        let old_chunks = self.write_added(&draft.added)?;
        self.tables.commit()?;
        self.write_gone(&draft.gone, &draft.changed)?;
        self.write_nodes(&draft, &turns)?;
        for key in old_chunks {
            self.groups.write(key, Vec::new())?;
        }
        for (dependency, dependent) in draft.removed {
            let node = self.groups.node(dependent)?;
            // Put again by a later change of the same call.
            if node.is_none_or(|node| node.dependencies.binary_search(&dependency).is_err()) {
                self.take_out(dependency, dependent)?;
            }
        }
        for (minute, id) in draft.expired {
            if self.groups.node(id)?.is_none_or(|node| node.expiry / 60 != minute) {
                self.change_expiries(minute, |ids| ids.remove(&id))?;
            }
        }
        Ok(())
    }

    /// Writes nodes, those of each turn durably before the next.
    fn write_nodes(&self, draft: &Draft, turns: &Turns) -> Result<()> {
        for turn in 0..=turns.values().max().copied().unwrap_or(0) {
            for (&group, nodes) in draft.nodes.iter().filter(|(group, _)| draft.changed.contains(group)) {
                let ids = (0..nodes.len()).map(|place| self.groups.id(group, place));
                let due = ids.map(|id| Ok(turns.get(&id?).copied().unwrap_or(0))).collect::<Result<Vec<_>>>()?;
                if !due.contains(&turn) {
                    continue;
                }
                let mut items = self.items(Key::Nodes(group))?;
                items.resize(nodes.len(), Vec::new());
                for (place, node) in nodes.iter().enumerate().filter(|(place, _)| due[*place] <= turn) {
                    items[place] = node.as_ref().map_or_else(Vec::new, Node::encode);
                }
                self.groups.write(Key::Nodes(group), graph::encode_group(&items))?;
            }
            self.tables.commit()?;
        }
        Ok(())
    }

    /// Makes durable that nodes are gone, before those that name them are written without them: a crash in between must
    /// not leave a node that others have lost already.
    fn write_gone(&self, gone: &BTreeSet<u32>, changed: &BTreeSet<u32>) -> Result<()> {
        if gone.is_empty() || changed.len() < 2 {
            return Ok(());
        }
        let groups: BTreeSet<u32> = gone.iter().map(|&id| self.groups.place(id).0).collect();
        for group in groups {
            let mut items = self.items(Key::Nodes(group))?;
            for (place, item) in items.iter_mut().enumerate() {
                if gone.contains(&self.groups.id(group, place)?) {
                    item.clear();
                }
            }
            self.groups.write(Key::Nodes(group), graph::encode_group(&items))?;
        }
        Ok(self.tables.commit()?)
    }

    /// Writes sets with what was added; answers with the chunks that they no longer name.
    fn write_added(&self, added: &BTreeMap<u32, BTreeSet<u32>>) -> Result<Vec<Key>> {
        let mut groups: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
        for &id in added.keys() {
            let (group, place) = self.groups.place(id);
            groups.entry(group).or_default().push((place, id));
        }
        let mut old_chunks = Vec::new();
        let mut written = Vec::new();
        for (group, members) in groups {
            let mut items = self.items(Key::Edges(group))?;
            for (place, id) in members {
                items.resize(items.len().max(place + 1), Vec::new());
                let edges = Edges::decode(&items[place]).map_err(damaged(Key::Edges(group)))?;
                items[place] = self.with_added(id, edges, &added[&id], &mut old_chunks)?.encode();
            }
            written.push((Key::Edges(group), graph::encode_group(&items)));
        }
        self.tables.commit()?;
        for (key, bytes) in written {
            self.groups.write(key, bytes)?;
        }
        Ok(old_chunks)
    }

    fn items(&self, key: Key) -> Result<Vec<Vec<u8>>> {
        let bytes = self.groups.read(key)?;
        let count = if bytes.is_empty() { 0 } else { graph::items(&bytes).map_err(damaged(key))? };
        let items = (0..count).map(|place| graph::item(&bytes, place).map(<[u8]>::to_vec));
        items.collect::<Result<_, _>>().map_err(damaged(key))
    }

    /// A set with more in it; chunks are written at once.
    pub(crate) fn with_added(&self, id: u32, edges: Edges, more: &BTreeSet<u32>, old: &mut Vec<Key>) -> Result<Edges> {
        let (all, old_bits) = match edges {
            Edges::Small(ids) => (ids, None),
            Edges::Large { bits, count } if count + more.len() as u32 <= CHUNK << bits => {
                let mut count = count;
                for (which, some) in &chunked(more.iter().copied(), bits) {
                    let key = Key::Chunk(id, bits, *which);
                    let mut ids: BTreeSet<u32> = self.groups.chunk(key)?.into_iter().collect();
                    let before = ids.len();
                    ids.extend(some);
                    count += (ids.len() - before) as u32;
                    self.groups.write(key, graph::encode_ids(&ids.into_iter().collect::<Vec<_>>()))?;
                }
                return Ok(Edges::Large { bits, count });
            }
            Edges::Large { bits, .. } => (self.groups.edges(id)?, Some(bits)),
        };
        let all: BTreeSet<u32> = all.into_iter().chain(more.iter().copied()).collect();
        if all.len() <= SMALL {
            return Ok(Edges::Small(all.into_iter().collect()));
        }
        let count = all.len() as u32;
        // Half full, so that it is not done again soon.
        let bits = (count * 2).div_ceil(CHUNK).next_power_of_two().ilog2() as u8;
        for (which, ids) in chunked(all.into_iter(), bits) {
            self.groups.write(Key::Chunk(id, bits, which), graph::encode_ids(&ids))?;
        }
        if let Some(was) = old_bits.filter(|&was| was != bits) {
            old.extend((0..1u32 << was).map(|which| Key::Chunk(id, was, which)));
        }
        Ok(Edges::Large { bits, count })
    }

    fn take_out(&self, id: u32, dependent: u32) -> Result<()> {
        let (group, place) = self.groups.place(id);
        match self.groups.edges_record(id)? {
            Edges::Small(mut ids) => {
                ids.retain(|&it| it != dependent);
                let mut items = self.items(Key::Edges(group))?;
                if let Some(item) = items.get_mut(place) {
                    *item = Edges::Small(ids).encode();
                }
                self.groups.write(Key::Edges(group), graph::encode_group(&items))
            }
            Edges::Large { bits, .. } => {
                let key = Key::Chunk(id, bits, chunk_of(dependent, bits));
                let mut ids = self.groups.chunk(key)?;
                ids.retain(|&it| it != dependent);
                self.groups.write(key, if ids.is_empty() { Vec::new() } else { graph::encode_ids(&ids) })
            }
        }
    }

    pub(crate) fn change_expiries(&self, minute: u64, change: impl FnOnce(&mut BTreeSet<u32>) -> bool) -> Result<()> {
        let key = minute.to_le_bytes();
        let at = |why| GraphError::Damaged { at: format!("expiries of minute {minute}"), why: format!("{why}") };
        let ids = self.expiries.get(&key)?.map_or(Ok(Vec::new()), |bytes| graph::take_ids(&bytes).map_err(at))?;
        let mut ids: BTreeSet<u32> = ids.into_iter().collect();
        change(&mut ids);
        if ids.is_empty() {
            self.expiries.remove(&key)?;
        } else {
            self.expiries.put(&key, &graph::encode_ids(&ids.into_iter().collect::<Vec<_>>()))?;
        }
        Ok(())
    }
}

/// The chunk that a dependent is in.
fn chunk_of(dependent: u32, bits: u8) -> u32 {
    (dependent.wrapping_mul(0x9e37_79b1) >> 8) & ((1 << bits) - 1)
}

fn chunked(ids: impl Iterator<Item = u32>, bits: u8) -> BTreeMap<u32, Vec<u32>> {
    let mut chunks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    ids.for_each(|id| chunks.entry(chunk_of(id, bits)).or_default().push(id));
    chunks
}
