//! A paper run with several seeds: which verdicts are the seed's.

use super::{flip::Flip, reproduction::Reproduction, verdict::Verdict};

/// What flips between runs of one paper that differ in the seed only. What one of them lacks is not compared.
pub(super) fn flips(runs: &[Reproduction]) -> Vec<Flip> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of = |run: &Reproduction, claim: &Verdict| {
        run.all().find(|one| (one.id, &one.what) == (claim.id, &claim.what)).map(|one| (one.shown(), one.pass))
    };
    let flip = |claim: &Verdict| {
        let ours: Vec<_> = runs.iter().filter_map(|run| of(run, claim)).collect();
        let flips = ours.iter().any(|(_, pass)| *pass != claim.pass);
        flips.then(|| Flip { id: claim.id, what: claim.what.clone(), published: claim.published.clone(), ours })
    };
    first.all().filter(|claim| claim.counts()).filter_map(flip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_with_one_seed_and_not_with_another_is_named() {
        let verdict = |id, ours| Verdict::of(id, "what", "1", (0.5, 1.5), Some(ours));
        let run = |values: [f64; 3]| Reproduction {
            verdicts: ["A", "B", "C"].into_iter().zip(values).map(|(id, ours)| verdict(id, ours)).collect(),
            ..Reproduction::default()
        };
        let found = flips(&[run([1.0, 1.4, 9.0]), run([1.2, 1.6, 8.0]), run([0.9, 1.5, 7.0])]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id, found[0].ours[1].1), ("B", false));
        assert!(found[0].line().contains("ours 1.4, 1.6 ✗, 1.5"), "{}", found[0].line());
        let mut apart = run([1.0; 3]);
        apart.verdicts[0] = Verdict::not_carried("A", "what", "1", "why");
        assert!(flips(&[apart, run([9.0, 1.0, 1.0])]).is_empty(), "what is not judged does not flip");
        assert!(flips(&[]).is_empty());
    }
}
