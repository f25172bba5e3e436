//! What an opening knew of the log and the checkpoints before it, for as long as that tells what entries lead to.

/// What the opening knew.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    /// The sequence number of the older checkpoint's directory.
    pub(crate) checkpoint: u64,
    /// The journal page with which the log went on; 0: everything counts as told.
    pub(crate) page: u64,
    /// A crash came before: entries may lead to what left.
    pub(crate) crashed: bool,
}
