//! Rounds of `kill -9`: real processes, real files, several threads and tasks, every preset.
//!
//! A seed makes a [`Setup`]: how one store is opened and what is done to it. A parent starts a child that opens the
//! store and works; kills it at a moment that it has aimed at; starts the next one on the same files, which looks at
//! every key and works on; and judges all that the children saw. What they did is in logs of fixed records, written
//! by one `pwrite` each: the page cache is memory that parent and child share, and it outlives the child.
//!
//! What the store is held to is in `history.rs`; what of it is durable when a child dies, in `durable.rs`.

mod aim;
mod body;
mod breaks;
mod canary;
mod child;
mod door;
mod durable;
mod floor;
mod history;
mod log;
mod origin;
mod proxied;
mod series;
mod serve;
mod setup;
mod sizes;
mod soak;
mod spells;
mod tally;
mod web;
mod wish;
mod work;

pub use breaks::Break;
pub use canary::notice_break;
pub use child::child;
pub use proxied::run_proxied;
pub use series::run_series;
pub use setup::Setup;
pub use soak::{Soak, Soaked, run_soak};
pub use tally::{Fault, Rounds};
pub use wish::Wish;
