//! What `kill -9` leaves of a store: nothing is closed, no destructor runs, and what was held stays held.

use std::any::Any;

use parking_lot::Mutex;

static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Keeps what a killed process would have left open. It stays reachable, so a leak sanitizer looks for other leaks.
pub fn kill(left: impl Send + 'static) {
    LEFT.lock().push(Box::new(left));
}
