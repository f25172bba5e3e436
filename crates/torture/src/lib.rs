//! Torture: workload x faults x crashes from a seed, checked against an oracle.
//!
//! A seed makes a [`Plan`] and its [`operations`]; [`run`] carries them out, on one thread, on virtual time, on
//! devices that crash, fail, lie or are damaged; the oracle knows which puts were acknowledged, which are
//! durable, deleted, replaced. What it holds the store to:
//!
//! 1. a get brings exactly the bytes of some completed put of that key or nothing, never a replaced or deleted
//!    version; after a crash any version from the newest durable one on, and from then on only that;
//! 2. what is durable is there after a crash: in a store always, in a cache unless it left by name;
//! 3. an opening only to look shows what an opening to write would, and the audit calls damage what is damaged, and
//!    nothing else;
//! 4. never more memory or device bytes than given;
//! 5. a failing, lying or damaged device makes the store smaller or colder, or is refused by name; never a
//!    wrong byte and never a panic.
//!
//! What it lets pass has a name, is counted, and has a bound; see `excuse.rs`. A plan has two editions: the second adds
//! to the first, whose seeds so keep what they are known for.
#![forbid(unsafe_code)]

mod bounds;
mod canary;
mod churn;
mod dice;
mod excuse;
mod flight;
mod folder;
mod further;
mod judge;
mod look;
mod openings;
mod operation;
mod oracle;
mod pin_bounds;
mod pins;
mod plan;
mod plug;
mod report;
pub mod rss;
mod run;
mod sabotage;
mod shrink;
mod state;
mod trouble;
mod verbs;
mod whims;
mod workload;

pub mod rounds;

pub use canary::notice;
pub use dice::{Dice, bytes_of};
pub use excuse::{Excuse, Excused};
pub use operation::{Draft, Op};
pub use plan::{Plan, Trouble};
pub use report::{Tally, Violation, trace};
pub use run::run;
pub use sabotage::Sabotage;
pub use shrink::{caught, shrink};
pub use workload::operations;
