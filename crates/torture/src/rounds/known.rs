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
pub(super) const KNOWN: &[Known] = &[Known {
    why: "rows in place: the audit calls damaged what was written over before the kill, if what lies there is torn",
    is_met: |setup| ["buddy", "stream", "stream-pack", "lazy-reads", "lazy-reads-loc"].contains(&setup.preset),
    avoid: |setup| setup.audits = false,
}];

/// Moves a setup away from all that it would meet.
pub(super) fn avoid(setup: &mut Setup) {
    for known in KNOWN {
        if (known.is_met)(setup) {
            (known.avoid)(setup);
            setup.avoided.push(known.why);
        }
    }
}
