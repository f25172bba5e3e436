//! What a method replay asks of the store: made once, and shared by the runs that differ in the store only.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Replay, Setup, Workload};
use crate::{
    Result,
    method::{Counts, Levels, Method, Operation},
};

/// Operations in order, and what the gets became.
pub struct Stream {
    pub(super) operations: Vec<Operation>,
    pub(super) counts: Counts,
}

/// What a stream is a function of.
#[derive(Clone, PartialEq)]
struct Cause {
    workload: Workload,
    levels: Levels,
    gets: u64,
    operations: Option<u64>,
    seed: u64,
}

impl Stream {
    /// What this setup asks of a store; nothing, if it does not replay by the method.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn of(setup: &Setup) -> Result<Self> {
        let mut operations = Vec::new();
        let Replay::Method(levels) = setup.replay else {
            return Ok(Self { operations, counts: Counts::default() });
        };
        let mut method = Method::new(levels);
        for request in setup.workload.requests(setup.seed)?.take(usize::try_from(setup.gets).unwrap_or(usize::MAX)) {
            method.get(&request, |operation| operations.push(operation));
            if setup.operations.is_some_and(|limit| method.counts().operations() >= limit) {
                break;
            }
        }
        Ok(Self { operations, counts: method.counts() })
    }
}

type Made = Arc<Mutex<Option<Arc<Stream>>>>;

/// Streams that were asked for last.
#[derive(Default)]
pub struct Streams {
    last: Mutex<Vec<(Cause, Made)>>,
}

/// How many of them stay: each is a hundred megabytes or so, and cases of one stream follow each other.
const KEPT: usize = 3;

impl Streams {
    /// The stream of a setup. Who asks while another thread makes it waits for that.
    ///
    /// # Errors
    /// As [`Stream::of`].
    pub fn of(&self, setup: &Setup) -> Result<Arc<Stream>> {
        let Replay::Method(levels) = setup.replay else { return Ok(Arc::new(Stream::of(setup)?)) };
        let Setup { ref workload, gets, operations, seed, .. } = *setup;
        let cause = Cause { workload: workload.clone(), levels, gets, operations, seed };
        let made = {
            let mut last = self.last.lock();
            let known = last.iter().find(|(known, _)| *known == cause).map(|(_, made)| Arc::clone(made));
            known.unwrap_or_else(|| {
                if last.len() == KEPT {
                    last.remove(0);
                }
                let made = Made::default();
                last.push((cause, Arc::clone(&made)));
                made
            })
        };
        let mut made = made.lock();
        match &*made {
            Some(stream) => Ok(Arc::clone(stream)),
            None => Ok(Arc::clone(made.insert(Arc::new(Stream::of(setup)?)))),
        }
    }
}
