//! What is known to be broken, in one place: rounds keep away from it unless `--known` is given. Whoever mends one
//! deletes its entry here.

use super::setup::Setup;

/// Something broken.
pub(super) struct Known {
    /// What happens, and where it is written down.
    pub(super) why: &'static str,
    /// Whether a setup would meet it.
    pub(super) is_met: fn(&Setup) -> bool,
    /// Moves the setup away from it.
    pub(super) avoid: fn(&mut Setup),
}

/// All of it.
pub(super) const KNOWN: &[Known] = &[
    Known {
        why: "a handle does not hold the chunks of a large object: its body may be lost while it is read",
        is_met: |setup| setup.longest > u64::from(setup.cluster),
        avoid: |setup| setup.loses_bodies = true,
    },
    Known {
        why: "a get fails while its object is replaced or deleted, where each has a file: no file has its number",
        is_met: |setup| setup.has_files(),
        avoid: |setup| setup.misses_files = true,
    },
    Known {
        why: "several places, opened read-only after a crash: replaced versions are served, and the audit counts them",
        is_met: |setup| setup.places > 1,
        avoid: |setup| setup.audits = false,
    },
    Known {
        why: "the audit counts what was read into memory since the opening as lost",
        is_met: |setup| ["hummingbird", "damelo"].contains(&setup.preset),
        avoid: |setup| setup.audits = false,
    },
    Known {
        why: "rows in place: the audit calls damaged what was never written before the kill",
        is_met: |setup| ["buddy", "stream", "stream-pack", "lazy-reads", "lazy-reads-loc"].contains(&setup.preset),
        avoid: |setup| setup.audits = false,
    },
    Known {
        why: "a delete that the count of deletes had made durable comes back where several delete at once",
        is_met: |setup| {
            let rows = ["simple", "squid", "multiple-dirs", "buddy-scan"];
            setup.delete_count < 1000 && setup.writers() > 1 && rows.contains(&setup.preset)
        },
        avoid: |setup| (setup.threads, setup.tasks) = (1, 0),
    },
];

/// Whether the proxy's purges, and invalidations of what was durable, come back: without `--known` they are held to the
/// bound of deletes only. Whoever mends it makes this `false`.
pub(super) const PURGES_COME_BACK: bool = true;
/// That, in words.
pub(super) const PURGES: &str = "the proxy's purges and invalidations are durable as late as deletes are";

/// Moves a setup away from all that it would meet.
pub(super) fn avoid(setup: &mut Setup) {
    for known in KNOWN {
        if (known.is_met)(setup) {
            (known.avoid)(setup);
            setup.avoided.push(known.why);
        }
    }
}
