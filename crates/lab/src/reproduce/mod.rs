//! Papers, number by number: what was published, what we get, pass or miss.
//!
//! A *claim* is one published number or statement with the band in which ours has to lie. Claims of a paper share its
//! machines, file-system models and parameters, those of the experiments they are taken from.

mod damelo;
mod document;
mod files;
mod flip;
mod how;
mod hummingbird;
mod markatos;
mod origin;
mod pmflf;
mod provenance;
mod reproduction;
mod sears;
mod seeds;
mod tally;
mod verdict;

pub use self::{
    document::{replace_rows, replace_table},
    flip::Flip,
    how::{How, Part, Progress},
    origin::{Kind, Origin},
    reproduction::Reproduction,
    verdict::{Grid, Verdict},
};
use crate::{Error, Result};

/// The part of a paper that has the claim of this id.
///
/// # Errors
/// If there is none, with what there is.
pub fn part(paper: &str, id: &str) -> Result<Part> {
    let parts: &[&'static [&'static str]] = match paper {
        "hummingbird" => &hummingbird::PARTS,
        "damelo" => &damelo::PARTS,
        _ => return Err(Error::experiment(paper, "this paper is run as a whole: its claims share their runs")),
    };
    let found = parts.iter().find(|ids| ids.iter().any(|one| one.eq_ignore_ascii_case(id)));
    let all = || parts.iter().map(|ids| ids.join(" ")).collect::<Vec<_>>().join("; ");
    found.map(|ids| Part(ids)).ok_or_else(|| {
        Error::experiment(paper, format!("no part has the claim {id}; there are, by what is run together: {}", all()))
    })
}

/// The papers that can be reproduced.
pub const PAPERS: [&str; 5] = ["markatos", "pmflf", "hummingbird", "damelo", "sears"];

/// Runs what a paper needs and judges its claims. `spec` is the text of its file of machines and systems instead of the
/// one that comes with the lab; Markatos et al. have none, but experiments.
///
/// # Errors
/// If a run fails, or there is no such paper.
pub fn reproduce(paper: &str, spec: Option<&str>, how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let done = match (paper, spec) {
        ("markatos", None) => markatos::reproduce(how, progress),
        ("pmflf", None) => pmflf::reproduce(how, progress),
        ("sears", None) => sears::reproduce(how, progress),
        ("hummingbird", spec) => hummingbird::reproduce(spec.unwrap_or(hummingbird::SPEC), how, progress),
        ("damelo", spec) => damelo::reproduce(spec.unwrap_or(damelo::SPEC), how, progress),
        (paper, Some(_)) if PAPERS.contains(&paper) => Err(without_file(paper)),
        _ => Err(Error::experiment(paper, format!("no such paper; there are: {}", PAPERS.join(", ")))),
    };
    done.map(Reproduction::with_origins)
}

/// Runs a paper with as many seeds, one after the other; the first is the one that [`reproduce`] takes. Returns what
/// that came to, with what flips.
///
/// # Errors
/// As [`reproduce`]; for a paper that draws nothing by a seed.
pub fn reproduce_seeds(
    paper: &str,
    spec: Option<&str>,
    how: How,
    seeds: u64,
    progress: Progress<'_>,
) -> Result<Reproduction> {
    if paper == "sears" && seeds > 1 {
        return Err(Error::experiment(paper, "its runs lie on real files, and were not made to differ by a seed"));
    }
    let run = |seed| reproduce(paper, spec, How { seed: how.seed + seed, ..how }, progress);
    let mut runs: Vec<Reproduction> = (0..seeds.max(1)).map(run).collect::<Result<_>>()?;
    let flips = seeds::flips(&runs);
    let predicted = runs.iter().map(|run| run.count(Kind::Predicted).0).collect();
    let mut first = runs.swap_remove(0);
    if seeds > 1 {
        (first.flips, first.predicted_by_seed) = (flips, predicted);
    }
    Ok(first)
}

/// The file of machines and systems that a paper's runs take; `None`, if this is not the name of a paper.
///
/// # Errors
/// Of a paper that has no such file, with what it has instead.
pub fn spec(paper: &str) -> Result<Option<&'static str>> {
    match paper {
        "hummingbird" => Ok(Some(hummingbird::SPEC)),
        "damelo" => Ok(Some(damelo::SPEC)),
        _ if PAPERS.contains(&paper) => Err(without_file(paper)),
        _ => Ok(None),
    }
}

fn without_file(paper: &str) -> Error {
    let instead = match paper {
        "markatos" => format!("it is run by the experiments {}", markatos::EXPERIMENTS.join(", ")),
        _ => "its machines and sizes are part of the program".into(),
    };
    Error::experiment(paper, format!("this paper has no file of machines and systems: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_paper_is_there() {
        // How many of each id: a number that is left out is missed, not its id only.
        let claims = [4, 3, 2, 2, 1, 1, 4, 3, 1, 2, 3, 1, 1, 1, 1, 4, 6, 5, 1, 3];
        for (number, claims) in (1..).zip(claims) {
            let id = format!("M-{number}");
            assert_eq!(markatos::CLAIMS.iter().filter(|claim| claim.id == id).count(), claims, "{id}");
        }
        for number in
            ["2791", "2528", "2176", "2031", "28%", "37.5%", "14", "20", "23", "133", "295", "358", "396", "495"]
        {
            assert!(markatos::CLAIMS.iter().any(|claim| claim.published == number), "{number} of Tables 1 and 2");
        }
    }

    #[test]
    fn a_number_that_is_judged_twice_counts_once() {
        let verdict = Verdict::of("M-8", "one", "10x", (5.0, 11.0), Some(10.0));
        let twice = Verdict::of("M-20", "one again", "10x", (5.0, 11.0), Some(10.0)).counted_as("M-8");
        let paper = Reproduction { verdicts: vec![verdict, twice], ..Reproduction::default() };
        assert_eq!(paper.count(Kind::Predicted), (1, 1));
        let text = paper.markdown();
        assert!(
            text.contains("| pass, as M-8 |") && text.contains("1 of 1 predicted claims hold; 1 are judged twice"),
            "{text}"
        );
        for (id, what, before) in markatos::JUDGED_BEFORE {
            assert!(markatos::CLAIMS.iter().any(|claim| (claim.id, claim.what) == (id, what)), "{what}");
            assert!(markatos::CLAIMS.iter().any(|claim| claim.id == before), "{before}");
        }
    }

    #[test]
    fn no_effect_is_no_gain() {
        let gains = markatos::CLAIMS.iter().filter(|claim| claim.published.ends_with('%') && claim.id == "M-17");
        let bands: Vec<_> = gains.map(|claim| claim.band).collect();
        assert_eq!(bands.len(), 2);
        assert!(bands.iter().all(|band| band.0 > 1.1), "{bands:?}");
    }
}
