//! Makes a failing run short: leaves operations out as long as it still fails.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
};

use crate::{
    operation::Op,
    plan::Plan,
    report::{Tally, Violation},
    run::run,
    sabotage::Sabotage,
};

thread_local! {
    /// Where this thread last panicked, and with what words.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs operations; a panic is a violation too, and is not printed.
///
/// # Errors
/// The violation.
pub fn caught(plan: &Plan, operations: &[Op], sabotage: Sabotage) -> Result<Tally, Violation> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            let trace = std::backtrace::Backtrace::force_capture().to_string();
            let ours: Vec<&str> = trace.lines().filter(|line| line.contains("crates/")).map(str::trim).collect();
            LAST_PANIC.with(|last| *last.borrow_mut() = format!("panic: {info}\n            {}", ours.join(" ")));
        }));
    });
    panic::catch_unwind(AssertUnwindSafe(|| run(plan, operations, sabotage))).unwrap_or_else(|_| {
        Err(Violation {
            seed: plan.seed,
            plan: plan.describe(),
            step: 0,
            operation: "somewhere".into(),
            expected: "no panic".into(),
            found: LAST_PANIC.with(|last| last.take()),
        })
    })
}

/// The fewest operations found, in at most `tries` runs, with which the plan still fails, and how.
#[must_use]
pub fn shrink(plan: &Plan, operations: &[Op], tries: u32) -> Option<(Vec<Op>, Violation)> {
    let mut violation = caught(plan, operations, Sabotage::None).err()?;
    let mut kept = operations.to_vec();
    if violation.step > 0 {
        kept.truncate(violation.step + 1);
    }
    let mut left = tries;
    let mut piece = kept.len() / 2;
    while piece > 0 && left > 0 {
        let mut at = 0;
        while at < kept.len() && left > 0 {
            left -= 1;
            let mut fewer = kept.clone();
            fewer.drain(at..(at + piece).min(kept.len()));
            match caught(plan, &fewer, Sabotage::None) {
                Err(found) => (kept, violation) = (fewer, found),
                Ok(_) => at += piece,
            }
        }
        piece /= 2;
    }
    Some((kept, violation))
}
