//! What a put or delete has to wait for before it is as durable as was asked.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{Durability, Result, base::group::CheckpointInterval, handle::Store, volume::Volume};

/// A commit to wait for.
pub(crate) type Awaited = Option<(Arc<Volume>, u64)>;

/// Waits for it in a task.
pub(crate) async fn wait_async(awaited: Awaited) -> Result<()> {
    match awaited {
        Some((volume, number)) => Arc::clone(&volume.room).commit_async(number).await,
        None => Ok(()),
    }
}

/// Waits for it on this thread.
pub(crate) fn wait(awaited: Awaited) -> Result<()> {
    awaited.map_or(Ok(()), |(volume, number)| volume.room.wait_commit_in_time(number))
}

impl Store {
    /// Sees to it that a put becomes durable in its time. Returns what the caller has to wait for.
    pub(crate) fn settle_put(&self, volume: Arc<Volume>, group: u32) -> Awaited {
        let shared = self.shared();
        let within = match (shared.groups.interval(group), shared.options.durability) {
            (_, Durability::EveryPut) => {
                let number = volume.log.commits.next();
                return Some((volume, number));
            }
            (CheckpointInterval::Off, _) => None,
            (CheckpointInterval::Every(time), _) => Some(time),
            // What is told to the journal waits in memory.
            (CheckpointInterval::OfStore, _)
                if volume
                    .catalog
                    .places
                    .as_ref()
                    .is_some_and(|places| volume.log.has_much_to_tell(places.are_files())) =>
            {
                let number = volume.log.commits.next();
                return Some((volume, number));
            }
            (CheckpointInterval::OfStore, Durability::None) => None,
            (CheckpointInterval::OfStore, Durability::Bounded { time, puts }) => {
                // What would not become durable in time is not acknowledged.
                let refusing = volume.log.commits.is_refusing();
                if refusing || volume.log.queue.volatile_puts.fetch_add(1, Relaxed) + 1 >= puts {
                    let number = volume.log.commits.next();
                    return Some((volume, number));
                }
                Some(time)
            }
        };
        if let Some(within) = within {
            volume.log.due_within(within);
        }
        None
    }
}
