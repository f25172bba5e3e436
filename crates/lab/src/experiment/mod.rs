//! Experiments: small files that say what is replayed on what, which of it varies, and what is drawn.
//!
//! Each combination of what varies is a case, and a case is a run. Cases are spread over threads; each runs on one, so
//! that results do not depend on how many there are. The same experiment and seed give the same bytes of JSON, CSV and
//! HTML.

mod check;
mod parallel;
mod parse;
mod ready;
mod report;
mod row;
mod spec;
mod spread;

use std::path::Path;

pub use ready::{Ready, run};
pub use report::write;
pub use row::Row;
pub use spec::{Plot, Spec};
pub use spread::spread;

use crate::{Error, Result};

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        /// The experiments that come with the lab.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml")))),+];
    };
}

files!(
    "locality",
    "markatos-fig2",
    "markatos-fig4",
    "markatos-fig5",
    "markatos-fig6",
    "markatos-fig8",
    "markatos-operations",
    "markatos-table1",
    "page-sizes",
    "presets-on-devices",
    "quick",
    "traces-on-devices"
);

/// Names and specifications of all that come with the lab.
///
/// # Errors
/// If one of them is wrong, which a test rules out.
pub fn all() -> Result<Vec<Spec>> {
    FILES.iter().map(|(name, text)| Spec::parse(name, text)).collect()
}

/// The file of one that comes with the lab.
///
/// # Errors
/// If there is none of this name.
pub fn text(name: &str) -> Result<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    let names: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
    let why = format!("no such experiment, and no file of that name; there are: {}", names.join(", "));
    Error::Experiment { name: name.into(), why }
}

/// The experiment of this name, or in this file.
///
/// # Errors
/// If there is none, or it is wrong.
pub fn find(name: &str) -> Result<Spec> {
    if let Some((name, text)) = FILES.iter().find(|(known, _)| *known == name) {
        return Spec::parse(name, text);
    }
    let path = Path::new(name);
    // A name with an ending or a folder was meant as a file's, and why that cannot be read says more.
    if !path.exists() && path.extension().is_none() && path.components().count() == 1 {
        return Err(unknown(name));
    }
    let text = std::fs::read_to_string(path).map_err(Error::file("reading", path))?;
    let stem = path.file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    Spec::parse(&stem, &text)
}
