//! All targets in one program: `PICAFLOR_FUZZ` names the one to run, the arguments are libFuzzer's. `scripts/fuzz`
//! calls it, and says with which flags it is built.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// A bug that is found within seconds or the harness is broken: no length of time would do without coverage.
fn canary(bytes: &[u8]) {
    let is_set = |at: usize, value: u8| bytes.get(at) == Some(&value);
    if is_set(0, b'f') && is_set(1, b'l') && is_set(2, b'o') && is_set(3, b'r') && is_set(7, 0xc5) {
        panic!("the canary was found, as it must be");
    }
}

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let all = picaflor_format::fuzz::TARGETS
        .iter()
        .chain(picaflor_shared::fuzz::TARGETS)
        .chain(picaflor_proxy::fuzz::TARGETS)
        .chain(picaflor_lab::fuzz::TARGETS)
        .chain(&[("canary", canary as fn(&[u8]))]);
    let wanted = std::env::var("PICAFLOR_FUZZ").unwrap_or_default();
    let known: Vec<_> = all.clone().map(|(name, _)| *name).collect();
    match all.into_iter().find(|(name, _)| *name == wanted) {
        Some((_, target)) => *target,
        None => {
            // `scripts/fuzz` asks which there are in this way.
            println!("{}", known.join("\n"));
            std::process::exit(2);
        }
    }
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
