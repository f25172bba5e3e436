//! Building a large graph at once: each record is written once, where changes would rewrite it for every node and edge
//! that comes to it.
//!
//! Steps: nodes come in, each after what it is built from, get their ids, and are laid aside by groups; what they are
//! built from is laid aside by the groups of those. Then groups, some at a time: names become ids, and the sets of
//! dependents are written; what a node is built from, now by id, is laid aside by its group. Then groups again: their
//! nodes are written. What is laid aside is in a file. If all records fit in memory, they are read in the end, for the
//! image that a close leaves.
//!
//! Invariants: the graph was blank, and the settings say that it is being built until all is durable, so an opening
//! does not take half of it for a graph. A node that is built from none that came later has no cycle.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::Arc,
};

use picaflor_device::Device;
use picaflor_format::graph::{self, Edges, Node};

use crate::{
    base::{GraphError, GraphOptions, Result},
    change::Change,
    graph::{BUILDING, Graph},
    groups::Key,
    spill::{Records, Spill},
};

/// Bytes that a node and its edges take while their groups are made, about.
const NODE_BYTES: u64 = 1024;
/// The part of the memory for groups that are being made.
const SHARE: u64 = 16;
/// Most parts: each has a block of memory of its own.
const PARTS: u64 = 512;

/// What [`Graph::build`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Built {
    /// Nodes.
    pub nodes: u64,
    /// Edges.
    pub edges: u64,
    /// Records written, each once.
    pub records: u64,
    /// Most bytes of laid-aside nodes and edges that were in memory at a time.
    pub held: u64,
}

/// A graph that is being built.
struct Builder<'a> {
    graph: &'a Graph,
    parts: u32,
    /// Nodes so far, by group.
    filled: Vec<u16>,
    /// By group: number, place, and the node without what it is built from.
    nodes: Spill,
    /// By group of the name: the dependent's number and id, and the name.
    wanted: Spill,
    /// By group of the dependent: its id, and that of what it is built from.
    found: Spill,
    built: Built,
}

fn spilled(source: io::Error) -> GraphError {
    GraphError::Spill(source)
}

impl Graph {
    /// Makes a graph on a blank device from all its nodes at once, each after everything it is built from. `folder` is
    /// where a file grows to about the size of names and edges; it is gone afterwards. After a crash the device has to
    /// be made blank again.
    ///
    /// # Errors
    /// [`GraphError::Order`] for a node that comes twice, or is to be removed; [`GraphError::Unknown`] for one that is
    /// to be built from what did not come before it; [`GraphError::NotBlank`]; [`GraphError::Spill`]; those of
    /// [`Graph::open`].
    pub fn build(
        device: Arc<dyn Device>,
        options: &GraphOptions,
        folder: &Path,
        nodes: impl IntoIterator<Item = Change>,
    ) -> Result<(Self, Built)> {
        let graph = Self::open(device, options)?;
        if !graph.groups.is_new() {
            return Err(GraphError::NotBlank);
        }
        let settings = graph.tables.table("settings")?;
        settings.put(BUILDING, &[1])?;
        graph.tables.commit()?;
        let mut builder = Builder::new(&graph, options, folder)?;
        for node in nodes {
            builder.take(node)?;
        }
        for part in 0..builder.parts {
            builder.write_edges(part)?;
        }
        for part in 0..builder.parts {
            builder.write_nodes(part)?;
        }
        let built = builder.built;
        settings.remove(BUILDING)?;
        graph.tables.commit()?;
        graph.groups.warm(graph.tables.space()?.requested)?;
        Ok((graph, built))
    }
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, options: &GraphOptions, folder: &Path) -> Result<Self> {
        let groups = graph.groups.count();
        let room = (options.memory as u64 / SHARE).max(1);
        let parts =
            (u64::from(options.nodes) * NODE_BYTES).div_ceil(room).clamp(1, PARTS.min(u64::from(groups))) as u32;
        let spill = || Spill::new(folder, parts as usize).map_err(spilled);
        Ok(Self {
            graph,
            parts,
            filled: vec![0; groups as usize],
            nodes: spill()?,
            wanted: spill()?,
            found: spill()?,
            built: Built::default(),
        })
    }

    /// Groups of a part stand side by side, so that the records of one are near each other.
    fn part_of(&self, group: u32) -> usize {
        (u64::from(group) * u64::from(self.parts) / u64::from(self.graph.groups.count())) as usize
    }

    fn take(&mut self, node: Change) -> Result<()> {
        let Change::Put { name, page, dependencies, expiry } = node else {
            let Change::Remove { name } = node else { return Ok(()) };
            return Err(GraphError::Order(name));
        };
        let groups = &self.graph.groups;
        let group = groups.group_of_name(name.as_bytes());
        let place = self.filled[group as usize];
        self.filled[group as usize] = place.checked_add(1).ok_or(GraphError::Full)?;
        let id = groups.id(group, usize::from(place))?;
        let number = self.built.nodes;
        self.built.nodes += 1;
        let mut unique: Vec<&String> = dependencies.iter().collect();
        unique.sort_unstable();
        unique.dedup();
        for dependency in unique {
            let part = self.part_of(groups.group_of_name(dependency.as_bytes()));
            self.wanted.add(part, &[number, u64::from(id)], dependency.as_bytes()).map_err(spilled)?;
            self.built.edges += 1;
        }
        let item = Node { page, expiry: expiry.unwrap_or(0), name: name.into_bytes(), dependencies: Vec::new() };
        self.nodes.add(self.part_of(group), &[number, u64::from(id)], &item.encode()).map_err(spilled)
    }

    /// Names become ids, and the sets of dependents of a part are written.
    fn write_edges(&mut self, part: u32) -> Result<()> {
        let groups = &self.graph.groups;
        let nodes = self.nodes.take(part as usize).map_err(spilled)?;
        let wanted = self.wanted.take(part as usize).map_err(spilled)?;
        self.built.held = self.built.held.max((nodes.len() + wanted.len()) as u64);
        let mut known: HashMap<Vec<u8>, (u64, u32)> = HashMap::new();
        for ([number, id], item) in Records::<2>(&nodes) {
            let node = Node::decode(item).map_err(crate::groups::damaged(Key::Nodes(id as u32)))?.unwrap_or_default();
            let name = crate::publish::name_of(&node);
            if known.insert(node.name, (number, id as u32)).is_some() {
                return Err(GraphError::Order(name));
            }
            // They are needed once more, with what they are built from.
            self.found.add(part as usize, &[id, u64::MAX], item).map_err(spilled)?;
        }
        let mut dependents: BTreeMap<(u32, usize), BTreeSet<u32>> = BTreeMap::new();
        for ([number, dependent], name) in Records::<2>(&wanted) {
            let id = known.get(name).filter(|(before, _)| *before < number).map(|(_, id)| *id);
            let id = id.ok_or_else(|| GraphError::Unknown(String::from_utf8_lossy(name).into_owned()))?;
            dependents.entry(groups.place(id)).or_default().insert(dependent as u32);
            let part = self.part_of(groups.place(dependent as u32).0);
            self.found.add(part, &[dependent, u64::from(id)], &[]).map_err(spilled)?;
        }
        let mut dependents = dependents.into_iter().peekable();
        while let Some(&((group, _), _)) = dependents.peek() {
            let mut items: Vec<Vec<u8>> = Vec::new();
            while let Some(((_, place), some)) = dependents.next_if(|((of, _), _)| *of == group) {
                items.resize(place + 1, Vec::new());
                let edges =
                    self.graph.with_added(groups.id(group, place)?, Edges::default(), &some, &mut Vec::new())?;
                if let Edges::Large { bits, .. } = edges {
                    self.built.records += 1 << bits;
                }
                items[place] = edges.encode();
            }
            groups.write_past(Key::Edges(group), &graph::encode_group(&items))?;
            self.built.records += 1;
        }
        Ok(self.graph.tables.commit()?)
    }

    /// The nodes of a part are written, with what they are built from.
    fn write_nodes(&mut self, part: u32) -> Result<()> {
        let groups = &self.graph.groups;
        let found = self.found.take(part as usize).map_err(spilled)?;
        self.built.held = self.built.held.max(found.len() as u64);
        let mut nodes: BTreeMap<(u32, usize), Node> = BTreeMap::new();
        let mut edges: Vec<(u32, u32)> = Vec::new();
        for ([id, other], item) in Records::<2>(&found) {
            let id = id as u32;
            if other == u64::MAX {
                let node = Node::decode(item).map_err(crate::groups::damaged(Key::Nodes(id)))?;
                nodes.insert(groups.place(id), node.unwrap_or_default());
            } else {
                edges.push((id, other as u32));
            }
        }
        edges.sort_unstable();
        let mut expiries: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for of_one in edges.chunk_by(|a, b| a.0 == b.0) {
            if let Some(node) = nodes.get_mut(&groups.place(of_one[0].0)) {
                node.dependencies = of_one.iter().map(|(_, id)| *id).collect();
            }
        }
        let mut nodes = nodes.into_iter().peekable();
        while let Some(&((group, _), _)) = nodes.peek() {
            let mut items = Vec::new();
            // Places of a group are filled from the first on.
            while let Some(((_, place), node)) = nodes.next_if(|((of, _), _)| *of == group) {
                if node.expiry != 0 {
                    expiries.entry(node.expiry / 60).or_default().insert(groups.id(group, place)?);
                }
                items.push(node.encode());
            }
            groups.write_past(Key::Nodes(group), &graph::encode_group(&items))?;
            self.built.records += 1;
        }
        for (minute, some) in expiries {
            self.graph.change_expiries(minute, |ids| {
                ids.extend(some);
                true
            })?;
        }
        Ok(self.graph.tables.commit()?)
    }
}
