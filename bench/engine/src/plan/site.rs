//! The table of a paper's tests (Iyengar, Jin and Challenger 2003, section 3.1): files, hash tables and databases with
//! the objects of a web site; databases also commit every fifth change, and all of them at once.

use std::path::Path;

use anyhow::Result;

use super::{Bench, LEAST_CAPACITY, SMALL_MEMORY, clear};
use crate::{data::Profile, engines, work::Work};

/// Objects of the paper.
const OBJECTS: u64 = 27_800;

pub(super) const NOTE: &str = "Milliseconds an object: written (Wp), rewritten (Wn), read by name (R), all keys (Ik), bodies \
    (Iv), both (Ie). Sizes are a web site's, with a mean of 3.6 KB: up to 27,800 objects.";

impl Bench<'_> {
    pub(super) fn one_of_site(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let committing: &[(u32, &str)] = match engines::is_database(engine) {
            true => &[(1, "each committed"), (5, "every fifth committed"), (0, "committed at the end")],
            false => &[(1, "each committed")],
        };
        for &(commit_every, name) in committing {
            clear(folder)?;
            let mut job = self.job(engine, folder, Work::Site);
            // A look must not take minutes, and each of these is synced several times over.
            let most = if self.arguments.tiny { OBJECTS / 100 } else { OBJECTS };
            (job.profile, job.objects) = (Profile::Site, self.arguments.objects.min(most));
            (job.config.durable, job.config.commit_every) = (true, commit_every);
            (job.config.memory, job.config.capacity) = (SMALL_MEMORY, LEAST_CAPACITY);
            // All of it fits in memory, as it did in the paper's machine.
            job.door = None;
            self.measure(name, &job, round)?;
        }
        Ok(())
    }
}
