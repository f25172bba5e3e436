//! What is claimed of the tests beside files and a database. Bands: orderings as they are said; ratios within what the
//! paper's own figures and words span; rates within 35%.

use super::{
    super::verdict::{Verdict, YES, around, holds},
    beside::{Linux, Nt, TESTS},
    measured::{Measured, chart},
};
use crate::{
    Result,
    draw::{Bars, Scale},
};

const FILES: usize = 0;
const PMFLF: usize = 1;
const DISK: usize = 2;
const DATABASE: &str = "a database needs a real file: `bench-engine --table site`";

impl Linux {
    fn test(&self, name: &str) -> [f64; 2] {
        let at = TESTS.iter().position(|test| *test == name).unwrap_or(0);
        [self.ms[FILES][at], self.ms[PMFLF][at]]
    }
}

fn over([a, b]: [f64; 2]) -> Option<f64> {
    (a > 0.0).then(|| b / a)
}

pub(super) fn claims(measured: &Measured) -> Vec<Verdict> {
    [figure_9(&measured.linux), figures_11_and_12(&measured.linux[0]), tables(&measured.nt)].concat()
}

/// The paper's own words are of both ways: each write committed, and the cache of the system as a help.
fn figure_9(linux: &[Linux; 2]) -> Vec<Verdict> {
    let mut rows = Vec::new();
    for (found, how) in linux.iter().zip(["forced", "left to the system"]) {
        for (test, first) in TESTS.into_iter().zip([PMFLF, FILES, PMFLF, FILES, PMFLF, PMFLF]) {
            let ms = found.test(test);
            let name = if first == PMFLF { "PMFLF is faster than files" } else { "files are faster than PMFLF" };
            let what = format!("Figure 9, {test}, {how}: {name}");
            rows.push(Verdict::of("P-2", what, "yes", YES, holds(ms[first] < ms[1 - first])));
        }
    }
    rows.push(Verdict::not_carried("P-2", "Figure 9: both are far ahead of the database", "yes", DATABASE));
    for (found, how) in linux.iter().zip(["forced", "left to the system"]) {
        let ratio = |setup: usize| over([found.test("Wp")[setup], found.test("Wn")[setup]]);
        let what = |name| format!("{name}, {how}: time of rewriting over creating");
        rows.push(Verdict::of("P-3", what("files"), "less", (0.0, 0.99), ratio(FILES)));
        rows.push(Verdict::of("P-3", what("PMFLF"), "more", (1.01, 10.0), ratio(PMFLF)));
    }
    rows
}

fn figures_11_and_12(found: &Linux) -> Vec<Verdict> {
    let [files, blocks] = [FILES, PMFLF].map(|setup| &found.space[setup]);
    let change = |space: &[u64]| Some(*space.last()? as f64 / *space.first()? as f64);
    let steady = |space: &[u64]| Some(*space.last()? as f64 / *space.get(space.len().checked_sub(3)?)? as f64);
    vec![
        Verdict::not_carried("P-4", "Figure 11: the database is slow however rarely it commits", "yes", DATABASE),
        Verdict::of(
            "P-5",
            "Figure 12: files take the same space after each run",
            "yes",
            YES,
            holds(change(files) == Some(1.0)),
        ),
        Verdict::of(
            "P-5",
            "Figure 12: PMFLF's space after the first run over files'",
            "slightly below 1",
            (0.5, 1.0),
            files.first().zip(blocks.first()).and_then(|(&files, &blocks)| over([files as f64, blocks as f64])),
        ),
        Verdict::of("P-5", "PMFLF's after seven runs over the first", "slightly more", (1.0, 1.35), change(blocks)),
        Verdict::of("P-5", "PMFLF's after seven runs over five", "steady", (0.97, 1.03), steady(blocks)),
        Verdict::not_carried("P-5", "Figure 12: the database starts higher and grows", "yes", DATABASE),
    ]
}

/// Tables 1 to 3: by sizes, the site's and the proxy's, of files and of PMFLF.
const TABLES: [[[f64; 2]; 2]; 3] =
    [[[21.6, 55.6], [18.5, 42.3]], [[20.2, 96.9], [15.6, 69.2]], [[643.0, 370.0], [1731.0, 1521.0]]];

/// Tables 1 to 3: ratios over files first, then the figures. The paper's PMFLF was in a file; "maximum performance" it
/// expects of one on the disk itself (§3). It does not say whether puts were forced.
fn tables([forced, left]: &[[Nt; 2]; 2]) -> Vec<Verdict> {
    let mb = |nt: &Nt| nt.bytes.map(|bytes| bytes.map(|bytes| bytes as f64 / 1e6));
    let replacements = |found, how: &str| {
        let what = format!("replacements/s, {how}");
        rows("P-6", &what, found, &|nt| nt.replacements, TABLES[0], Some((2.0, 3.0)))
    };
    let reads = |found, how: &str| {
        let what = format!("reads/s, puts {how}");
        rows("P-7", &what, found, &|nt| nt.reads, TABLES[1], Some((3.5, 5.5)))
    };
    let mut space = rows("P-8", "MB of disk", forced, &mb, TABLES[2], None);
    // The allocator takes the same, wherever it is.
    space.retain(|row| !row.what.contains("on the disk"));
    let [forced_too, left_too] = ["forced", "left to the system"];
    [
        replacements(forced, forced_too),
        replacements(left, left_too),
        reads(forced, forced_too),
        reads(left, left_too),
        space,
    ]
    .concat()
}

type Of<'a> = &'a dyn Fn(&Nt) -> [Option<f64>; 3];

/// A table's rows, of those that were run.
fn rows(
    id: &'static str,
    what: &str,
    found: &[Nt; 2],
    of: Of<'_>,
    published: [[f64; 2]; 2],
    band: Option<(f64, f64)>,
) -> Vec<Verdict> {
    let mut rows = Vec::new();
    for ((whose, found), [files, blocks]) in ["the site's sizes", "the proxy's"].iter().zip(found).zip(published) {
        let (ours, ratio) = (of(found), blocks / files);
        let text = |name: &str| format!("{what}, {whose}: {name}");
        let band = band.unwrap_or(around(ratio, 0.15));
        for (setup, name) in [(PMFLF, "PMFLF in a file over files"), (DISK, "PMFLF on the disk over files")] {
            if let (Some(files), Some(blocks)) = (ours[FILES], ours[setup]) {
                rows.push(Verdict::of(id, text(name), format!("{ratio:.2}x"), band, over([files, blocks])));
            }
        }
        let columns =
            [(FILES, files, "files"), (PMFLF, blocks, "PMFLF in a file"), (DISK, blocks, "PMFLF on the disk")];
        for (setup, value, name) in columns {
            if let Some(ours) = ours[setup] {
                rows.push(Verdict::of(id, text(name), value.to_string(), around(value, 0.35), Some(ours)));
            }
        }
    }
    rows
}

/// Figures 9 and 10, as bars, and Figure 12.
pub(super) fn drawings(measured: &Measured) -> Result<Vec<String>> {
    let [forced, left] = &measured.linux;
    let row = |(at, test): (usize, &&str)| {
        let of = |linux: &Linux| linux.ms.map(|ms| ms[at]);
        ((*test).to_owned(), [of(forced), of(left)].concat())
    };
    let bars = Bars {
        title: "Figures 9 and 10: time of an object".into(),
        unit: "ms".into(),
        rows: TESTS.iter().enumerate().map(row).collect(),
        groups: ["files", "PMFLF", "files, left to the system", "PMFLF, left to it"].map(String::from).to_vec(),
        log: true,
    };
    let line = |setup: usize, name: &str| {
        let points = (1..).zip(&forced.space[setup]).map(|(run, &bytes)| (f64::from(run), bytes as f64 / 1e6));
        (name.to_owned(), points.collect())
    };
    let lines = vec![line(FILES, "files"), line(PMFLF, "PMFLF")];
    let tables = [
        table("Table 1: replacements, puts forced", "/s", measured, TABLES[0], |nt| nt.replacements),
        table("Table 2: reads, puts forced", "/s", measured, TABLES[1], |nt| nt.reads),
        table("Table 3: space", "MB", measured, TABLES[2], |nt| {
            nt.bytes.map(|bytes| bytes.map(|bytes| bytes as f64 / 1e6))
        }),
    ];
    Ok([tables.to_vec(), vec![bars.svg(), chart("Figure 12: space", ("runs", Scale::Linear), "MB", lines).svg()?]]
        .concat())
}

/// A table's numbers beside ours.
fn table(
    title: &str,
    unit: &str,
    measured: &Measured,
    published: [[f64; 2]; 2],
    of: fn(&Nt) -> [Option<f64>; 3],
) -> String {
    let [forced, _] = &measured.nt;
    let mut rows = Vec::new();
    for ((whose, found), published) in ["the site's sizes", "the proxy's"].iter().zip(forced).zip(published) {
        for (setup, name, published) in [(FILES, "files", published[0]), (PMFLF, "PMFLF in a file", published[1])] {
            rows.push((format!("{whose}: {name}"), vec![of(found)[setup].unwrap_or(f64::NAN), published]));
        }
    }
    let groups = ["ours", "published"].map(String::from).to_vec();
    Bars { title: title.into(), unit: unit.into(), rows, groups, log: false }.svg()
}
