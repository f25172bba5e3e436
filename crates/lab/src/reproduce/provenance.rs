//! Which of our numbers are no predictions, and why: the whole list, paper by paper.
//!
//! A claim that no rule names is predicted. A rule stands here if the history of a parameter or of a reading shows that
//! it was chosen with the number in view, even if only one of several values in its band was; where a ratio has such
//! a number in it, the ratio is no prediction either. Reasons of some length are in `docs/literature/` and
//! `docs/LAB.md`.

use super::origin::Origin;

/// Claims of these ids (all, if none is named), with all of these pieces in what is claimed, have this origin. The
/// first rule that fits counts.
struct Rule(&'static [&'static str], &'static [&'static str], Origin);

/// Where a claim's number comes from.
pub(super) fn origin(paper: &str, id: &str, what: &str) -> Origin {
    let fits = |Rule(ids, pieces, _): &&Rule| {
        (ids.is_empty() || ids.contains(&id)) && pieces.iter().all(|piece| what.contains(piece))
    };
    rules(paper).iter().find(fits).map_or(Origin::PREDICTED, |rule| rule.2)
}

fn rules(paper: &str) -> &'static [Rule] {
    match paper {
        "markatos" => MARKATOS,
        "pmflf" => PMFLF,
        "hummingbird" => HUMMINGBIRD,
        "damelo" => DAMELO,
        "sears" => SEARS,
        _ => &[],
    }
}

const DEC: Origin = Origin::input("`dec` was fitted to it");
const DEC_GOES_ON: Origin = Origin::input("follows from the shares that `dec` was fitted to");
/// Figure 3 set where in its group a file's data begins.
const FIGURE_3: Origin = Origin::calibrated("`first_percent` of `ufs`");
/// SIMPLE came out too fast with 200 and with 500 ns an entry.
const ENTRY: Origin = Origin::calibrated("`entry_ns` of `ufs`");
const ENTRY_TOO: Origin = Origin::calibrated("`entry_ns` of `ufs`, in SIMPLE");
/// 128 MB are the least with which SQUID is not slower than SIMPLE.
const MEMORY: Origin = Origin::calibrated("the memory of `ufs`");
const MEMORY_TOO: Origin = Origin::calibrated("the memory of `ufs`, in SQUID");

const MARKATOS: &[Rule] = &[
    Rule(&["M-1"], &[], DEC),
    Rule(&["M-2"], &["reads and writes"], DEC_GOES_ON),
    Rule(&["M-2"], &["writes with a 2 GB disk"], DEC_GOES_ON),
    Rule(&["M-3", "M-4", "M-5", "M-6"], &[], FIGURE_3),
    Rule(&["M-7"], &["SIMPLE"], ENTRY),
    Rule(&["M-7"], &["SQUID"], MEMORY),
    Rule(&["M-8"], &["over SIMPLE"], ENTRY_TOO),
    Rule(&["M-8", "M-20"], &["over SQUID"], MEMORY_TOO),
    Rule(&["M-18"], &["order"], MEMORY),
    Rule(&["M-19"], &[], MEMORY_TOO),
];

/// With 4,096 slots at a time it went over the file many times, and files were faster.
const ONE_PASS: Origin = Origin::calibrated("slots collected at a time");
/// Files left to the system replaced 33 a second, a miss, while the model sent all that was due at once.
const LAZY_WRITER: Origin = Origin::calibrated("`writes_at_once` of `ntfs`");
/// Neither is in the paper; joining before each batch was put in when the claims were judged.
const JOINING: Origin = Origin::calibrated("when free blocks are joined");
/// A size drawn counts the header, so that the paper's own arithmetic comes out.
const SIZES: Origin = Origin::input("what a drawn size counts");
const TABLE_5: Origin = Origin::input("Table 5, given to the run");

const PMFLF: &[Rule] = &[
    Rule(&["P-2"], &["Figure 9, Iv"], ONE_PASS),
    Rule(&["P-2"], &["Figure 9, Ie"], ONE_PASS),
    Rule(&["P-6"], &["left to the system", "files"], LAZY_WRITER),
    Rule(&["P-12"], &["internal fragmentation"], SIZES),
    Rule(&["P-12"], &["the most of all scales"], SIZES),
    Rule(&["P-14"], &["internal fragmentation"], SIZES),
    Rule(&["P-14"], &["the same, T of 128 grains"], SIZES),
    Rule(&["P-14"], &[], JOINING),
    Rule(&["P-15"], &["total fragmentation"], JOINING),
    Rule(&["P-16"], &["edge sets"], TABLE_5),
    Rule(&["P-16"], &[", s of the disk"], Origin::OWN_BAR),
    Rule(&["P-17"], &["MB of disk for the graph"], Origin::OWN_BAR),
    Rule(&["P-17"], &[], TABLE_5),
    Rule(&["P-18"], &["edges of 126 bytes"], TABLE_5),
    Rule(&["P-18"], &["nodes and edges together"], Origin::OWN_BAR),
    Rule(&["P-19"], &[], TABLE_5),
];

const ISP: Origin = Origin::input("`isp` was fitted to hit ratios by disk size");
/// By what a page alone takes along a read answered a third to a half of the gets that the paper's did.
const PACKING: Origin = Origin::calibrated("what is packed with a page");
const OWN_IOS: Origin = Origin::calibrated("what is packed with a page, and the size of a cluster");
const OWN_TIME: Origin = Origin::calibrated("what is packed with a page, in Hummingbird's time");
const CLUSTER: Origin = Origin::calibrated("the size of a cluster");
/// A drive that answered from its cache would make files in less than 20 ms.
const WRITE_CACHE: Origin = Origin::calibrated("the drive's write cache, off");
/// Soft updates as other papers found them are another profile.
const SOFT: Origin = Origin::calibrated("`ufs-soft-paper`, made after what this paper found");

const TABLES: &[&str] = &["T-2", "T-3", "T-4", "T-5"];

const HUMMINGBIRD: &[Rule] = &[
    Rule(TABLES, &["hit ratio"], ISP),
    Rule(&["H-4", "H-10"], &[], ISP),
    Rule(&["H-1", "H-2", "H-3"], &["times the run time"], OWN_TIME),
    Rule(TABLES, &[", hummingbird", "FS read"], PACKING),
    Rule(TABLES, &[", hummingbird", ": run time"], OWN_TIME),
    Rule(TABLES, &[", hummingbird", "mean I/O"], CLUSTER),
    Rule(TABLES, &[", hummingbird", "I/Os"], OWN_IOS),
    Rule(TABLES, &[", ufs,", "FS write"], WRITE_CACHE),
    Rule(TABLES, &[", ufs", "mean I/O"], WRITE_CACHE),
    Rule(TABLES, &[", ufs,", ": run time"], WRITE_CACHE),
    Rule(TABLES, &[", ufs-soft,", ": run time"], SOFT),
    Rule(TABLES, &[", ufs-soft,", "FS write"], SOFT),
    Rule(TABLES, &[", ufs-soft,", "I/Os"], SOFT),
    Rule(&["H-5"], &["mean I/O"], CLUSTER),
    Rule(&["H-7"], &[], CLUSTER),
];

/// With a group for each thread a sequential read took 3 ms.
const THREADS: Origin = Origin::calibrated("threads share a stage's order");
/// The thesis says nothing of ext2's memory; warm, ext2 is faster than any page.
const COLD: Origin = Origin::calibrated("ext2 is cold");
/// Were each file open for all of its call, ext2's creations in order would be the slower ones.
const OPEN_FILES: Origin = Origin::calibrated("how long ext2 reserves blocks behind a file");

const DAMELO: &[Rule] = &[
    Rule(&["D-1", "D-2", "D-3"], &[], THREADS),
    Rule(&["D-4"], &["over ext2"], COLD),
    Rule(&["D-5"], &["ext2's penalty"], OPEN_FILES),
    Rule(&["D-7", "D-8"], &[], COLD),
];

const SEARS: &[Rule] = &[Rule(&["own"], &[], Origin::OWN_BAR)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{How, PAPERS, origin::Kind, reproduce};

    #[test]
    fn each_rule_is_the_first_for_some_claim_and_says_why() {
        for paper in PAPERS.into_iter().filter(|paper| *paper != "sears") {
            let quick = How { quick: true, ..How::default() };
            let done = reproduce(paper, None, quick, &|_, _, _| {}).unwrap_or_else(|error| panic!("{paper}: {error}"));
            let all: Vec<_> = done.all().collect();
            for (at, Rule(ids, pieces, origin)) in rules(paper).iter().enumerate() {
                let first = |verdict: &&&crate::reproduce::Verdict| {
                    let fits = |rule: &Rule| {
                        (rule.0.is_empty() || rule.0.contains(&verdict.id))
                            && rule.1.iter().all(|piece| verdict.what.contains(piece))
                    };
                    rules(paper).iter().position(fits) == Some(at)
                };
                let found =
                    all.iter().find(first).unwrap_or_else(|| panic!("{paper}: no claim for {ids:?} {pieces:?}"));
                assert_eq!(found.origin, *origin, "{paper} {}", found.id);
                assert_eq!(origin.by.is_empty(), matches!(origin.kind, Kind::Predicted | Kind::OwnBar), "{ids:?}");
            }
            assert!(all.iter().any(|verdict| verdict.origin.kind == Kind::Predicted), "{paper}");
        }
    }

    #[test]
    fn what_was_set_by_a_number_does_not_predict_it() {
        let kind = |paper, id, what| origin(paper, id, what).kind;
        assert_eq!(kind("markatos", "M-7", "SIMPLE, gets a second"), Kind::Calibrated);
        assert_eq!(kind("markatos", "M-7", "MULTIPLE-DIRS"), Kind::Predicted);
        assert_eq!(kind("markatos", "M-1", "URL-reads"), Kind::Input);
        assert_eq!(kind("hummingbird", "T-2", "Table 2, ufs, 4 GB, 128+128: hit ratio"), Kind::Input);
        assert_eq!(kind("hummingbird", "T-2", "Table 2, ufs-async, 4 GB, 128+128: FS write, ms"), Kind::Predicted);
        assert_eq!(kind("sears", "own", "anything"), Kind::OwnBar);
    }
}
