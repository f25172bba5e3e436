//! In which order nodes are written, where a crash in between could leave a cycle.
//!
//! Records of several groups become durable in any order, so a crash may find a mixture of old and new ones, and edges
//! that were turned round may meet in it.
//!
//! Invariant: a node is written when those are durable as they will be that were, directly or not, built from it. So
//! what is still as it was leads to such nodes only, and none of them back to what is not: a cycle would be one of old
//! records alone, or of new ones alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{base::Result, draft::Draft, graph::Graph};

/// When each node is written: in the first turn, 0, unless it is named here.
pub(crate) type Turns = HashMap<u32, u32>;

impl Graph {
    /// The turns of what changes. One for all where no mixture has a cycle, as nearly always.
    pub(crate) fn turns(&self, draft: &mut Draft) -> Result<Turns> {
        // What one group holds is written as one.
        if draft.removed.is_empty() || draft.changed.len() < 2 {
            return Ok(Turns::new());
        }
        let moved = self.moved(draft)?;
        for (&id, added) in &moved {
            if !added.is_empty() && self.may_meet(draft, id, added)? {
                return self.by_dependents(&moved);
            }
        }
        Ok(Turns::new())
    }

    /// Nodes that will be built from something else than now, and from what besides.
    fn moved(&self, draft: &Draft) -> Result<BTreeMap<u32, BTreeSet<u32>>> {
        let mut moved = BTreeMap::new();
        for (&group, nodes) in draft.nodes.iter().filter(|(group, _)| draft.changed.contains(group)) {
            for (place, node) in nodes.iter().enumerate() {
                let id = self.groups.id(group, place)?;
                let Some(node) = node else { continue };
                let Some(old) = self.groups.node(id)?.filter(|old| old.dependencies != node.dependencies) else {
                    continue;
                };
                let is_new = |it: &&u32| old.dependencies.binary_search(it).is_err();
                moved.insert(id, node.dependencies.iter().filter(is_new).copied().collect());
            }
        }
        Ok(moved)
    }

    /// Whether one of these is built from a node by edges of now and of then.
    fn may_meet(&self, draft: &mut Draft, id: u32, these: &BTreeSet<u32>) -> Result<bool> {
        let mut seen = HashSet::from([id]);
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            if these.contains(&at) {
                return Ok(true);
            }
            let mut dependents = self.dependents_of(at, &mut HashMap::new())?;
            dependents.extend(self.draft_dependents(draft, at)?);
            stack.extend(dependents.into_iter().filter(|dependent| seen.insert(*dependent)));
        }
        Ok(false)
    }

    /// Of each, how many of the others stand above it in the longest chain of dependents, as they are now.
    fn by_dependents(&self, moved: &BTreeMap<u32, BTreeSet<u32>>) -> Result<Turns> {
        let (mut turns, mut entered) = (Turns::new(), HashSet::new());
        let mut stack: Vec<u32> = moved.keys().copied().collect();
        while let Some(&at) = stack.last() {
            if turns.contains_key(&at) {
                stack.pop();
                continue;
            }
            let dependents = self.dependents_of(at, &mut HashMap::new())?;
            if entered.insert(at) {
                // One that was entered is above itself: older versions of this program may have left that.
                stack.extend(dependents.iter().filter(|it| !turns.contains_key(it) && !entered.contains(it)));
                continue;
            }
            let behind = |it: &u32| turns.get(it).map(|turn| turn + u32::from(moved.contains_key(it)));
            let turn = dependents.iter().filter_map(behind).max().unwrap_or(0);
            turns.insert(at, turn);
            stack.pop();
        }
        turns.retain(|id, _| moved.contains_key(id));
        Ok(turns)
    }
}
