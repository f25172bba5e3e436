//! Index pages that are not whole, and which of them can be made anew.

use std::{collections::BTreeMap, sync::Arc};

use super::tables::Index;
use crate::Error;

/// Pages that one reading of all blocks is for: what is kept in mind of their keys takes a few MiB.
const PAGES: usize = 1024;

const SOON: &str = "it is made anew from the entries while the tables are open for writing: ask again then";

/// Which page of which table.
pub(super) type Which = (u32, u64);

/// Pages that were met and are not whole.
#[derive(Default)]
pub(super) struct Damage {
    pages: BTreeMap<Which, Met>,
}

struct Met {
    index: Arc<Index>,
    /// Why it is left alone, if it is.
    refused: Option<&'static str>,
}

impl Damage {
    /// Notes that a page is not whole, and why it is left alone, if it is. The error for the caller that asked for it.
    pub(super) fn note(&mut self, index: &Arc<Index>, number: u64, why: &str, refused: Option<&'static str>) -> Error {
        let fresh = || Met { index: Arc::clone(index), refused };
        let met = self.pages.entry((index.number, number)).or_insert_with(fresh);
        met.refused = met.refused.or(refused);
        index.damaged_for(number, why, met.refused.unwrap_or(SOON))
    }

    /// Whether some of it can be mended.
    pub(super) fn is_mendable(&self) -> bool {
        self.pages.values().any(|met| met.refused.is_none())
    }

    /// Some of what can be mended.
    pub(super) fn some(&self) -> BTreeMap<Which, Arc<Index>> {
        let mendable = self.pages.iter().filter(|(_, met)| met.refused.is_none());
        mendable.take(PAGES).map(|(&which, met)| (which, Arc::clone(&met.index))).collect()
    }

    /// A page is whole again, or is to be left alone.
    pub(super) fn judged(&mut self, which: Which, outcome: std::result::Result<(), &'static str>) {
        if outcome.is_ok() {
            self.pages.remove(&which);
        } else if let Some(met) = self.pages.get_mut(&which) {
            met.refused = outcome.err();
        }
    }
}
