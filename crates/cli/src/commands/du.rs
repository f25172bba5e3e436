//! `picaflor du`: of what a running server has, how much is of each host, type, status, tag or group.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{
    Failure, Format,
    server::{Admin, encoded, number, word},
};
use crate::{human, output::Output};

const EXAMPLES: &str = "\
Examples:
  Which hosts take the most room?
      picaflor du

  Of one host, which types, which tags?
      picaflor du --host www.example.org --by type
      picaflor du --host www.example.org --by tag --format json

What has several tags, or groups of Cache-Groups, counts for each of them; what has none is a line without a name. A \
group is its host's own. Slices of an object count for its host and placement group only. What is purged and not yet \
swept away counts: it takes room.";

/// Sums up what a running server has: by host, type, status, tag or group
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor du --help` has examples.")]
pub(crate) struct Du {
    /// What to sum up by
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    by: By,
    /// Only this host
    #[arg(long)]
    host: Option<String>,
    #[command(flatten)]
    admin: Admin,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum By {
    #[default]
    Host,
    Type,
    Status,
    /// Of Surrogate-Key and Cache-Tag
    Tag,
    /// Of Cache-Groups
    CacheGroup,
    /// What is laid side by side in the store, by number
    Group,
}

impl By {
    /// Under which names a response counts.
    fn names(self, line: &Value) -> Vec<String> {
        match self {
            Self::Host => vec![word(line, "host")],
            // Without what is said behind it.
            Self::Type => vec![word(line, "type").split(';').next().unwrap_or_default().trim().to_lowercase()],
            Self::Status => vec![number(line, "/status").to_string()],
            Self::Group => vec![number(line, "/group").to_string()],
            Self::Tag => listed(line, "tags", |tag| tag),
            Self::CacheGroup => listed(line, "cache_groups", |name| format!("{} {name:?}", word(line, "host"))),
        }
    }
}

/// A name for each that a response lists there; an empty one where it lists none.
fn listed(line: &Value, what: &str, name: impl Fn(String) -> String) -> Vec<String> {
    let all = line.get(what).and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<_> = all.filter_map(Value::as_str).map(crate::key::harmless).map(name).collect();
    if names.is_empty() {
        names.push(String::new());
    }
    names
}

impl Du {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let server = self.admin.server()?;
        let path =
            self.host.as_ref().map_or_else(|| "/objects".into(), |host| format!("/objects?host={}", encoded(host)));
        let (mut sums, mut is_whole) = (BTreeMap::<String, (u64, u64)>::new(), false);
        server.lines(&path, |line| {
            is_whole |= line.get("unreadable").and_then(Value::as_u64) == Some(0);
            let is_part = !matches!(self.by, By::Host | By::Group) && line.get("part").is_some();
            if line.get("key").is_some() && !is_part {
                for name in self.by.names(&line) {
                    let (objects, bytes) = sums.entry(name).or_default();
                    *objects += 1;
                    *bytes += number(&line, "/bytes");
                }
            }
            Ok(true)
        })?;
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
        let mut out = Output::new();
        for (name, (objects, bytes)) in sums {
            match self.format {
                Format::Json => out.json(&json!({"name": name, "objects": objects, "bytes": bytes}))?,
                Format::Text => out.line(format!("{:>10}  {objects:>9}  {name}", human::size(bytes)))?,
            }
        }
        out.flush()?;
        let why = "part of the store could not be read, or the server broke off: these are not all";
        if is_whole { Ok(()) } else { Err(Failure::Failed(why.into())) }
    }
}
