//! From the text of a file to an experiment.

use super::{check, spec::Spec};
use crate::{Error, Result};

impl Spec {
    /// Reads an experiment.
    ///
    /// # Errors
    /// With the place of what is wrong in it.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let wrong = |why: String| Error::Experiment { name: name.into(), why };
        let mut spec: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        spec.name = name.into();
        check::spec(&spec).map_err(wrong)?;
        Ok(spec)
    }
}
