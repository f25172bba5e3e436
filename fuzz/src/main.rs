//! All targets in one program: `PICAFLOR_FUZZ` names the one to run, the arguments are libFuzzer's. `scripts/fuzz`
//! calls it, and says with which flags it is built.
#![no_main]

use std::{hint::black_box, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

/// A bug that is found within seconds, or the harness is broken: without coverage it would take 2^24 tries. The
/// compiler is not to make one comparison of the three.
fn canary(bytes: &[u8]) {
    if black_box(bytes.first()) == Some(&b'p') {
        if black_box(bytes.get(1)) == Some(&b'F') {
            if black_box(bytes.get(2)) == Some(&0xc5) {
                panic!("the canary was found, as it must be");
            }
        }
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

fuzz_target!(init: { LazyLock::force(&TARGET); }, |bytes: &[u8]| TARGET(bytes));
