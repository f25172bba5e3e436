//! Panics of threads that others wait for: a daemon, or the caller that commits for all. They are told of, lest the
//! others wait for ever.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

thread_local! {
    /// Which daemon this thread is.
    static DAEMON: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs a daemon to its end; if that is a panic, `told` has what it said.
pub fn watch(daemon: &'static str, run: impl FnOnce(), told: impl FnOnce(String)) {
    DAEMON.set(Some(daemon));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        told(said(&*panic));
    }
}

/// Does what other threads wait for. If it panics, `told` has the name of the daemon that this thread is, or else
/// `what`, and what the panic said; and the panic goes on.
pub fn for_others<T>(what: &'static str, act: impl FnOnce() -> T, told: impl FnOnce(&'static str, String)) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        told(DAEMON.get().unwrap_or(what), said(&*panic));
        resume_unwind(panic)
    })
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}
