//! A verdict that is the seed's, not the paper's.

use serde::Serialize;

/// A claim that holds with some seeds and with others does not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flip {
    /// As the claim has it.
    pub id: &'static str,
    /// What is claimed.
    pub what: String,
    /// The published value.
    pub published: String,
    /// Ours and whether that passes, by the seeds in their order.
    pub ours: Vec<(String, bool)>,
}

impl Flip {
    /// In a line: what it is, and ours by seed.
    #[must_use]
    pub fn line(&self) -> String {
        let ours: Vec<_> =
            self.ours.iter().map(|(ours, pass)| format!("{ours}{}", if *pass { "" } else { " ✗" })).collect();
        format!("{:5} {:>10}  ours {}  {}", self.id, self.published, ours.join(", "), self.what)
    }
}
