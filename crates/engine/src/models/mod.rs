//! Models: a few threads on one mechanism under schedules that follow from a seed (`picaflor_locks::models`). Those of
//! the whole engine are in `picaflor-literature`, where its other rows are.

mod begins;
mod commits;
mod index;
mod leases;
mod reads;
mod tier;
mod waiting;

pub(self) use parking_lot::{
    models::{draw, finds, holds},
    shuttle,
};
