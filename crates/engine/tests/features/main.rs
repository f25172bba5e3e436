//! Every feature of the engine, shown to work: one module per theme.

mod common;
mod counts;
mod groups;
mod limits;
mod volumes;
