//! What to rebuild, and in which order, when something changes: a persistent dependence graph of fragments and pages.
//!
//! The object dependence graph of Iyengar, Jin and Challenger 2003, section 4, on hash tables on disk
//! ([`picaflor_table::htod`]). A node is a fragment or a page, and has the names of what it is built from;
//! [`Graph::publish`] answers with everything that is built from what changed, each after what it is built from.
//!
//! Nodes lie in groups of about sixteen, one entry of a table each, so that the grain of the device fits them: the
//! paper lost three quarters of its edge files to a grain of one edge. The dependents of a node lie in a group
//! beside those of its neighbours while they are few, and in chunks of their own when they are many.
//!
//! Invariants: what a node is built from stands in its own record, written at once: that is the graph. Dependents are
//! found through sets that are written, and durable, before the record that they come from; one that a crash left
//! without its record is not believed. The graph has no cycle, at no moment that a crash could find.
#![forbid(unsafe_code)]

mod base;
mod build;
mod change;
mod draft;
mod graph;
mod groups;
mod image;
mod order;
mod publish;
mod spill;

pub use self::{
    base::{GraphError, GraphOptions, Result},
    build::Built,
    change::Change,
    graph::{About, Graph},
};
