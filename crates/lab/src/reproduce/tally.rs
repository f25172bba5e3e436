//! How many claims of a table are what, and the line that says so.

use std::fmt;

/// How many claims of a table are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) claims: usize,
    pub(super) apart: usize,
    pub(super) twice: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, claims, apart, twice } = self;
        write!(f, "{passed} of {claims} claims hold")?;
        if *apart > 0 {
            write!(f, "; {apart} are not carried over")?;
        }
        if *twice > 0 {
            write!(f, "; {twice} are judged twice and counted once")?;
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
                (tally.passed, tally.claims) = (number(passed)?, number(claims)?);
            } else if piece.ends_with("are not carried over") {
                tally.apart = number(piece)?;
            } else {
                tally.twice = number(piece)?;
            }
        }
        (tally.to_string() == text).then_some(tally)
    }

    /// Counts a row of the table by its last cell.
    pub(super) fn count(&mut self, row: &str, by: impl Fn(usize) -> usize) {
        match row.trim_end_matches(['|', ' ']).rsplit("| ").next().unwrap_or_default() {
            "pass" => (self.passed, self.claims) = (by(self.passed), by(self.claims)),
            "miss" => self.claims = by(self.claims),
            "-" => self.apart = by(self.apart),
            _ => self.twice = by(self.twice),
        }
    }
}
