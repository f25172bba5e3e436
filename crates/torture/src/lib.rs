//! Torture: workload x faults x crashes from a seed, checked against an oracle.
//!
//! A seed makes a [`Plan`] and its [`operations`]; [`run`] carries them out, on one thread, on virtual time, on
//! devices that crash, fail, lie or are damaged; the oracle knows which puts were acknowledged, which are
//! durable, deleted, replaced. What it holds the store to:
//!
//! 1. a get brings exactly the bytes of some completed put of that key or nothing, never a replaced or deleted
//!    version; after a crash any version from the newest durable one on, and from then on only that;
//! 2. what is durable is there after a crash: in a store always, in a cache unless it left by name;
//! 3. never more memory or device bytes than given;
//! 4. a failing, lying or damaged device makes the store smaller or colder, or is refused by name; never a
//!    wrong byte and never a panic.
#![forbid(unsafe_code)]

mod canary;
mod dice;
mod folder;
mod judge;
mod oracle;
mod plan;
mod plug;
mod report;
mod run;
mod shrink;
mod trouble;
mod verbs;
mod workload;

pub mod rounds;

pub use canary::{Sabotage, notice};
pub use dice::{Dice, bytes_of};
pub use plan::{Plan, Trouble};
pub use report::{Tally, Violation, trace};
pub use run::run;
pub use shrink::{caught, shrink};
pub use workload::{Draft, Op, operations};
