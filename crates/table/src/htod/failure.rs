//! What a failure of the allocator is called.

use crate::{Error, blocks::BlockError};

/// What a failure that stops the writing is called: with the next opening it is known again what the device holds.
const STOPPED: &str = ", and nothing more is written: open it again when the device works";

pub(super) fn stopped(error: Error) -> Error {
    match error {
        Error::Io { place, source } if !place.ends_with(STOPPED) => Error::Io { place: place + STOPPED, source },
        error => error,
    }
}

/// The engine's words for what the allocator says.
pub(super) fn failed(doing: &'static str) -> impl Fn(BlockError) -> Error {
    move |error| match error {
        BlockError::Io { what, source } => Error::Io { place: format!("{doing}: {what}"), source },
        BlockError::Stopped(error) => stopped(error),
        BlockError::Full { needed, free } => Error::Full { needed, free },
        BlockError::TooLong { len, max } => {
            let to_usize = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
            Error::Limit { what: "key and value", len: to_usize(len), max: to_usize(max) }
        }
        BlockError::Option { name, why } => Error::Option { name, why },
        other => Error::Damaged {
            place: "hash tables".to_owned(),
            why: format!("{doing}: {other}"),
            mend: "put the table's entries again from their source".to_owned(),
        },
    }
}
