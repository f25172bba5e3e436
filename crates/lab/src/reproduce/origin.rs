//! Where a number of ours comes from, and so what it proves when it comes out as published.

use serde::Serialize;

/// What a claim proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nothing in the run was chosen with the number in view.
    Predicted,
    /// A parameter, or one of several readings of the paper, was chosen with this number in view.
    Calibrated,
    /// The workload was fitted to the number, or the number follows from what a run is given, whatever stores it.
    Input,
    /// The bar is this project's own: the paper has no number to come near to.
    OwnBar,
}

impl Kind {
    /// All of them, as they are counted.
    pub const ALL: [Self; 4] = [Self::Predicted, Self::Calibrated, Self::Input, Self::OwnBar];

    /// In a cell of a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Calibrated => "calibrated",
            Self::Input => "input",
            Self::OwnBar => "own bar",
        }
    }

    /// Behind how many of how many hold.
    #[must_use]
    pub fn counted(self) -> &'static str {
        match self {
            Self::Predicted => "predicted claims hold",
            Self::Calibrated => "calibrated",
            Self::Input => "inputs",
            Self::OwnBar => "own bars",
        }
    }

    /// Of the kind that a cell begins with.
    pub(super) fn of_cell(cell: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| cell.trim().starts_with(kind.name()))
    }
}

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// What the claim proves.
    pub kind: Kind,
    /// What was set by it, or what it was given by; empty for a prediction.
    pub by: &'static str,
}

impl Origin {
    pub(super) const PREDICTED: Self = Self { kind: Kind::Predicted, by: "" };
    pub(super) const OWN_BAR: Self = Self { kind: Kind::OwnBar, by: "" };

    pub(super) const fn calibrated(by: &'static str) -> Self {
        Self { kind: Kind::Calibrated, by }
    }

    pub(super) const fn input(by: &'static str) -> Self {
        Self { kind: Kind::Input, by }
    }

    /// As text.
    pub(super) fn shown(self) -> String {
        match self.by {
            "" => self.kind.name().into(),
            by => format!("{}: {by}", self.kind.name()),
        }
    }

    /// Behind a number among many, in a grid.
    pub(super) fn mark(self) -> &'static str {
        match self.kind {
            Kind::Predicted => "",
            Kind::Calibrated => " (c)",
            Kind::Input => " (i)",
            Kind::OwnBar => " (o)",
        }
    }
}
