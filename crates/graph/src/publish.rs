//! Reading the graph: what is to be rebuilt when something changes.
//!
//! Steps of a publish: everything that is built from what changed is found, breadth first, each edge checked against
//! the record it comes from; then what waits for nothing goes first, and frees what waits for it (Kahn 1962).

use std::collections::{HashMap, VecDeque};

use picaflor_format::graph::{self, Edges, Node};

use crate::{
    base::{GraphError, Result},
    graph::{About, Graph},
    groups::{Key, damaged},
};

impl Graph {
    /// What is to be rebuilt when these change, each after everything it is built from. What changed is not among them,
    /// but where it is built from something else that changed. Names that are not in the graph are passed over.
    ///
    /// # Errors
    /// [`GraphError::Store`], [`GraphError::Damaged`].
    pub fn publish(&self, changed: &[&str]) -> Result<Vec<String>> {
        let _turn = self.turn.read();
        let mut nodes: HashMap<u32, Node> = HashMap::new();
        // How many of those that changed or are to be rebuilt a node waits for, and which wait for it.
        let mut waits: HashMap<u32, usize> = HashMap::new();
        let mut next: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut queue = VecDeque::new();
        let group = |name: &&str| Key::Nodes(self.groups.group_of_name(name.as_bytes()));
        self.groups.read_ahead(changed.iter().map(group))?;
        for name in changed {
            if let Some((id, _)) = self.find(name)?
                && next.insert(id, Vec::new()).is_none()
            {
                queue.push_back(id);
            }
        }
        let roots: Vec<u32> = queue.iter().copied().collect();
        // Records of as many as wait in the queue are brought in before the first of them is looked at.
        let mut ready_for = 0;
        while let Some(id) = queue.pop_front() {
            if ready_for == 0 {
                ready_for = queue.len() + 1;
                self.read_dependents_ahead([id].iter().chain(&queue))?;
            }
            ready_for -= 1;
            let dependents = self.dependents_of(id, &mut nodes)?;
            for &dependent in &dependents {
                *waits.entry(dependent).or_default() += 1;
                next.entry(dependent).or_insert_with(|| {
                    queue.push_back(dependent);
                    Vec::new()
                });
            }
            next.insert(id, dependents);
        }
        let mut ready: VecDeque<u32> = roots.into_iter().filter(|id| !waits.contains_key(id)).collect();
        let mut order = Vec::new();
        while let Some(id) = ready.pop_front() {
            for dependent in &next[&id] {
                let Some(left) = waits.get_mut(dependent) else { continue };
                *left -= 1;
                if *left == 0 {
                    ready.push_back(*dependent);
                    order.extend(nodes.get(dependent).map(name_of));
                }
            }
        }
        Ok(order)
    }

    /// What is built from this directly, in no order; `None` if it is not in the graph.
    ///
    /// # Errors
    /// As [`Graph::publish`].
    pub fn dependents(&self, name: &str) -> Result<Option<Vec<String>>> {
        let _turn = self.turn.read();
        let Some((id, _)) = self.find(name)? else { return Ok(None) };
        let mut nodes = HashMap::new();
        let ids = self.dependents_of(id, &mut nodes)?;
        Ok(Some(ids.iter().filter_map(|id| nodes.get(id)).map(name_of).collect()))
    }

    /// What is known of a node; `None` if it is not in the graph.
    ///
    /// # Errors
    /// As [`Graph::publish`].
    pub fn node(&self, name: &str) -> Result<Option<About>> {
        let _turn = self.turn.read();
        let Some((_, node)) = self.find(name)? else { return Ok(None) };
        let mut dependencies = Vec::with_capacity(node.dependencies.len());
        for &id in &node.dependencies {
            dependencies.extend(self.groups.node(id)?.as_ref().map(name_of));
        }
        let expiry = (node.expiry != 0).then_some(node.expiry);
        Ok(Some(About { page: node.page, expiry, dependencies }))
    }

    /// The names of what was to be rebuilt by `now`, in seconds since 1970, and was not given another expiry since.
    ///
    /// # Errors
    /// As [`Graph::publish`].
    pub fn expired(&self, now: u64) -> Result<Vec<String>> {
        let _turn = self.turn.read();
        let mut names = Vec::new();
        for pair in self.expiries.pairs() {
            let (minute, bytes) = pair?;
            let minute = minute.first_chunk::<8>().map_or(u64::MAX, |&bytes| u64::from_le_bytes(bytes));
            if minute > now / 60 {
                continue;
            }
            let at = || format!("expiries of minute {minute}");
            let ids = graph::take_ids(&bytes);
            for id in ids.map_err(|why| GraphError::Damaged { at: at(), why: why.to_string() })? {
                // The node's own record counts; the list may know what it was before.
                let node = self.groups.node(id)?;
                let is_due = |node: &Node| node.expiry != 0 && node.expiry / 60 == minute && node.expiry <= now;
                names.extend(node.filter(is_due).as_ref().map(name_of));
            }
        }
        Ok(names)
    }

    /// A node and its id.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(u32, Node)>> {
        let group = self.groups.group_of_name(name.as_bytes());
        let key = Key::Nodes(group);
        let bytes = self.groups.read(key)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        for place in 0..graph::items(&bytes).map_err(damaged(key))? {
            let node = graph::item(&bytes, place).and_then(Node::decode).map_err(damaged(key))?;
            if let Some(node) = node.filter(|node| node.name == name.as_bytes()) {
                return Ok(Some((self.groups.id(group, place)?, node)));
            }
        }
        Ok(None)
    }

    /// Brings in what [`Graph::dependents_of`] reads of these.
    fn read_dependents_ahead<'a>(&self, ids: impl Iterator<Item = &'a u32> + Clone) -> Result<()> {
        let group = |id: &u32| self.groups.place(*id).0;
        self.groups.read_ahead(ids.clone().map(|id| Key::Edges(group(id))))?;
        let mut chunks = Vec::new();
        for &id in ids.clone() {
            if let Edges::Large { bits, .. } = self.groups.edges_record(id)? {
                chunks.extend((0..1u32 << bits).map(|which| Key::Chunk(id, bits, which)));
            }
        }
        self.groups.read_ahead(chunks.into_iter())?;
        let mut nodes = Vec::new();
        for &id in ids {
            nodes.extend(self.groups.edges(id)?.iter().map(|id| Key::Nodes(group(id))));
        }
        self.groups.read_ahead(nodes.into_iter())
    }

    /// Who is built from a node; their records go to `nodes`.
    pub(crate) fn dependents_of(&self, id: u32, nodes: &mut HashMap<u32, Node>) -> Result<Vec<u32>> {
        let mut dependents = self.groups.edges(id)?;
        for &dependent in &dependents {
            if !nodes.contains_key(&dependent)
                && let Some(node) = self.groups.node(dependent)?
            {
                nodes.insert(dependent, node);
            }
        }
        let is_built_from = |node: &Node| node.dependencies.binary_search(&id).is_ok();
        dependents.retain(|dependent| nodes.get(dependent).is_some_and(is_built_from));
        Ok(dependents)
    }
}

pub(crate) fn name_of(node: &Node) -> String {
    String::from_utf8_lossy(&node.name).into_owned()
}
