//! Ledlie 2000: the fifteen micro-benchmarks and the claims D-1 to D-11, and the proxy test, D-12.
//!
//! What is compared with ext2 is compared with its fastest block size for that stage, cold.

mod proxy;
mod spec;

use serde::Serialize;

use self::spec::{POPULAR, Spec, Who};
use super::{
    how::{How, Progress},
    reproduction::{Reproduction, Results},
    verdict::{Verdict, YES, around, holds, least},
};
use crate::{
    Error, Result,
    draw::Bars,
    experiment,
    run::micro::{self, Order, Stages},
};

/// The machine, and what runs on it.
pub(super) const SPEC: &str = include_str!("../../../papers/damelo.toml");

/// Which claims are taken from the same runs.
pub(super) const PARTS: [&[&str]; 2] =
    [&["D-1", "D-2", "D-3", "D-4", "D-5", "D-6", "D-7", "D-8", "D-9", "D-10", "D-11"], &["D-12"]];

/// A benchmark that was run.
#[derive(Debug, Clone, Serialize)]
struct Line {
    who: Who,
    order: Order,
    #[serde(flatten)]
    stages: Stages,
}

/// All of them.
struct All {
    lines: Vec<Line>,
    pages: Vec<u32>,
}

type Stage = fn(&Stages) -> f64;
const CREATE: Stage = |stages| stages.create_ms;
const READ: Stage = |stages| stages.read_ms;
const DELETE: Stage = |stages| stages.delete_ms;

pub(super) fn reproduce(text: &str, how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let mut spec = Spec::parse(text)?;
    spec.seed += how.seed;
    if how.quick {
        // Where pages are large, a pool has to hold some of them all the same.
        spec.objects /= 16;
        spec.pages_kib.retain(|kib| *kib <= 64);
    }
    let mut done = Reproduction { paper: "damelo".into(), ..Reproduction::default() };
    if how.wants(PARTS[0][0]) {
        micro_benchmarks(&spec, how, progress, &mut done)?;
    }
    if how.wants(PARTS[1][0]) {
        let rounds = proxy::run(&spec, how, progress)?;
        done.verdicts.extend(proxy::claims(&spec, &rounds));
        done.drawings.push(proxy::drawing(&rounds));
        done.results.push(Results::Lines("proxy", as_json(&rounds)?));
    }
    Ok(done)
}

fn as_json(lines: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(lines).map_err(|error| Error::experiment("damelo", error.to_string()))
}

fn micro_benchmarks(spec: &Spec, how: How, progress: Progress<'_>, done: &mut Reproduction) -> Result<()> {
    let benches = spec.benches()?;
    let total = benches.len() as u64;
    progress(&spec.title, 0, total);
    let stages = experiment::spread(&benches, how.jobs, |(_, _, bench)| {
        let stages = micro::run(bench)?;
        progress(&spec.title, 1, total);
        Ok(stages)
    })?;
    let lines = benches.into_iter().zip(stages).map(|((who, order, _), stages)| Line { who, order, stages }).collect();
    let all = All { lines, pages: spec.pages_kib.clone() };
    done.results.push(Results::Lines("micro-benchmarks", as_json(&all.lines)?));
    done.verdicts.extend(all.claims());
    done.drawings.extend(all.drawings());
    Ok(())
}

impl All {
    fn of(&self, who: Who, order: Order) -> Option<&Stages> {
        self.lines.iter().find(|line| (line.who, line.order) == (who, order)).map(|line| &line.stages)
    }

    fn damelo(&self, page_kib: u32, order: Order) -> Option<&Stages> {
        self.of(Who::Damelo { page_kib, pools: 1 }, order)
    }

    /// The page with the shortest time, of those up to so many KiB, and that time.
    fn best(&self, pools: u64, most: u32, order: Order, stage: Stage) -> Option<(u32, f64)> {
        let time =
            |page_kib: &u32| Some((*page_kib, stage(self.of(Who::Damelo { page_kib: *page_kib, pools }, order)?)));
        let all = self.pages.iter().filter(|page| **page <= most).filter_map(time);
        all.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// ext2's shortest time, cold or warm.
    fn ext2(&self, order: Order, stage: Stage, cold: bool) -> Option<f64> {
        let all = self.lines.iter().filter(|line| line.order == order);
        let all = all.filter(|line| matches!(line.who, Who::Ext2 { cold: is, .. } if is == cold));
        all.map(|line| stage(&line.stages)).reduce(f64::min)
    }

    /// How many times as fast as ext2, cold.
    fn over(&self, page_kib: u32, order: Order, stage: Stage) -> Option<f64> {
        Some(self.ext2(order, stage, true)? / stage(self.damelo(page_kib, order)?))
    }

    fn best_over(&self, order: Order, stage: Stage, cold: bool) -> Option<f64> {
        Some(self.ext2(order, stage, cold)? / self.best(1, u32::MAX, order, stage)?.1)
    }

    fn claims(&self) -> Vec<Verdict> {
        let mut all = self.sequential();
        all.extend(self.random());
        all.extend(self.zipf());
        all
    }

    fn sequential(&self) -> Vec<Verdict> {
        let order = Order::Sequential;
        let read = self.damelo(256, order).map(READ);
        let better = |stage: Stage| self.pages.iter().all(|page| self.over(*page, order, stage) > Some(1.0));
        let everywhere = [CREATE, READ, DELETE].into_iter().all(better);
        vec![
            Verdict::of("D-1", "sequential read, pages of 256 KB, ms", "about 0.5", around(0.5, 0.35), read),
            Verdict::of(
                "D-2",
                "sequential read, pages of 16 KB, over ext2",
                "5x",
                (3.5, 6.5),
                self.over(16, order, READ),
            ),
            Verdict::of(
                "D-3",
                "sequential: every stage is faster than ext2's with every page",
                "yes",
                YES,
                holds(everywhere),
            ),
        ]
    }

    fn random(&self) -> Vec<Verdict> {
        let order = Order::Random;
        let reads: Vec<f64> = self.pages.iter().filter_map(|page| Some(self.damelo(*page, order)?.read_ms)).collect();
        let small = self.pages.iter().filter(|page| **page < 64).filter_map(|page| self.over(*page, order, READ));
        let penalty = |random: Option<f64>, sequential: Option<f64>| Some(random? / sequential?);
        let own = |order| self.best(1, u32::MAX, order, CREATE).map(|best| best.1);
        let ext2 = |order| self.ext2(order, CREATE, true);
        let (own, ext2) = (penalty(own(order), own(Order::Sequential)), penalty(ext2(order), ext2(Order::Sequential)));
        let delete = |order| self.best_over(order, DELETE, true);
        vec![
            Verdict::of("D-4", "random read degrades as pages grow", "yes", YES, holds(reads.is_sorted())),
            Verdict::of(
                "D-4",
                "random read, pages of 256 KB, over ext2",
                "on par",
                (0.75, 1.35),
                self.over(256, order, READ),
            ),
            Verdict::of(
                "D-4",
                "random read, pages below 64 KB, over ext2, the least",
                "clearly better; 2x",
                (1.3, 2.7),
                small.reduce(f64::min),
            ),
            Verdict::of("D-5", "random create over sequential create, Dámelo", "little penalty", (0.0, 1.35), own),
            Verdict::of(
                "D-5",
                "and ext2's penalty is the larger one",
                "yes",
                YES,
                own.zip(ext2).and_then(|(own, ext2)| holds(ext2 > own)),
            ),
            Verdict::of("D-6", "sequential delete over ext2", "10x", (7.0, 14.0), delete(Order::Sequential)),
            Verdict::of("D-6", "random delete over ext2", "10x", (7.0, 14.0), delete(order)),
        ]
    }

    fn zipf(&self) -> Vec<Verdict> {
        let best = |pools| self.best(pools, u32::MAX, POPULAR, READ);
        let rate = |page, order| self.damelo(page, order).map(|stages| stages.hit_rate);
        let larger = best(2).zip(best(1)).map(|(two, one)| two.1 / one.1);
        let quarter = Order::Zipf(1, 4);
        vec![
            Verdict::of(
                "D-7",
                "zipf 1:8 read, best page, over ext2",
                "6x",
                (4.5, 7.5),
                self.best_over(POPULAR, READ, true),
            ),
            Verdict::of(
                "D-8",
                "zipf 1:4 read, best page, over ext2",
                "2-3x",
                (2.0, 3.0),
                self.best_over(quarter, READ, true),
            ),
            Verdict::of(
                "D-9",
                "best page for zipf 1:8, KB",
                "32",
                (32.0, 32.0),
                best(1).map(|(page, _)| f64::from(page)),
            ),
            Verdict::of(
                "D-10",
                "hit rate of sequential reads, pages of 64 KB",
                "1.0",
                around(1.0, 0.05),
                rate(64, Order::Sequential),
            ),
            Verdict::of(
                "D-10",
                "hit rate of random reads, pages of 16 KB",
                ">= 0.5",
                least(0.5),
                rate(16, Order::Random),
            ),
            Verdict::of(
                "D-11",
                "zipf 1:8 read with twice the pool, time over that with one",
                "similar",
                (0.65, 1.05),
                larger,
            ),
        ]
    }

    /// Each of the fifteen benchmarks by page, beside ext2.
    fn drawings(&self) -> Vec<String> {
        let names = [("create", CREATE), ("read", READ), ("delete", DELETE)];
        let mut drawn = Vec::new();
        for order in Order::ALL {
            for (stage, of) in names {
                let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
                for Line { who, stages, .. } in self.lines.iter().filter(|line| line.order == order) {
                    let name = match who {
                        Who::Damelo { pools: 2.., .. } => continue,
                        Who::Damelo { page_kib, .. } => format!("Dámelo, {page_kib} KB"),
                        Who::Ext2 { block, cold: true } => format!("ext2, {block} B, cold"),
                        Who::Ext2 { block, .. } => format!("ext2, {block} B, warm"),
                    };
                    // The one time that the text has (D-1).
                    let is_said = order == Order::Sequential && stage == "read" && name == "Dámelo, 256 KB";
                    let published = is_said.then_some(0.5);
                    rows.push((name, [Some(of(stages)), published].into_iter().flatten().collect()));
                }
                let title = format!("{}: {stage}", order.name());
                let said = rows.iter().any(|(_, values)| values.len() > 1);
                let groups = if said { ["ours", "published"].map(String::from).to_vec() } else { Vec::new() };
                drawn.push(Bars { title, unit: "ms".into(), rows, groups, log: true }.svg());
            }
        }
        drawn
    }
}
