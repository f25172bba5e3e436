//! Answers whose body is in slices: the first slice is there before anything is said to the client, so that what is
//! wrong with it can still be answered, and another version begun with.

use super::ask::Ask;
use crate::{
    body::Kind,
    reason::{Bypass, Outcome},
    respond::{Answer, restate},
    sliced::{Begun, NoSlice},
};

/// What the log and `Cache-Status` call such an answer.
pub(super) const SLICES: &str = "slices";

/// How many versions an answer is begun with.
pub(super) const VERSIONS: usize = 3;

/// Opens the first slice of an answer that is in slices.
pub(super) async fn begin(answer: &mut Answer) -> Result<(), NoSlice> {
    if let Kind::Sliced(sliced) = &mut answer.kind {
        let begun = sliced.begin().await?;
        told(answer, begun);
    }
    Ok(())
}

impl Ask {
    /// The answer where no slice is to be had.
    pub(super) async fn without_slices(&self, why: NoSlice) -> Answer {
        match why {
            NoSlice::Changed | NoSlice::Refused => self.pass_empty(Bypass::SliceNotSent).await,
            NoSlice::Failed(why) => self.without_origin(None, why),
            NoSlice::OnlyIfCached => self.only_if_cached(),
        }
    }
}

/// Says where the first slice came from.
fn told(answer: &mut Answer, begun: Begun) {
    let is_hit = matches!(answer.outcome, Outcome::HitMemory | Outcome::HitDevice);
    if answer.detail.is_empty() {
        answer.detail = SLICES;
    }
    let (outcome, how) = match begun {
        Begun::Without => return,
        Begun::Stored { from_device } => {
            if is_hit && from_device {
                answer.outcome = Outcome::HitDevice;
            }
            return;
        }
        Begun::Fetched => (Outcome::Miss, "stored"),
        Begun::Shared => (Outcome::Collapsed, "collapsed"),
    };
    if is_hit {
        answer.outcome = outcome;
        let status = format!("picaflor; fwd=partial; fwd-status=206; {how}; detail={SLICES}");
        restate(&mut answer.parts.headers, &status);
    }
}
