//! H-9: Apache on UFS, and on Hummingbird without hints, at eight requests a second (§5), in virtual time.
//!
//! The paper gives three ratios and the rate, and nothing else of its test.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use serde::Serialize;

use super::spec::{Proxy, Spec};
use crate::{
    Result, experiment,
    reproduce::{
        how::{How, Progress},
        verdict::Verdict,
    },
    run::wg::polymix::{self, Answered, Polymix},
};

/// What both came to.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Both {
    files: Answered,
    store: Answered,
}

impl Proxy {
    fn test(&self, how: How) -> Polymix {
        // A quick look is a minute of traffic behind two.
        let seconds = if how.quick { (120.0, 60.0) } else { self.seconds };
        Polymix {
            rate: self.rate,
            think_ms: self.think_ms,
            request_ms: self.request_ms,
            seconds,
            disk_mib: self.disk_mib,
            memory_mib: self.memory_mib,
            processes: self.processes,
            requests: self.requests.clone(),
        }
    }
}

pub(super) fn run(spec: &Spec, how: How, progress: Progress<'_>) -> Result<Both> {
    let test = spec.proxy.test(how);
    let machine = spec.machine("freebsd")?;
    let systems = [spec.system(&spec.proxy.files)?, spec.system(&spec.proxy.store)?];
    let total = 2 * test.count();
    let (tell, told) = mpsc::channel::<u64>();
    let mut both = thread::scope(|scope| {
        scope.spawn(|| told.into_iter().for_each(|more| progress("the proxy test", more, total)));
        let both = experiment::spread(&systems, how.jobs, |&system| {
            let tell = tell.clone();
            // The other side has gone once all is told.
            let tell = Arc::new(move |more| tell.send(more).unwrap_or(()));
            polymix::serve(&test, machine, system, spec.seed, tell)
        });
        drop(tell);
        both
    })?;
    let (store, files) = (both.pop().unwrap_or_default(), both.pop().unwrap_or_default());
    Ok(Both { files, store })
}

pub(super) fn claims(both: &Both) -> Vec<Verdict> {
    let over = |of: fn(&Answered) -> f64| Some(of(&both.files) / of(&both.store));
    // 35% either way; of what is gained, where it is small.
    let claim = |what, published, band, ours| Verdict::of("H-9", what, published, band, ours);
    let near = |value: f64| (value * 0.65, value * 1.35);
    vec![
        claim(
            "proxy, 8 requests a second: mean response of a hit, UFS over Hummingbird",
            "14x",
            near(14.0),
            over(|one| one.hit_ms),
        ),
        claim("the median", "20x", near(20.0), over(|one| one.hit_median_ms)),
        claim("mean response of a miss", "1.2x", (1.13, 1.27), over(|one| one.miss_ms)),
    ]
}
