//! `picaflor stats`: what a store holds, read from its device; or what a running server holds and did, asked of its
//! admin listener.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use hyper::Uri;
use picaflor::Receipt;
use serde_json::{Value, json};

use super::{
    Failure, Format,
    server::{Server, Token, number},
};
use crate::{
    human, key,
    open::{self, Found, Memory},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  A store that is not in use:
      picaflor stats picaflor.store

  A running server, whose store is locked; from its folder, or with its token file named:
      picaflor stats --admin http://127.0.0.1:3129
      picaflor stats --admin http://127.0.0.1:3129 --token-file /srv/picaflor.store.token

  In a script:
      picaflor stats --admin http://127.0.0.1:3129 --format json | jq .proxy.hit_ratio
      picaflor stats --format json picaflor.store | jq .store.objects

JSON is one object for each store, or the server's own /stats. Counts of what was done are a server's: a store that was \
just opened has done nothing.";

/// Says what a store holds, or what a running server holds and did
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["store", "admin"]))]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor stats --help` has examples.")]
pub(crate) struct Stats {
    /// Stores: files or raw block devices; those of one store are put together
    store: Vec<PathBuf>,
    /// Ask a running server at the address of its admin listener
    #[arg(long, value_name = "http://IP:PORT")]
    admin: Option<Uri>,
    #[command(flatten)]
    token: Token,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
    #[command(flatten)]
    memory: Memory,
}

impl Stats {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = Output::new();
        if let Some(admin) = &self.admin {
            let stats = Server::new(admin, &self.token)?.ask("/stats")?;
            match self.format {
                Format::Json => out.json(&stats)?,
                Format::Text => out.bytes(of_server(admin, &stats).as_bytes())?,
            }
            return out.flush();
        }
        if self.token.token_file.is_some() {
            return Err(Failure::Usage("--token-file goes with --admin: a store has no token".into()));
        }
        let (stores, unopened) = open::find_each(&self.store);
        let mut failures: Vec<_> = unopened.into_iter().map(|unopened| unopened.why).collect();
        for found in stores {
            match self.of_store(&found, &mut out) {
                Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                done => failures.extend(done.err()),
            }
        }
        out.flush()?;
        Failure::worst(failures)
    }

    fn of_store(&self, found: &Found, out: &mut Output) -> Result<(), Failure> {
        let store = open::read(found, &self.memory)?;
        let (stats, receipt) = (value(&store.stats())?, value(store.receipt())?);
        match self.format {
            Format::Json => out.json(&json!({"places": found.places, "store": stats, "receipt": receipt})),
            Format::Text => out.bytes(of_store(found, &stats, store.receipt()).as_bytes()),
        }
    }
}

fn value(of: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(of).map_err(|e| Failure::Failed(format!("writing JSON: {e}")))
}

type Rows = Vec<(String, String)>;

fn of_store(found: &Found, stats: &Value, receipt: &Receipt) -> String {
    let first = &found.places[0];
    let mode = match first.mode {
        picaflor::Mode::Cache => "cache: makes room by dropping what was not used",
        picaflor::Mode::Store => "store: drops nothing by itself",
    };
    let openings = human::counted(first.openings, "time", "times");
    let mut rows: Rows = vec![
        ("mode".into(), mode.into()),
        ("preset".into(), first.preset.into()),
        ("made with".into(), format!("clusters of {}, format {}", human::size(first.cluster.into()), first.version)),
        ("opened".into(), format!("{openings} for writing")),
    ];
    rows.extend(held(stats));
    rows.push((
        "receipt".into(),
        format!("{} entries ready in {:.3} s", human::count(receipt.objects), receipt.seconds),
    ));
    rows.extend(receipt.volumes.iter().map(|volume| (String::new(), key::harmless(&volume.to_string()))));
    format!("{}\n{}", found.name(), human::table(&rows))
}

/// What the store holds.
fn held(stats: &Value) -> Rows {
    let size = |value: &Value, at: &str| human::size(number(value, at));
    let index = size(stats, "/index_bytes");
    let mut rows: Rows = vec![
        ("capacity".into(), size(stats, "/capacity")),
        (
            "entries".into(),
            format!("{} (of a large object one a piece), index {index}", human::count(number(stats, "/objects"))),
        ),
    ];
    let (live, removed) = (number(stats, "/live_bytes"), number(stats, "/counts/removed_bytes"));
    if removed > 0 && live > 0 {
        let age = removed as f64 / live as f64;
        let since = format!("{} live, {} left since it was opened", human::size(live), human::size(removed));
        rows.push(("storage age".into(), format!("{age:.2}: {since}")));
    }
    if stats.pointer("/counting").and_then(Value::as_bool) == Some(true) {
        let why = "the count was lost, by a crash or by a close of a full store that had no room left for it: entries and \
                   live bytes are those last noted, till the store that is open for writing has gone through its tables";
        rows.push(("".into(), why.into()));
    }
    for volume in stats.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        let of = |name: &str| volume.get(name).and_then(Value::as_str).map(key::harmless).unwrap_or_default();
        let (free, all) = (number(volume, "/clusters_free"), number(volume, "/clusters"));
        let clusters =
            format!("{} of {} clusters free ({})", human::count(free), human::count(all), human::share(free, all));
        let (journal, ring) = (number(volume, "/journal_pages/0"), number(volume, "/journal_pages/1"));
        let live = size(volume, "/live_bytes");
        rows.push(("place".into(), format!("{}, {}", of("place"), of("backend"))));
        let of_it = if all == 0 {
            // It lies in tables.
            format!("{live} live of {}", size(volume, "/room_bytes"))
        } else {
            format!("{live} live, {clusters}, journal {journal} of {ring} pages")
        };
        rows.push(("".into(), of_it));
        if let Some(why) = volume.get("failed").and_then(Value::as_str) {
            rows.push(("FAILED".into(), format!("it takes no more writes: {}", key::harmless(why))));
        }
    }
    rows
}

fn of_server(admin: &Uri, stats: &Value) -> String {
    let none = Value::Null;
    let part = |name: &str| stats.get(name).unwrap_or(&none);
    let (proxy, store) = (part("proxy"), part("store"));
    let version = part("version").as_str().map(key::harmless).unwrap_or_default();
    let up = human::span(number(stats, "/uptime_seconds"));
    let mut text = format!("{admin}: picaflor {version}, up {up}\n\nproxy\n{}", human::table(&of_proxy(proxy)));
    let mut rows = held(store);
    let (used, limit) = (number(store, "/memory_used"), number(store, "/memory_limit"));
    rows.push(("memory".into(), format!("{} of {}", human::size(used), human::size(limit))));
    text += &format!("\nstore\n{}", human::table(&rows));
    for (title, name) in [("since it was opened", "counts"), ("misses", "misses"), ("refused puts", "refusals")] {
        let rows = nonzero(store.get(name).unwrap_or(&none));
        if !rows.is_empty() {
            text += &format!("\n{title}\n{}", human::table(&rows));
        }
    }
    text
}

fn of_proxy(proxy: &Value) -> Rows {
    let empty = Value::Null;
    let outcomes = nonzero(proxy.get("requests").unwrap_or(&empty));
    let all: u64 =
        proxy.get("requests").and_then(Value::as_object).into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    let ratio = proxy.get("hit_ratio").and_then(Value::as_f64).unwrap_or(0.0) * 100.0;
    let mut rows: Rows = vec![("requests".into(), human::count(all)), ("hit ratio".into(), format!("{ratio:.1}%"))];
    rows.extend(outcomes.into_iter().map(|(name, n)| (format!("  {name}"), n)));
    let groups = [
        ("not stored", "not_stored"),
        ("passed by", "bypasses"),
        ("denied", "denied"),
        ("origin failed", "origin_failures"),
    ];
    for (title, name) in groups {
        for (reason, n) in nonzero(proxy.get(name).unwrap_or(&empty)) {
            rows.push((format!("{title}: {reason}"), n));
        }
    }
    let open = number(proxy, "/connections").saturating_sub(number(proxy, "/connections_closed"));
    rows.push(("connections open".into(), human::count(open)));
    rows.extend(nonzero(proxy));
    rows
}

/// The counters of an object that are not zero, in words; those of bytes as sizes.
fn nonzero(counts: &Value) -> Rows {
    let numbers = counts.as_object().into_iter().flatten().filter_map(|(name, n)| Some((name, n.as_u64()?)));
    let row = |(name, n): (&String, u64)| {
        let is_bytes = name.ends_with("bytes") || matches!(name.as_str(), "device_written" | "device_read");
        (name.replace('_', " "), if is_bytes { human::size(n) } else { human::count(n) })
    };
    numbers.filter(|(_, n)| *n > 0).map(row).collect()
}
