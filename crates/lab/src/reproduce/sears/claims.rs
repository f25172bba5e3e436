//! The claims, with where each number of ours is from: *predicted* (measured here, nothing was fitted to it), *input*,
//! or *own bar* (a promise of this repository, not of the paper).

use super::{
    super::verdict::{Verdict, around, least, most},
    runs::{FRAGMENTED, OURS, Runs, WHOLE},
};

const NEEDS_ROOT: &str = "files are aged on a file system of their own, which needs root";
const THEIRS: &str = "a rate of SQL Server 2005 and NTFS on their machine";
const CPU: &str = "what opening a file and asking a database cost is not replayed, only where objects lie";

/// Takes a claim on files as not carried over where they could not be run.
fn of_files(can: bool, id: &'static str, what: &str, published: &str, band: (f64, f64), ours: Option<f64>) -> Verdict {
    match can {
        true => Verdict::of(id, what, published, band, ours),
        false => Verdict::not_carried(id, what, published, NEEDS_ROOT),
    }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// How much a measure grew in the second half, for what it grew in the first: 1 is a line, 0 a plateau.
fn growth(values: Option<Vec<f64>>) -> Option<f64> {
    let values = values?;
    let (first, middle, last) = (values.first()?, values.get(values.len() / 2)?, values.last()?);
    let grew = middle - first;
    Some(if grew > 0.05 { (last - middle) / grew } else { 0.0 })
}

/// A measure at the end for that at the beginning.
fn kept(values: Option<Vec<f64>>) -> Option<f64> {
    let values = values?;
    Some(values.last()? / values.first()?)
}

/// Files for rows, by their rate at the first look or the last.
fn files_for_rows(runs: &Runs, size: &str, last: bool) -> Option<f64> {
    let rate = |kind: &str| {
        let rates = runs.rates(&format!("{kind}-{size}"))?;
        if last { rates.last().copied() } else { rates.first().copied() }
    };
    ratio(rate("files"), rate("rows"))
}

pub(super) fn claims(runs: &Runs, can: bool) -> Vec<Verdict> {
    let mut all = reads(runs, can);
    all.extend(shapes(runs, can));
    all.extend(lengths_and_requests(runs, can));
    all.extend(volumes(runs, can));
    all
}

fn reads(runs: &Runs, can: bool) -> Vec<Verdict> {
    let beside = |id, what: &str, published: &str, ours| Verdict::beside(id, what, published, CPU, ours);
    vec![
        beside("S-1", "young, 1 MB: files for rows", "less than 1", files_for_rows(runs, "1M", false)),
        beside("S-1", "young, 10 MB: files for rows", "more than 1", files_for_rows(runs, "10M", false)),
        Verdict::not_carried("S-2", "bulk load, 512 KB", "17.7 and 10.1 MB/s", THEIRS),
        of_files(can, "S-3", "old, 1 MB: files for rows", "more than 1", least(1.0), files_for_rows(runs, "1M", true)),
        beside("S-3", "old, 256 KB: files for rows", "about 1", files_for_rows(runs, "256K", true)),
        Verdict::of("S-4", "rows of 256 KB: rate, old for young", "0.5", around(0.5, 0.3), {
            kept(runs.rates("rows-256K"))
        }),
        Verdict::of("S-4", "rows of 1 MB: rate, old for young", "0.5", around(0.5, 0.3), {
            kept(runs.rates("rows-1M"))
        }),
    ]
}

fn shapes(runs: &Runs, can: bool) -> Vec<Verdict> {
    let four = around(4.0, 0.25);
    vec![
        of_files(
            can,
            "S-5",
            "files of 10 MB: growth of fragments, second half for first",
            "levels off",
            most(0.6),
            growth(runs.fragments("files-10M")),
        ),
        Verdict::of("S-5", "rows of 10 MB: the same", "nearly linear", (0.6, 1.6), {
            growth(runs.fragments("rows-10M"))
        }),
        of_files(
            can,
            "S-5",
            "files of 10 MB, from a fragmented volume on: fragments, old for young",
            "less than 1",
            most(1.0),
            kept(runs.fragments(FRAGMENTED)),
        ),
        of_files(can, "S-6", "files of 256 KB: fragments", "4", four, runs.last("files-256K")),
        Verdict::of("S-6", "rows of 256 KB: fragments", "4", four, runs.last("rows-256K")),
        Verdict::not_carried("S-7", "writes in bulk are faster than reads after it", "shape", THEIRS),
    ]
}

fn lengths_and_requests(runs: &Runs, can: bool) -> Vec<Verdict> {
    let alike = around(1.0, 0.25);
    let of = |more: &str, less: &str| ratio(runs.last(more), runs.last(less));
    vec![
        of_files(
            can,
            "S-8",
            "files: fragments of lengths that vary for one length",
            "about 1",
            alike,
            of("files-10M-uniform", "files-10M"),
        ),
        Verdict::of("S-8", "rows: the same", "about 1", alike, of("rows-10M-uniform", "rows-10M")),
        of_files(
            can,
            "S-8",
            "fragments of 10 MB, rows for files",
            "more than 1",
            least(1.0),
            of("rows-10M", "files-10M"),
        ),
        of_files(
            can,
            "S-9",
            "files of 1 MB: fragments with requests of 16 KB for 256 KB",
            "another",
            least(1.25),
            of("files-1M-16K", "files-1M-256K"),
        ),
        of_files(can, "S-9", "files of 1 MB, forced once: fragments", "another", most(1.2), runs.last(WHOLE)),
    ]
}

fn volumes(runs: &Runs, can: bool) -> Vec<Verdict> {
    let of = |more: &str, less: &str| ratio(runs.last(more), runs.last(less));
    const LARGE: &str = "volumes of 40 and 400 GB take hours: `lab age --standard`";
    vec![
        Verdict::not_carried("S-10", "NTFS, half full, 400 GB: fragments", "4 to 5", LARGE),
        Verdict::not_carried("S-10", "NTFS, half full, 40 GB: fragments", "11 to 12", LARGE),
        of_files(
            can,
            "S-11",
            "files of 1 MB, 200 free objects for 50",
            "about 1",
            around(1.0, 0.25),
            of("files-1M-large", "files-1M"),
        ),
        of_files(
            can,
            "S-12",
            "files of 1 MB, 10 free objects for 200",
            "more than 1",
            least(1.1),
            of("files-1M-small", "files-1M-large"),
        ),
        Verdict::not_carried("S-13", "runs of a whole disk", "up to a week", "an input"),
        Verdict::not_carried("S-14", "bounds from the literature on malloc", "several", "cited by the paper"),
        Verdict::of(
            "own",
            "`picaflor-store`, 1 MB, told the length, 75% full: fragments",
            "none",
            (1.0, 1.2),
            runs.last(OURS),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_there_and_none_holds_where_nothing_was_run() {
        let none = claims(&Runs::default(), false);
        for number in 1..=14 {
            let id = format!("S-{number}");
            assert!(none.iter().any(|verdict| verdict.id == id), "{id}");
        }
        assert!(none.iter().all(|verdict| !verdict.pass || !verdict.counts()));
        assert!(none.iter().any(|verdict| verdict.not_carried == Some(NEEDS_ROOT)));
        assert!(claims(&Runs::default(), true).iter().all(|verdict| !verdict.pass || !verdict.counts()));
    }

    #[test]
    fn a_line_grows_as_much_again_and_a_plateau_not() {
        assert_eq!(growth(Some(vec![1.0, 2.0, 3.0])), Some(1.0));
        assert_eq!(growth(Some(vec![1.0, 3.0, 3.0])), Some(0.0));
        assert_eq!(growth(Some(vec![1.0, 1.0, 1.0])), Some(0.0), "what does not grow has levelled off");
        assert_eq!(growth(None), None);
    }
}
