//! What a cache of ours would have missed of a trace: the engine itself, beside the rules of `cache`.

use std::sync::Arc;

use super::{Hints, Loaded, Policies, Replay, Setup, Stream, Workload, run};
use crate::{Result, cache::Missed, trace::Trace};

/// Least and most memory of such a cache; between them it is a sixteenth of the capacity.
const MEMORY: [u64; 2] = [8 << 20, 1 << 30];

/// Replays a trace, whose sizes are settled, through a cache with `capacity` bytes of device, of which headers, index
/// and clean clusters take their part.
///
/// # Errors
/// If so few bytes are no cache, or the store fails.
pub fn misses(trace: &Arc<Trace>, capacity: u64) -> Result<Missed> {
    let setup = Setup {
        preset: "picaflor".into(),
        device: "memory".into(),
        file_system: None,
        capacity,
        memory: (capacity / 16).clamp(MEMORY[0], MEMORY[1]),
        cluster: None,
        pages: Vec::new(),
        policies: Policies::default(),
        buffers: None,
        threshold: None,
        files_above: false,
        wait: false,
        workload: Workload::Loaded(Loaded::of(Arc::clone(trace))),
        replay: Replay::Cache,
        hints: Hints::None,
        page_cache: None,
        gets: trace.requests.len() as u64,
        operations: None,
        seed: 1,
    };
    let outcome = run(&setup, &Stream::of(&setup)?, &|_| {})?;
    let [bytes, hit] = outcome.bytes;
    Ok(Missed { requests: 1.0 - outcome.hit_ratio, bytes: (bytes - hit) as f64 / bytes.max(1) as f64 })
}
