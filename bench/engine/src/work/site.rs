//! The tests of Iyengar, Jin and Challenger 2003, section 3.1: objects of a web site are written, rewritten, read by
//! name, and gone through; and the space that they take, after each of seven runs.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Figures, Job, churn::allocated};
use crate::{
    data::{Data, key},
    engines::{Engine, Walk},
};

/// Runs of Figure 12.
const RUNS: u32 = 7;

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    let space =
        || Ok::<f64, anyhow::Error>(engine.taken()?.map_or_else(|| allocated(&job.config.folder), Ok)? as f64 / 1e6);
    let mut figures = Figures::from([("7 MB empty".into(), space()?)]);
    let ms = |begin: Instant| begin.elapsed().as_secs_f64() * 1e3 / job.objects as f64;
    let write = || -> Result<f64> {
        let begin = Instant::now();
        (0..job.objects).try_for_each(|id| engine.put(&key(id), data.body(id, 0)))?;
        engine.commit()?;
        Ok(ms(begin))
    };
    figures.insert("1 Wp ms".into(), write()?);
    figures.insert("8 MB after 1 run".into(), space()?);
    figures.insert("2 Wn ms".into(), write()?);
    let begin = Instant::now();
    for number in 0..job.objects {
        // A prime that divides no population used here: each once, in no order that the engine could like.
        let id = number.wrapping_mul(2_147_483_647) % job.objects;
        let mut right = false;
        let found = engine.get(&key(id), &mut |body| right = data.is_body(id, 0, body))?;
        ensure!(found && right, "object {id} did not come back");
    }
    figures.insert("3 R ms".into(), ms(begin));
    let parts = [("4 Ik ms", Walk::Keys, 1), ("5 Iv ms", Walk::Values, 1), ("6 Ie ms", Walk::Pairs, 2)];
    for (name, what, of_each) in parts {
        let begin = Instant::now();
        let mut met = 0;
        engine.walk(what, &mut |_| met += 1)?;
        ensure!(met == job.objects * of_each, "{name}: met {met} of {} objects", job.objects);
        figures.insert(name.into(), ms(begin));
    }
    for _ in 2..RUNS {
        write()?;
    }
    engine.flush()?;
    figures.insert("9 MB after 7".into(), space()?);
    Ok(figures)
}
