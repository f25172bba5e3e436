//! The block allocator, through its public door: what it costs, and what a crash leaves.

mod basics;
mod counts;
mod crash;
mod crashes;
mod failing;
mod held;
mod methods;
mod second;
mod threads;
