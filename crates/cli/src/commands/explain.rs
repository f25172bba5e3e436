//! `picaflor explain`: what a running server knows of a URL.

use clap::Args;
use serde_json::Value;

use super::{
    Failure, Format,
    server::{Admin, encoded, number, word},
};
use crate::{human, key, output::Output};

const EXAMPLES: &str = "\
Examples:
  Whether it is stored, where it lies, until when it is fresh, and which purge took it:
      picaflor explain http://www.example.org/page

  In a script:
      picaflor explain --format json http://www.example.org/page | jq '.stored[].state'

A URL is looked for as clients of an origin and as clients of a forward proxy have it stored, by both schemes.";

/// Says what a running server knows of a URL: stored or not, where, until when
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor explain --help` has examples.")]
pub(crate) struct Explain {
    /// The URL, as clients ask for it
    url: String,
    #[command(flatten)]
    admin: Admin,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let is_url = self.url.split_once("://").is_some_and(|(scheme, rest)| {
            matches!(scheme, "http" | "https") && !rest.is_empty() && !rest.starts_with('/')
        });
        if !is_url {
            return Err(Failure::Usage(format!("{}: it is not a URL like http://host/path", key::harmless(&self.url))));
        }
        let server = self.admin.server()?;
        let known = server.ask(&format!("/explain?url={}", encoded(&self.url)))?;
        let mut out = Output::new();
        match self.format {
            Format::Json => out.json(&known)?,
            Format::Text => out.bytes(text(&known).as_bytes())?,
        }
        out.flush()
    }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(known: &Value) -> String {
    let now = number(known, "/now");
    let mut out = String::new();
    for found in list(known, "stored") {
        out += &format!("{}\n{}", word(found, "key"), human::table(&rows(found, now)));
    }
    for refused in list(known, "not_stored") {
        out += &format!("{}\n  not stored  of late: {}\n", word(refused, "key"), word(refused, "why"));
    }
    if out.is_empty() {
        out = format!(
            "{}\n  not stored  nor was it refused of late: it was not asked for, or has left\n",
            word(known, "url")
        );
    }
    out
}

fn rows(found: &Value, now: u64) -> Vec<(String, String)> {
    let time = |at: u64| {
        let seconds = human::span(at.abs_diff(now) / 1000);
        format!("{} ({})", human::time(at), if at < now { format!("{seconds} ago") } else { format!("in {seconds}") })
    };
    let mut rows = vec![("state".to_owned(), word(found, "state"))];
    if found.get("status").is_none() {
        return rows;
    }
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    if let Some(purge) = found.get("purge").filter(|purge| !purge.is_null()) {
        let soft = if purge.get("soft").and_then(Value::as_bool) == Some(true) { "soft, " } else { "" };
        let at = time(number(purge, "/at"));
        row("purged by", format!("{}{} {}, {at}", soft, word(purge, "kind"), word(purge, "text")));
    }
    let kind = word(found, "type");
    row("response", format!("{} {kind}, {}", number(found, "/status"), human::size(number(found, "/bytes"))));
    row("received", time(number(found, "/received")));
    row("fresh until", time(number(found, "/fresh_until")));
    let expires = found.get("expires").and_then(Value::as_u64);
    row("goes", expires.map_or("when its room is wanted".into(), |at| format!("{}, or before", time(at))));
    let names: Vec<String> =
        list(found, "varies_by").filter_map(|name| Some(key::harmless(name.as_str()?).to_string())).collect();
    if !names.is_empty() {
        row("varies by", names.join(", "));
    }
    if number(found, "/tags") > 0 {
        row("tags", human::count(number(found, "/tags")));
    }
    if let Some(slices) = found.get("slices").filter(|slices| !slices.is_null()) {
        let [count, stored] = ["/count", "/stored"].map(|name| human::count(number(slices, name)));
        row("in slices", format!("{count} of {}, {stored} of them stored", human::size(number(slices, "/bytes"))));
    }
    let places: Vec<&Value> = list(found, "places").collect();
    let lies = match places[..] {
        [] => "in memory only, yet".into(),
        [one] => format!("volume {}, byte {}", number(one, "/volume"), human::count(number(one, "/offset"))),
        [first, ..] => format!(
            "{} pieces on volume {}, the first at byte {}",
            human::count(places.len() as u64),
            number(first, "/volume"),
            human::count(number(first, "/offset"))
        ),
    };
    let memory = found.get("was_in_memory").and_then(Value::as_bool) == Some(true) && !places.is_empty();
    row("lies", format!("{lies}{}", if memory { ", and in memory" } else { "" }));
    rows
}
