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
const VERSIONS: usize = 3;

impl Ask {
    /// GET and HEAD, of what may be in slices.
    pub(super) async fn in_slices(self) -> Answer {
        if self.target.action.slice.is_none() {
            return self.cached().await;
        }
        for _ in 0..VERSIONS {
            let mut answer = self.clone().cached().await;
            let Kind::Sliced(sliced) = &mut answer.kind else { return answer };
            match sliced.begin().await {
                Ok(begun) => {
                    told(&mut answer, begun);
                    return answer;
                }
                Err(NoSlice::Changed) => {}
                Err(NoSlice::Refused) => break,
                Err(NoSlice::Failed(why)) => return self.without_origin(None, why),
                Err(NoSlice::OnlyIfCached) => return self.only_if_cached(),
            }
        }
        self.pass_empty(Bypass::SliceNotSent).await
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
