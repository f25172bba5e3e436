//! The presets of the literature through the store's own verbs: every row keeps what every row promises.
#![allow(clippy::unwrap_used, reason = "tests")]

mod ages;
mod aside;
mod common;
mod crash;
mod damelo;
mod deletes;
mod files;
mod grouped;
mod held;
mod lazy;
mod limits;
mod long_files;
mod made;
mod many;
mod pages;
mod remembered;
mod reused;
mod rotten;
mod second;
mod second_buffers;
mod steps;
mod tables;
mod threads;
mod torn;
mod unlucky;
mod untold;
mod verbs;
mod vouched;
