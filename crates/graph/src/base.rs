//! How a graph is opened, and why a call fails.

/// How a graph is opened.
#[derive(Debug, Clone)]
pub struct GraphOptions {
    /// Bytes of records and of index pages in memory, three quarters and one. Default 64 MiB.
    pub memory: usize,
    /// About how many nodes there will be; of a graph that is made by this opening. With many more, calls take longer.
    /// Default 100,000.
    pub nodes: u32,
    /// Seed of the hash of its tables, of a graph that is made by this opening, for runs that are to repeat. Default
    /// random.
    pub seed: Option<u64>,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { memory: 64 << 20, nodes: 100_000, seed: None }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The hash tables failed.
    #[error(transparent)]
    Store(#[from] picaflor_table::Error),
    /// These would depend on each other; nothing was changed.
    #[error("a cycle: {}", .0.join(" is built from "))]
    Cycle(Vec<String>),
    /// A node is to be built from something that is not in the graph.
    #[error("{0} is not in the graph; add it first, or earlier in the same call")]
    Unknown(String),
    /// A record is not what was written.
    #[error("record {at} of the graph is damaged: {why}; make the graph again from its source")]
    Damaged {
        /// Which one.
        at: String,
        /// What does not fit.
        why: String,
    },
    /// A graph was to be built where there is one.
    #[error("there is a graph already; build on a blank device, or change what is there")]
    NotBlank,
    /// A build was cut short.
    #[error("this graph was not built to its end; make the device blank and build it again")]
    HalfBuilt,
    /// A build takes each node once.
    #[error("{0} comes twice, or is to be removed; a graph is built from each node once")]
    Order(String),
    /// What is laid aside during a build could not be.
    #[error("laying aside what does not fit in memory: {0}")]
    Spill(std::io::Error),
    /// No more nodes than 2^32.
    #[error("the graph has all the nodes it can have")]
    Full,
}

/// The result of the graph's calls.
pub type Result<T, E = GraphError> = std::result::Result<T, E>;
