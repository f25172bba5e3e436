//! What is replayed: made from a seed, a trace that comes with the lab many times over, or a trace of the user's.

use std::{path::PathBuf, sync::Arc};

use crate::{
    Error, Result,
    synth::{Dice, Sites, Synthetic},
    trace::{Known, Report, Request, Trace},
};

/// What is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// One of the synthetic ones.
    Synthetic(Synthetic),
    /// So many sites side by side, each asked as this trace has it.
    Sites(Known, u32),
    /// Several of these, one request of each in turn.
    Several(Vec<(Known, u32)>),
    /// A trace of a file.
    Loaded(Loaded),
}

/// A trace in memory, with settled sizes; who runs it again shares it.
#[derive(Debug, Clone)]
pub struct Loaded(Arc<Trace>);

impl Loaded {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is no trace, or has no request of which a size is told.
    pub fn read(path: PathBuf) -> Result<Self> {
        let name = path.display().to_string();
        let mut trace = Trace::load(&[path], None, |_| {})?;
        trace.settle_sizes();
        if trace.requests.is_empty() {
            return Err(Error::Trace { name, why: "has no request whose object's size is ever told".into() });
        }
        Ok(Self(Arc::new(trace)))
    }

    /// A trace with settled sizes.
    pub(super) fn of(trace: Arc<Trace>) -> Self {
        Self(trace)
    }

    /// What it was taken for, and what in it was bad.
    pub fn reports(&self) -> &[Report] {
        &self.0.reports
    }

    /// Its requests.
    pub fn len(&self) -> usize {
        self.0.requests.len()
    }

    /// Never: such a trace is refused.
    pub fn is_empty(&self) -> bool {
        self.0.requests.is_empty()
    }
}

/// The same if it was read once, not if two files say the same.
impl PartialEq for Loaded {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Loaded {}

impl Workload {
    /// Its requests; those of a trace with settled sizes.
    ///
    /// # Errors
    /// If a trace that comes with the lab cannot be read, which a test rules out.
    pub fn requests(&self, seed: u64) -> Result<Box<dyn Iterator<Item = Request> + Send>> {
        Ok(match self {
            Self::Synthetic(synthetic) => synthetic.requests(seed),
            Self::Sites(known, sites) => Box::new(Sites::new(known.requests()?, *sites, seed)),
            Self::Several(all) => {
                // Each with a seed of its own: names of two traces may be the same numbers.
                let mut dice = Dice::new(seed, 23);
                let begun =
                    all.iter().map(|(known, sites)| Ok::<_, Error>(Sites::new(known.requests()?, *sites, dice.bits())));
                let mut begun = begun.collect::<Result<Vec<Sites>>>()?;
                let mut turn = 0;
                Box::new(std::iter::from_fn(move || {
                    turn = (turn + 1) % begun.len();
                    begun[turn].next()
                }))
            }
            Self::Loaded(Loaded(trace)) => {
                let trace = Arc::clone(trace);
                Box::new((0..trace.requests.len()).map(move |at| trace.requests[at]))
            }
        })
    }
}
