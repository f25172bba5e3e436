//! Models of the whole engine, with its rows and ours, under a seeded scheduler (`picaflor_locks::models`).

mod engine;
mod files;
