//! The PMFLF paper, a hundredth of it: that it runs, and that what is exact is exact.

use picaflor_lab::reproduce::{self, How};

#[test]
fn the_paper_runs_and_its_counts_are_exact() {
    let quick = How { quick: true, ..How::default() };
    let done = reproduce::reproduce("pmflf", None, quick, &|_, _, _| {}).unwrap();
    for number in (1..=19).filter(|&number| number != 4) {
        let id = format!("P-{number}");
        assert!(done.verdicts.iter().any(|verdict| verdict.id == id && verdict.ours.is_some()), "{id}");
    }
    let exact: Vec<_> = done.verdicts.iter().filter(|verdict| verdict.id == "P-1" && !verdict.pass).collect();
    assert!(exact.is_empty(), "{exact:?}");
    assert!(done.html().matches("<svg").count() == 13, "Tables 1 to 3, Figures 9, 12, and 14 to 21");
}
