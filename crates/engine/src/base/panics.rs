//! Panics of threads that others wait for: a daemon, or the caller that commits for all. They are told of, lest the
//! others wait for ever.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

thread_local! {
    /// Whether this thread is a daemon, so that [`watch`] tells of its panics.
    static IS_DAEMON: Cell<bool> = const { Cell::new(false) };
}

/// Runs a daemon to its end; if that is a panic, `told` has what it said.
pub(crate) fn watch(run: impl FnOnce(), told: impl FnOnce(String)) {
    IS_DAEMON.set(true);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        told(said(&*panic));
    }
}

/// Does what other threads wait for. If it panics, `told` has what the panic said, unless a daemon's end tells it; and
/// the panic goes on.
pub(crate) fn for_others<T>(act: impl FnOnce() -> T, told: impl FnOnce(String)) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        if !IS_DAEMON.get() {
            told(said(&*panic));
        }
        resume_unwind(panic)
    })
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}
