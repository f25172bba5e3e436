//! Rules about lines and words: width, white space, paths of one machine, one word per thing.

use crate::{
    Finding, Tree,
    source::{line_of, whole_words},
    table,
};

/// Files whose lines have a limit; prose and tables have none.
const SOURCES: &[&str] = &[".rs", ".toml", "scripts/test", ".ci/run", ".sh", ".lua"];

/// Files whose white space is looked at.
const TEXTS: &[&str] = &[".rs", ".toml", ".md", ".yml", "scripts/test", ".ci/run", ".sh", ".lua"];

/// A line is at most [`table::WIDTH`] characters, what one string literal or one link adds not counted: a
/// message that is cut in two cannot be searched for. Nor are drawings, fenced in a comment.
pub(crate) fn width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(SOURCES) {
        let view = file.source.as_ref().map_or(file.text.as_str(), |source| source.prose.as_str());
        let mut fenced = false;
        for (number, (line, masked)) in file.text.lines().zip(view.lines()).enumerate() {
            let chars = line.chars().count();
            let bare = masked.split_whitespace().map(|word| word.chars().count() + 1).sum::<usize>();
            let excused = line.contains("://") || line.starts_with("description") || (line != masked && bare < 100);
            fenced ^= ["//! ```", "/// ```"].iter().any(|fence| line.trim_start().starts_with(fence));
            // rustfmt itself lets the comma after an arm stand out.
            let most = table::WIDTH + usize::from(line.ends_with("),"));
            if chars > most && !excused && !fenced {
                let message = format!("{chars} characters, at most {}", table::WIDTH);
                findings.push(Finding::new(&file.path, number + 1, message));
            }
        }
    }
    findings
}

/// No tabs, no spaces at the end of a line, one line end at the end of a file.
pub(crate) fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(TEXTS) {
        for (number, line) in file.text.lines().enumerate() {
            let wrong = match line {
                line if line.contains('\t') => "a tab",
                line if line.ends_with([' ', '\r']) => "white space at the end",
                _ => continue,
            };
            findings.push(Finding::new(&file.path, number + 1, wrong));
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            findings.push(Finding::new(&file.path, file.text.lines().count(), "ends without exactly one line end"));
        }
    }
    findings
}

/// No absolute path of one machine: it works there only.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    // Written in two parts so that this file passes its own rule.
    let folders = ["work", "root", "home", "Users"].map(|name| format!("/{name}/"));
    let mut findings = Vec::new();
    for file in tree.files() {
        for (number, line) in file.text.lines().enumerate() {
            let inside = |at: usize| {
                line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*' | ']'))
            };
            if folders.iter().any(|folder| line.match_indices(folder.as_str()).any(|(at, _)| !inside(at))) {
                findings.push(Finding::new(&file.path, number + 1, "an absolute path of one machine"));
            }
        }
    }
    findings
}

/// One word per thing: the glossary's word, not a synonym ([`table::WORDS`]).
pub(crate) fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in tree.rust() {
        let prose = source.prose.to_ascii_lowercase();
        for (_, word, instead) in table::WORDS.iter().filter(|(under, ..)| file.path.starts_with(under)) {
            for at in whole_words(&prose, word) {
                let message = format!("`{word}`: this house says {instead}");
                findings.push(Finding::new(&file.path, line_of(&prose, at), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{places, tree};

    #[test]
    fn a_wide_line_is_found_but_not_a_long_message() {
        let code = format!("fn a() {{ {} }}\n", "let b = c; ".repeat(12));
        let message = format!("    panic!(\"{}\");\n", "long ".repeat(30));
        let drawing = format!("//! ```text\n//! {}\n//! ```\n", "box ".repeat(40));
        let both = tree(&[("a.rs", &format!("{message}{code}")), ("a.md", &code), ("b.rs", &drawing)]);
        assert_eq!(places(&width(&both)), [("a.rs", 2)]);
    }

    #[test]
    fn tabs_and_trailing_spaces_are_found() {
        let bad = tree(&[("a.rs", "ok\n\tb\nc \n"), ("b.md", "no end"), ("c.md", "two ends\n\n")]);
        assert_eq!(places(&whitespace(&bad)), [("a.rs", 2), ("a.rs", 3), ("b.md", 1), ("c.md", 2)]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let bad = format!("see /{}/me/x\nhttp://host/{}/x\n/usr/share\n", "home", "work");
        assert_eq!(places(&machine_paths(&tree(&[("a.md", &bad)]))), [("a.md", 1)]);
    }

    #[test]
    fn a_taken_word_is_found_in_code_and_comments_only() {
        let bad = "//! Memtable one.\nfn memtable() {}\nconst A: &str = \"memtable\"; // memtables\n";
        let both = tree(&[("crates/engine/src/a.rs", bad), ("crates/proxy/src/a.rs", bad)]);
        assert_eq!(places(&words(&both)), [("crates/engine/src/a.rs", 1), ("crates/engine/src/a.rs", 2)]);
    }
}
