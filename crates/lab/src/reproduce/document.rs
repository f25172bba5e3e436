//! The table of a paper in a document: written whole between the two comments that name it, or some of its rows.

use super::{how::Part, reproduction::Reproduction, tally::Tally};
use crate::{Error, Result};

fn ends(name: &str) -> (String, String) {
    (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->\n"))
}

/// What is before the table of a name in a document, the table, and what is behind it.
fn find<'a>(document: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (begin, end) = ends(name);
    let (before, rest) = document.split_once(&begin)?;
    let (table, after) = rest.split_once(&end)?;
    Some((before, table, after))
}

/// Puts a table between the two comments that name it in a document, in the place of what was there; at the end, if
/// the document does not have them.
pub fn replace_table(document: &str, name: &str, table: &str) -> String {
    let (begin, end) = ends(name);
    match find(document, name) {
        Some((before, _, after)) => format!("{before}{begin}\n{table}\n{end}{after}"),
        None => format!("{document}\n{begin}\n{table}\n{end}"),
    }
}

/// Puts the rows of a part of a paper into its table in a document, in the place of those with their ids; behind the
/// others, if there are none. The count below the table is made to agree.
///
/// # Errors
/// If the document has no such table, or the part is more than rows.
pub fn replace_rows(document: &str, done: &Reproduction, part: Part) -> Result<String> {
    let wrong = |why: &str| Error::experiment(done.paper.as_str(), why);
    if part.ids().iter().any(|id| id.starts_with("T-")) {
        return Err(wrong("this part has tables of its own: they are written with the whole paper, without --only"));
    }
    let (_, table, _) = find(document, &done.paper)
        .ok_or_else(|| wrong("the document has no table of this paper: it is written without --only first"))?;
    let is_mine = |line: &str| part.ids().iter().any(|id| line.starts_with(&format!("| {id} |")));
    let mut lines: Vec<String> = table.trim().lines().map(String::from).collect();
    let told = lines.last().and_then(|line| Tally::parse(line));
    let mut tally = told.ok_or_else(|| wrong("the document's table of this paper has no count at its end"))?;
    let rows = lines.iter().take_while(|line| line.starts_with('|')).count();
    let at = lines[..rows].iter().position(|line| is_mine(line)).unwrap_or(rows);
    for old in lines[..rows].iter().filter(|line| is_mine(line)) {
        tally.count(old, |number| number.saturating_sub(1));
    }
    let mut number = 0;
    lines.retain(|line| {
        number += 1;
        number > rows || !is_mine(line)
    });
    let new: Vec<String> = done.verdicts.iter().map(|one| format!("| {} |", one.cells().join(" | "))).collect();
    new.iter().for_each(|row| tally.count(row, |number| number + 1));
    lines.splice(at..at, new);
    if let Some(last) = lines.last_mut() {
        *last = tally.to_string();
    }
    Ok(replace_table(document, &done.paper, &(lines.join("\n") + "\n")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on fails
mod tests {
    use super::*;
    use crate::reproduce::{Verdict, part};

    #[test]
    fn a_table_is_replaced_where_it_was() {
        let once = replace_table("# A\n", "t", "| one |\n");
        let twice = replace_table(&(once.clone() + "more\n"), "t", "| two |\n");
        assert!(once.contains("| one |") && !twice.contains("| one |") && twice.ends_with("more\n"), "{twice}");
        assert_eq!(twice.matches("begin").count(), 1);
    }

    #[test]
    fn rows_of_a_part_are_replaced_and_counted_anew() {
        let verdict = |id, ours| Verdict::of(id, "what", "1", (0.5, 1.5), Some(ours));
        let paper = |verdicts| Reproduction { paper: "damelo".into(), verdicts, ..Reproduction::default() };
        let whole = paper(vec![verdict("D-1", 1.0), verdict("D-2", 3.0)]);
        let document = replace_table("# A\n", "damelo", &whole.markdown()) + "behind\n";
        let only = part("damelo", "D-12").unwrap();
        let apart = Verdict::not_carried("D-12", "what", "1", "why");
        let once = replace_rows(&document, &paper(vec![verdict("D-12", 1.0), apart.clone()]), only).unwrap();
        let told = "| D-2 | what | 1 | 3 | 0.5 to 1.5 | predicted | miss |\n\
                    | D-12 | what | 1 | 1 | 0.5 to 1.5 | predicted | pass |\n| D-12 |";
        assert!(once.contains(told), "{once}");
        assert!(
            once.contains("2 of 3 predicted claims hold; 1 are not carried over.") && once.ends_with("behind\n"),
            "{once}"
        );
        let twice = replace_rows(&once, &paper(vec![verdict("D-12", 9.0)]), only).unwrap();
        assert!(
            twice.contains("\n1 of 3 predicted claims hold.\n") && twice.matches("| D-12 |").count() == 1,
            "{twice}"
        );
        // What is written whole is the same.
        let all = paper(vec![verdict("D-1", 1.0), verdict("D-2", 3.0), verdict("D-12", 9.0)]);
        assert_eq!(replace_table(&document, "damelo", &all.markdown()), twice);
        let error = replace_rows("# A\n", &whole, only).unwrap_err();
        assert!(error.to_string().contains("no table of this paper"), "{error}");
    }

    #[test]
    fn a_count_is_what_its_text_says() {
        for tally in [Tally::default(), Tally { kinds: [(1, 2), (0, 3), (0, 0), (4, 5)], apart: 0, twice: 3 }] {
            assert_eq!(Tally::parse(&tally.to_string()), Some(tally));
        }
        assert_eq!(Tally::parse("11 of many predicted claims hold."), None);
        assert_eq!(Tally::parse("11 of 16 claims hold."), None, "of a time when kinds were not told apart");
        assert_eq!(Tally::parse("something else"), None);
    }
}
