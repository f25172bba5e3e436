//! Reading a configuration file; an error names the file, the line, the key and the nearest key that exists.

use std::{fmt, fs, path::Path};

use toml::de::{DeTable, DeValue};

use super::Low;

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// `file:line`, or the dotted key; with the line before it where [`ConfigError::in_file`] found one.
    pub place: String,
    /// What is wrong, and the mend where there is one.
    pub why: String,
    /// What of it is the configuration's own, where `why` also tells what the machine has at the moment.
    about: Option<String>,
}

impl ConfigError {
    pub(crate) fn value(key: &str, why: String) -> Self {
        Self { place: key.to_owned(), why, about: None }
    }

    /// Of a value that the machine has no room for now.
    pub(crate) fn no_room(key: &str, about: String, why: String) -> Self {
        Self { place: key.to_owned(), why, about: Some(about) }
    }

    /// Whether both are about the same value of the same key; how much is free may have changed between them.
    #[must_use]
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        self.place == other.place && self.about() == other.about()
    }

    fn about(&self) -> &str {
        self.about.as_ref().unwrap_or(&self.why)
    }

    /// The same with the file and the line that say so, where the file has the key: for an error of what the file alone
    /// comes to.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        let Ok(text) = fs::read_to_string(path) else { return self };
        let Some(at) = DeTable::parse(&text).ok().and_then(|table| find(table.get_ref(), &self.place, &self.why))
        else {
            return self;
        };
        Self { place: format!("{}:{}: {}", path.display(), line(&text, at), self.place), ..self }
    }
}

/// Where a dotted key stands. Of several tables of one name, the one whose value `why` is about.
fn find(table: &DeTable<'_>, key: &str, why: &str) -> Option<usize> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let (name, value) = table.get_key_value(first)?;
    let inside = match (value.get_ref(), rest) {
        (DeValue::Table(inner), Some(rest)) => find(inner, rest, why),
        (DeValue::Array(tables), Some(rest)) => tables
            .iter()
            .filter_map(|table| table.get_ref().as_table())
            .filter(|table| table.get(rest).is_some_and(|value| is_told_of(value.get_ref(), why)))
            .find_map(|table| find(table, rest, why)),
        _ => None,
    };
    Some(inside.unwrap_or(name.span().start))
}

/// Whether `why` has the text, or one of the texts.
fn is_told_of(value: &DeValue<'_>, why: &str) -> bool {
    match value {
        DeValue::String(text) => why.contains(&**text),
        DeValue::Array(values) => values.iter().any(|value| is_told_of(value.get_ref(), why)),
        _ => false,
    }
}

fn line(text: &str, at: usize) -> usize {
    1 + text[..at.min(text.len())].matches('\n').count()
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
        let text = fs::read_to_string(path).map_err(|e| ConfigError::value(&name, e.to_string()))?;
        Self::parse(&name, &text)
    }

    /// Parses the text of the file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| line(text, span.start));
            ConfigError::value(&format!("{name}:{line}"), explain(e.message()))
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
