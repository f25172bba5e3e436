//! Work over threads.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use crate::Result;

/// Does `one` for each item, on so many threads or as many as there are processors, and returns what it gave, in order.
///
/// # Errors
/// The first error, in the order of the items, of those that were done.
pub fn spread<T: Sync, R: Send>(
    items: &[T],
    jobs: Option<NonZero<usize>>,
    one: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let jobs = jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get).min(items.len().max(1));
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<R>>>> = Mutex::new(items.iter().map(|_| None).collect());
    let lock = || done.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((at, item)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, items.get(at)?)))
                {
                    let result = one(item);
                    let failed = result.is_err();
                    lock()[at] = Some(result);
                    if failed {
                        // What would come after it is not asked for any more.
                        next.fetch_max(items.len(), Relaxed);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}
