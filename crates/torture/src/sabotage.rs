//! What a canary breaks.

use crate::plan::Plan;

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// Some deletes are acknowledged and not done.
    ForgetDelete,
    /// Some deletes drop another key too.
    DeleteAnother,
    /// Some puts that replace are acknowledged and not done.
    ForgetReplacing,
    /// The devices acknowledge syncs and do not do them.
    SyncLies,
    /// A bit flips after the bytes were verified.
    FlipByte,
    /// Objects vanish.
    LoseObjects,
    /// More memory is used than was given.
    Gluttony,
    /// An opening only to look shows a version that was replaced.
    ReplacedReadOnly,
    /// An opening only to look shows what was deleted.
    DeletedReadOnly,
    /// A device that works writes over its own journal while another one fails.
    OverrunJournal,
    /// The audit says nothing of damage.
    CheckIsBlind,
    /// The audit calls damaged what is not.
    CheckCriesWolf,
    /// Some pinned records are acknowledged and not set.
    ForgetPin,
    /// What is there is let pass as missing, for a reason that holds now and then.
    OveruseExcuse,
}

impl Sabotage {
    /// All that a harness must notice.
    pub const ALL: [Self; 14] = [
        Self::ForgetDelete,
        Self::DeleteAnother,
        Self::ForgetReplacing,
        Self::SyncLies,
        Self::FlipByte,
        Self::LoseObjects,
        Self::Gluttony,
        Self::ReplacedReadOnly,
        Self::DeletedReadOnly,
        Self::OverrunJournal,
        Self::CheckIsBlind,
        Self::CheckCriesWolf,
        Self::ForgetPin,
        Self::OveruseExcuse,
    ];

    /// Whether a row of this name can be broken so.
    #[must_use]
    pub fn fits(self, preset: &'static str) -> bool {
        let plan = Plan::new(0, None).with_preset(preset);
        match self {
            Self::OverrunJournal => plan.takes_several(),
            Self::CheckIsBlind => !plan.hides_damage(),
            Self::ForgetPin => plan.has_pins(),
            _ => true,
        }
    }
}
