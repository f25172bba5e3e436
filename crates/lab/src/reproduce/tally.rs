//! How many claims of a table are what, and the line that says so.

use std::fmt;

use super::origin::Kind;

/// How many claims of a table are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Of each kind, in the order of [`Kind::ALL`]: how many hold, of how many.
    pub(super) kinds: [(usize, usize); 4],
    pub(super) apart: usize,
    pub(super) twice: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, (passed, claims)) in Kind::ALL.into_iter().zip(self.kinds) {
            match kind {
                Kind::Predicted => write!(f, "{passed} of {claims} {}", kind.counted())?,
                _ if claims > 0 => write!(f, "; {passed} of {claims} {}", kind.counted())?,
                _ => {}
            }
        }
        if self.apart > 0 {
            write!(f, "; {} are not carried over", self.apart)?;
        }
        if self.twice > 0 {
            write!(f, "; {} are judged twice and counted once", self.twice)?;
        }
        write!(f, ".")
    }
}

impl Tally {
    /// What its text says.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.split_whitespace().next()?.parse::<usize>().ok();
        let mut tally = Self::default();
        for piece in text.trim_end_matches('.').split("; ") {
            if let Some((passed, claims)) = piece.split_once(" of ") {
                let at = Kind::ALL.into_iter().position(|kind| claims.ends_with(kind.counted()))?;
                tally.kinds[at] = (number(passed)?, number(claims)?);
            } else if piece.ends_with("are not carried over") {
                tally.apart = number(piece)?;
            } else {
                tally.twice = number(piece)?;
            }
        }
        (tally.to_string() == text).then_some(tally)
    }

    /// Counts a row of the table by its last two cells.
    pub(super) fn count(&mut self, row: &str, by: impl Fn(usize) -> usize) {
        let mut cells = row.trim_end_matches(['|', ' ']).rsplit("| ");
        let (verdict, from) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let kind = Kind::of_cell(from).and_then(|kind| Kind::ALL.into_iter().position(|one| one == kind));
        match (verdict, kind) {
            ("pass", Some(at)) => self.kinds[at] = (by(self.kinds[at].0), by(self.kinds[at].1)),
            ("miss", Some(at)) => self.kinds[at].1 = by(self.kinds[at].1),
            ("-", _) => self.apart = by(self.apart),
            _ => self.twice = by(self.twice),
        }
    }
}
