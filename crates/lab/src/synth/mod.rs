//! Synthetic workloads from published statistics: a name and a seed give the same requests everywhere.

mod dice;
mod law;
mod web;

pub use dice::{Dice, mix};
pub use law::{Sizes, Zipf, truncated_pareto};
pub use web::{Requests as WebRequests, Web};
