//! Claims and what became of them.

use serde::Serialize;

use super::origin::Origin;
use crate::draw::short;

/// One published number, and ours.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// As `literature` counts them.
    pub id: &'static str,
    /// What is claimed.
    pub what: String,
    /// The published value, as the paper has it.
    pub published: String,
    /// Ours; `None` if it could not be had.
    pub ours: Option<f64>,
    /// The band in which ours has to lie.
    pub band: (f64, f64),
    /// Whether it does.
    pub pass: bool,
    /// Why it was not carried over, if it was not, or is shown and not judged: then it neither holds nor misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_carried: Option<&'static str>,
    /// Where the same number was judged before, if it was: it is shown here, and counts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<&'static str>,
    /// Where our number comes from.
    pub origin: Origin,
}

/// A statement that holds or does not.
pub(super) const YES: (f64, f64) = (1.0, 1.0);

/// At least so much.
pub(super) const fn least(value: f64) -> (f64, f64) {
    (value, f64::INFINITY)
}

/// At most so much.
pub(super) const fn most(value: f64) -> (f64, f64) {
    (f64::NEG_INFINITY, value)
}

/// A part of `share` either way of a published figure.
pub(super) const fn around(value: f64, share: f64) -> (f64, f64) {
    (value * (1.0 - share), value * (1.0 + share))
}

/// A statement as a value.
pub(super) fn holds(statement: bool) -> Option<f64> {
    Some(f64::from(u8::from(statement)))
}

impl Verdict {
    /// Holds a value against its band.
    pub(super) fn of(
        id: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        band: (f64, f64),
        ours: Option<f64>,
    ) -> Self {
        let ours = ours.filter(|value| value.is_finite());
        let pass = ours.is_some_and(|value| (band.0..=band.1).contains(&value));
        let (what, published, origin) = (what.into(), published.into(), Origin::PREDICTED);
        Self { id, what, published, ours, band, pass, not_carried: None, counted: None, origin }
    }

    /// What cannot be held against anything here, and why.
    pub(super) fn not_carried(
        id: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        why: &'static str,
    ) -> Self {
        Self { not_carried: Some(why), ..Self::of(id, what, published, YES, None) }
    }

    /// What ours came to where that can only be shown beside what was published, and why.
    pub(super) fn beside(
        id: &'static str,
        what: impl Into<String>,
        published: impl Into<String>,
        why: &'static str,
        ours: Option<f64>,
    ) -> Self {
        Self { not_carried: Some(why), ..Self::of(id, what, published, (f64::NEG_INFINITY, f64::INFINITY), ours) }
    }

    /// The same number as under another id, which counts there.
    #[must_use]
    pub(super) fn counted_as(self, id: &'static str) -> Self {
        Self { counted: Some(id), ..self }
    }

    /// Whether it is one of those that are counted.
    pub fn counts(&self) -> bool {
        self.not_carried.is_none() && self.counted.is_none()
    }

    /// Our value as text.
    pub fn shown(&self) -> String {
        match self.ours {
            None if self.not_carried.is_some() => "not carried over".into(),
            None => "not run".into(),
            Some(value) if self.band == YES => if value == 1.0 { "yes" } else { "no" }.into(),
            Some(value) => short(value),
        }
    }

    /// The band as text.
    pub fn band_shown(&self) -> String {
        if let Some(why) = self.not_carried {
            return why.into();
        }
        match self.band {
            YES => "yes".into(),
            (low, f64::INFINITY) => format!("at least {}", short(low)),
            (f64::NEG_INFINITY, high) => format!("at most {}", short(high)),
            (low, high) => format!("{} to {}", short(low), short(high)),
        }
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let verdict = match self.not_carried {
            Some(_) => "-",
            None if self.pass => "pass",
            None => "miss",
        };
        let verdict = self.counted.map_or_else(|| verdict.into(), |id| format!("{verdict}, as {id}"));
        let from = self.not_carried.map_or_else(|| self.origin.shown(), |_| "-".into());
        let (ours, band) = (self.shown(), self.band_shown());
        vec![self.id.into(), self.what.clone(), self.published.clone(), ours, band, from, verdict]
    }
}

/// A table of the paper beside ours: many numbers of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct Grid {
    /// Over it, with the bands.
    pub title: String,
    /// Of the columns: first those that say which row it is.
    pub head: Vec<String>,
    /// Row by row: which it is, and its numbers.
    pub rows: Vec<(Vec<String>, Vec<Verdict>)>,
}

impl Grid {
    /// Cells as text: the published value and ours, with a mark where ours is out of its band, and one where it is no
    /// prediction.
    pub(super) fn cells(&self) -> Vec<Vec<String>> {
        let cell = |verdict: &Verdict| {
            let mark = if verdict.pass { "" } else { " ✗" };
            format!("{} / {}{mark}{}", verdict.published, verdict.shown(), verdict.origin.mark())
        };
        let row = |(names, verdicts): &(Vec<String>, Vec<Verdict>)| {
            let cells: Vec<_> = names.iter().cloned().chain(verdicts.iter().map(cell)).collect();
            let empty = self.head.len().saturating_sub(cells.len());
            cells.into_iter().chain(vec![String::new(); empty]).collect()
        };
        self.rows.iter().map(row).collect()
    }

    /// Its numbers.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.rows.iter().flat_map(|(_, verdicts)| verdicts)
    }
}
