//! What tables say, in the words of the store.

use picaflor::Error;
use picaflor_table::Error as Table;

/// The same error of a store.
pub(super) fn of_table(error: Table) -> Error {
    match error {
        Table::Io { place, source } => Error::Io { place, source },
        Table::Full { needed, free } => Error::full(needed, free),
        Table::Damaged { place, why, mend } => Error::Damaged { place, why, mend },
        Table::Option { name, why } => Error::Option { name, why },
        Table::Limit { what, len, max } => Error::Limit { what, len, max },
        Table::Daemon { place, daemon, why } => Error::Daemon { place, daemon, why },
        _ => Error::Closed,
    }
}
