//! picaflor's errors as Python's own: what the system says is an `OSError`, what an argument cannot be a `ValueError`.

use pyo3::{PyErr, create_exception, exceptions::*};

create_exception!(picaflor, Error, PyException, "What picaflor says; the message names the place and what to do.");
create_exception!(picaflor, Full, Error, "A store has no room for the object without dropping another.");
create_exception!(picaflor, Refused, Error, "The put was declined: the object is not in the store.");

pub(crate) fn failed(error: picaflor::Error) -> PyErr {
    let words = error.to_string();
    match error {
        // The kind decides which: FileNotFoundError, PermissionError ...
        picaflor::Error::Io { source, .. } => std::io::Error::new(source.kind(), words).into(),
        picaflor::Error::Option { .. } | picaflor::Error::Limit { .. } => PyValueError::new_err(words),
        picaflor::Error::Full { .. } => Full::new_err(words),
        picaflor::Error::Refused(_) => Refused::new_err(words),
        _ => Error::new_err(words),
    }
}
