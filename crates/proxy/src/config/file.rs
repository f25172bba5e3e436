//! Reading a configuration file; an error names the file, the line, the key and the nearest key that exists.

use std::{fmt, fs, path::Path};

use super::Low;

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// `file:line`, or the dotted key when the value came from a flag or is a matter of several keys.
    pub place: String,
    /// What is wrong, and the mend where there is one.
    pub why: String,
}

impl ConfigError {
    pub(crate) fn value(key: &str, why: String) -> Self {
        Self { place: key.to_owned(), why }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl std::error::Error for ConfigError {}

impl Low {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| ConfigError { place: name.clone(), why: e.to_string() })?;
        Self::parse(&name, &text)
    }

    /// Parses the text of the file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            ConfigError { place: format!("{name}:{line}"), why: explain(e.message()) }
        })
    }
}

/// "unknown field `x`, expected one of `a`, `b`" becomes "unknown key `x`; did you mean `a`?".
fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.trim_end().to_owned();
    };
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.filter(|name| !name.is_empty()).collect();
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min();
    match near {
        Some((_, name)) => format!("unknown key `{unknown}`; did you mean `{name}`?"),
        None => format!("unknown key `{unknown}`; known here: {}", known.join(", ")),
    }
}
