//! What changes would make of the graph, before anything is written: a refused one leaves no trace.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry};

use picaflor_format::graph::{self, Node};

use crate::{
    base::{GraphError, Result},
    graph::Graph,
    groups::{Key, damaged},
    publish::name_of,
};

/// Records as they will be.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) nodes: BTreeMap<u32, Vec<Option<Node>>>,
    /// Groups of which a node changed; others were looked at only.
    pub(crate) changed: BTreeSet<u32>,
    /// Ids of nodes that were removed.
    pub(crate) gone: BTreeSet<u32>,
    pub(crate) added: BTreeMap<u32, BTreeSet<u32>>,
    pub(crate) removed: Vec<(u32, u32)>,
    pub(crate) expires: Vec<(u64, u32)>,
    pub(crate) expired: Vec<(u64, u32)>,
}

impl Draft {
    /// Notes what a node was and is no longer.
    pub(crate) fn forget(&mut self, id: u32, old: &Node, new: &Node) {
        let gone = old.dependencies.iter().filter(|it| new.dependencies.binary_search(it).is_err());
        self.removed.extend(gone.map(|&dependency| (dependency, id)));
        if old.expiry != 0 && old.expiry / 60 != new.expiry / 60 {
            self.expired.push((old.expiry / 60, id));
        }
    }
}

impl Graph {
    /// The nodes of a group, in the draft from now on.
    pub(crate) fn draft_group<'a>(&self, draft: &'a mut Draft, group: u32) -> Result<&'a mut Vec<Option<Node>>> {
        let vacant = match draft.nodes.entry(group) {
            Entry::Occupied(nodes) => return Ok(nodes.into_mut()),
            Entry::Vacant(vacant) => vacant,
        };
        let key = Key::Nodes(group);
        let bytes = self.groups.read(key)?;
        let count = if bytes.is_empty() { 0 } else { graph::items(&bytes).map_err(damaged(key))? };
        let nodes = (0..count).map(|place| graph::item(&bytes, place).and_then(Node::decode));
        let nodes = nodes.collect::<Result<Vec<_>, _>>().map_err(damaged(key))?;
        Ok(vacant.insert(nodes))
    }

    pub(crate) fn draft_find(&self, draft: &mut Draft, name: &str) -> Result<Option<u32>> {
        let group = self.groups.group_of_name(name.as_bytes());
        let nodes = self.draft_group(draft, group)?;
        let is_it = |node: &Option<Node>| node.as_ref().is_some_and(|node| node.name == name.as_bytes());
        nodes.iter().position(is_it).map(|place| self.groups.id(group, place)).transpose()
    }

    /// A free place for a new node, whose id no other node names.
    pub(crate) fn draft_place(&self, draft: &mut Draft, name: &str) -> Result<u32> {
        let group = self.groups.group_of_name(name.as_bytes());
        let nodes = self.draft_group(draft, group)?;
        let free: Vec<usize> = (0..nodes.len()).filter(|&place| nodes[place].is_none()).collect();
        for place in free {
            let id = self.groups.id(group, place)?;
            // As the records are, not as they will be: a crash may keep this node and not that change.
            if !draft.gone.contains(&id) && self.dependents_of(id, &mut HashMap::new())?.is_empty() {
                return Ok(id);
            }
        }
        let nodes = self.draft_group(draft, group)?;
        nodes.push(None);
        self.groups.id(group, nodes.len() - 1)
    }

    pub(crate) fn draft_node<'a>(&self, draft: &'a mut Draft, id: u32) -> Result<Option<&'a Node>> {
        let (group, place) = self.groups.place(id);
        Ok(self.draft_group(draft, group)?.get(place).and_then(Option::as_ref))
    }

    pub(crate) fn draft_set(&self, draft: &mut Draft, id: u32, node: Option<Node>) -> Result<()> {
        let (group, place) = self.groups.place(id);
        if let Some(at) = self.draft_group(draft, group)?.get_mut(place) {
            *at = node;
            draft.changed.insert(group);
        }
        Ok(())
    }

    pub(crate) fn draft_dependents(&self, draft: &mut Draft, id: u32) -> Result<Vec<u32>> {
        let mut claimed: BTreeSet<u32> = self.groups.edges(id)?.into_iter().collect();
        claimed.extend(draft.added.get(&id).into_iter().flatten());
        let mut dependents = Vec::new();
        for dependent in claimed {
            let node = self.draft_node(draft, dependent)?;
            if node.is_some_and(|node| node.dependencies.binary_search(&id).is_ok()) {
                dependents.push(dependent);
            }
        }
        Ok(dependents)
    }

    /// Refuses that a node is built from something that is built from it.
    pub(crate) fn refuse_cycle(&self, draft: &mut Draft, id: u32, dependencies: &[u32]) -> Result<()> {
        let mut from: HashMap<u32, u32> = HashMap::new();
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            if at != id && dependencies.binary_search(&at).is_ok() {
                let mut path = vec![id, at];
                while let Some(&next) = path.last().filter(|last| **last != id).and_then(|last| from.get(last)) {
                    path.push(next);
                }
                let mut names = Vec::new();
                for id in path {
                    names.extend(self.draft_node(draft, id)?.map(name_of));
                }
                return Err(GraphError::Cycle(names));
            }
            for dependent in self.draft_dependents(draft, at)? {
                from.entry(dependent).or_insert_with(|| {
                    stack.push(dependent);
                    at
                });
            }
        }
        Ok(())
    }
}
