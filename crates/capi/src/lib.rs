//! The engine for C, and for whatever speaks to C: the calls of Hummingbird (Shriver et al. 2001, §3.3) and of Dámelo
//! (Ledlie 2000, §3), in one small interface. `include/picaflor.h` is its description; what it promises of pointers and
//! threads is written there, and a test holds header and library together.
//!
//! A call goes through three steps: `raw.rs` makes slices of pointers, `backend.rs` asks the engine, or the process
//! that serves a store, and `code.rs` makes a code of what it says. No panic crosses the border.
//!
//! Invariants: a handle is a box that the library made and gives back once; nothing that the caller passes is kept
//! after the call; what the library hands out to read belongs to a handle and lives as long as that.
//!
//! What is here for ever: the names and parameters of the functions, the numbers of the codes, the order of the fields
//! of the option structs. New fields go to the end (`size` tells which are there), new functions beside the others.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod backend;
mod code;
mod object;
mod options;
mod raw;
mod store;

pub use code::{Code, picaflor_error_name, picaflor_error_text};
pub use object::{
    CObject, picaflor_body, picaflor_done_read, picaflor_expires, picaflor_generation, picaflor_group, picaflor_length,
    picaflor_metadata, picaflor_read, picaflor_read_at, picaflor_write, picaflor_write_nomem,
};
pub use options::{COptions, CWriteOptions};
pub use store::{
    CStore, picaflor_close, picaflor_collocate, picaflor_delete, picaflor_flush, picaflor_grow, picaflor_hate,
    picaflor_interface, picaflor_invalidate, picaflor_lookup, picaflor_love, picaflor_neither, picaflor_open,
    picaflor_receipt, picaflor_run_daemon, picaflor_set_checkpoint, picaflor_set_page, picaflor_version,
};

/// Number of the interface: the header's `PICAFLOR_INTERFACE`. It grows when something is added.
pub const INTERFACE: u32 = 6;
