//! How long what is written as one may be, where objects are written one by one.

use picaflor::layout::Env;
use picaflor_format::{frame, zone::SLOT};

/// Longest object in one piece, whatever memory and device are: it is held in memory while it is put.
const PIECE_MAX: u64 = 4 << 20;

/// Bytes of key, metadata and body of the longest object that is written as one, to so many bytes of device.
pub(crate) fn payload_max(env: &dyn Env, room: u64) -> usize {
    let memory = env.memory() / env.places() as u64;
    let piece = (memory / 32).min(longest_ever(room)) / SLOT * SLOT;
    piece as usize - frame::HEADER
}

/// Bytes of the longest frame that any opening of so many bytes of device has put, whatever memory it had.
pub(crate) fn longest_ever(room: u64) -> u64 {
    PIECE_MAX.min(room / 16) / SLOT * SLOT
}
