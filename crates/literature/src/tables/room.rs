//! Memory for puts. An object is in memory several times while it is put, so what all of them take together stays below
//! a share of what the store was given, and who comes later waits: each goes on when enough of them are through, in the
//! order in which they came.

use parking_lot::{Condvar, Mutex};
use picaflor::layout::Env;

/// The part of the memory that puts may take.
const SHARE: u64 = 4;

pub(super) struct Room {
    most: u64,
    taken: Mutex<u64>,
    given_back: Condvar,
    /// Held by who waits for his, so that small ones do not slip past a large one for ever.
    turn: Mutex<()>,
}

/// Bytes that a put takes, until it is dropped.
pub(super) struct Taken<'a> {
    room: &'a Room,
    env: &'a dyn Env,
    bytes: u64,
}

impl Room {
    pub(super) fn new(memory: u64) -> Self {
        Self { most: memory / SHARE, taken: Mutex::new(0), given_back: Condvar::new(), turn: Mutex::new(()) }
    }

    /// Waits until there is room for so many bytes, or no other put has any: one put is always let through. What it
    /// holds of keys' locks must not be needed by those who have theirs.
    pub(super) fn take<'a>(&'a self, bytes: u64, env: &'a dyn Env) -> Taken<'a> {
        {
            let _turn = self.turn.lock();
            let mut taken = self.taken.lock();
            while *taken > 0 && *taken + bytes > self.most {
                self.given_back.wait(&mut taken);
            }
            *taken += bytes;
        }
        env.take_memory(bytes);
        Taken { room: self, env, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.env.give_memory(self.bytes);
        *self.room.taken.lock() -= self.bytes;
        self.room.given_back.notify_one();
    }
}
