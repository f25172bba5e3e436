//! D-12: the proxy test (§5.4), through the proxy of this project, on this machine and its time.
//!
//! What was published are requests a second of three machines of the year 2000. Ours are shown beside them and not
//! judged, nor is how many times as fast one proxy is as the other: that was 1.9 in one run and 13 in another, by what
//! else wrote to the disk that the files were on.

use std::time::Duration;

use serde::Serialize;

use super::spec::Spec;
use crate::{
    Result,
    draw::Bars,
    reproduce::{
        how::{How, Progress},
        verdict::Verdict,
    },
    run::proxied::{self, Proxied, Served},
};

/// What one preset came to in one round.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    preset: String,
    round: u64,
    #[serde(flatten)]
    served: Served,
}

/// All rounds, one run at a time: they share the processors.
pub(super) fn run(spec: &Spec, how: How, progress: Progress<'_>) -> Result<Vec<Round>> {
    let proxy = &spec.proxy;
    let part = |mib: u64| (mib << 20) / u64::from(spec.parts);
    // A quick look asks for a little, of stores of the same size.
    let (rounds, most) = if how.quick { (1, Some(500)) } else { (proxy.rounds, None) };
    let total = rounds * proxy.presets.len() as u64;
    let mut all = Vec::new();
    for round in 0..rounds {
        for preset in &proxy.presets {
            let test = Proxied {
                preset: preset.clone(),
                memory: part(spec.pool_mib),
                capacity: part(spec.raw_mib),
                model: proxy.requests.clone(),
                connections: proxy.connections,
                time: Duration::from_secs_f64(proxy.seconds),
                most,
                seed: spec.seed + round,
                folder: None,
            };
            progress("the proxy test", 0, total);
            all.push(Round { preset: preset.clone(), round, served: proxied::run(&test)? });
            progress("the proxy test", 1, total);
        }
    }
    Ok(all)
}

/// Requests a second of a preset, over all of its rounds.
fn rate(rounds: &[Round], preset: &str) -> Option<f64> {
    let own: Vec<&Served> = rounds.iter().filter(|round| round.preset == preset).map(|round| &round.served).collect();
    let seconds: f64 = own.iter().map(|served| served.seconds).sum();
    (seconds > 0.0).then(|| own.iter().map(|served| served.requests).sum::<u64>() as f64 / seconds)
}

pub(super) fn claims(spec: &Spec, rounds: &[Round]) -> Vec<Verdict> {
    let [files, own] = &spec.proxy.presets;
    let (files, own) = (rate(rounds, files), rate(rounds, own));
    let over = own.zip(files).map(|(own, files)| own / files);
    let why = "on this machine and its time, and no two runs alike: not judged";
    vec![
        Verdict::beside("D-12", "proxy on files in Squid's directories, requests a second", "363", why, files),
        Verdict::beside("D-12", "the same proxy on Dámelo", "617", why, own),
        Verdict::beside("D-12", "that over the one on files", "1.69x", why, over),
        Verdict::not_carried("D-12", "the proxy on Dámelo over Squid", "1.13x", "Squid itself is not run by the lab"),
    ]
}

pub(super) fn drawing(rounds: &[Round]) -> String {
    let row = |round: &Round| (format!("{}, round {}", round.preset, round.round + 1), vec![round.served.per_second]);
    let published = [("files", 363.0), ("Squid", 545.0), ("Dámelo", 617.0)];
    let published = published.map(|(name, rate)| (format!("the thesis: {name}"), vec![rate]));
    let rows = rounds.iter().map(row).chain(published).collect();
    Bars { title: "the proxy test".into(), unit: "requests/s".into(), rows, groups: Vec::new(), log: false }.svg()
}
