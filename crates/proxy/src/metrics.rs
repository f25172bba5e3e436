//! Counters. Each worker has its own and alone writes them; readers add them up. Names come from the closed lists
//! in `reason`; what the store and the process say of themselves goes through a recorder of the crate `metrics`.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use ::metrics::{describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Map, Value, json};

use crate::reason::{Broken, Bypass, Denied, NoAnswer, NotStored, OriginFailure, Outcome, SliceOutcome, TlsFailure};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds. One writer, so no locked instruction is needed.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! table {
    ($name:ident) => {
        impl Counts<$name> {
            /// Counts one.
            #[inline]
            pub(crate) fn one(&self, what: $name) {
                self.0[what as usize].add(1);
            }
        }

        impl Default for Counts<$name> {
            fn default() -> Self {
                Self($name::ALL.iter().map(|_| Counter::default()).collect(), std::marker::PhantomData)
            }
        }

        impl Named for $name {
            fn all() -> Vec<(&'static str, usize)> {
                $name::ALL.iter().map(|what| (what.name(), *what as usize)).collect()
            }
        }
    };
}

/// One counter for each of a closed list.
#[derive(Debug)]
pub(crate) struct Counts<T>(Box<[Counter]>, std::marker::PhantomData<T>);

trait Named {
    fn all() -> Vec<(&'static str, usize)>;
}

table!(Outcome);
table!(NotStored);
table!(Bypass);
table!(Denied);
table!(OriginFailure);
table!(Broken);
table!(SliceOutcome);
table!(TlsFailure);

/// Upper bounds of the histogram, in microseconds.
const BOUNDS: [u64; 14] =
    [100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000];

/// What one worker counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) outcomes: Counts<Outcome>,
    pub(crate) not_stored: Counts<NotStored>,
    pub(crate) bypasses: Counts<Bypass>,
    pub(crate) denials: Counts<Denied>,
    pub(crate) failures: Counts<OriginFailure>,
    pub(crate) broken: Counts<Broken>,
    pub(crate) slices: Counts<SliceOutcome>,
    pub(crate) tls_failures: Counts<TlsFailure>,
    pub(crate) tls_handshakes: Counter,
    pub(crate) tls_resumed: Counter,
    pub(crate) http2_connections: Counter,
    pub(crate) http2_requests: Counter,
    pub(crate) http3_connections: Counter,
    pub(crate) http3_requests: Counter,
    pub(crate) streams_timed_out: Counter,
    pub(crate) mended: Counter,
    pub(crate) stored: Counter,
    pub(crate) stored_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) origin_bytes: Counter,
    pub(crate) accepted: Counter,
    pub(crate) closed: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) fills: Counter,
    pub(crate) fills_ended: Counter,
    pub(crate) throttled: Counter,
    pub(crate) left_behind: Counter,
    pub(crate) log_dropped: Counter,
    pub(crate) heads: [Counter; BOUNDS.len() + 1],
    pub(crate) head_micros: Counter,
}

impl Counters {
    /// Counts why there is no response: the origin's fault, or not.
    pub(crate) fn no_answer(&self, why: NoAnswer) {
        match why {
            NoAnswer::Failed(failure) => self.failures.one(failure),
            NoAnswer::Denied(denied) => self.denials.one(denied),
        }
    }

    /// Counts the time from request to response head of a request that was not a fast hit.
    pub(crate) fn head_after(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS.len());
        self.heads[bucket].add(1);
        self.head_micros.add(micros);
    }
}

type Simple = (&'static str, &'static str, fn(&Counters) -> &Counter);

const SIMPLE: [Simple; 20] = [
    ("stored_total", "Responses stored.", |c| &c.stored),
    ("stored_bytes_total", "Body bytes stored.", |c| &c.stored_bytes),
    ("client_bytes_total", "Body bytes sent to clients, fast hits with their heads.", |c| &c.sent_bytes),
    ("origin_bytes_total", "Body bytes received from origins.", |c| &c.origin_bytes),
    ("connections_total", "Client connections accepted.", |c| &c.accepted),
    ("connections_closed_total", "Client connections closed.", |c| &c.closed),
    ("connections_timed_out_total", "Client connections closed because of a limit.", |c| &c.timed_out),
    ("tls_handshakes_total", "TLS handshakes with clients that succeeded.", |c| &c.tls_handshakes),
    ("tls_resumed_total", "Those of them that resumed a session.", |c| &c.tls_resumed),
    ("http2_connections_total", "Client connections of HTTP/2.", |c| &c.http2_connections),
    ("http2_requests_total", "Requests by HTTP/2.", |c| &c.http2_requests),
    ("http3_connections_total", "Client connections of HTTP/3.", |c| &c.http3_connections),
    ("http3_requests_total", "Requests by HTTP/3.", |c| &c.http3_requests),
    ("http2_streams_timed_out_total", "Answers by HTTP/2 or HTTP/3 of which a client took nothing.", |c| {
        &c.streams_timed_out
    }),
    ("fills_total", "Fetches that several clients may share, begun.", |c| &c.fills),
    ("fills_ended_total", "Fetches that several clients may share, ended.", |c| &c.fills_ended),
    ("fill_waits_total", "Times a fetch waited for its slowest reader.", |c| &c.throttled),
    ("fill_left_behind_total", "Readers that a fetch went on without.", |c| &c.left_behind),
    ("bodies_mended_total", "Bodies whose rest the origin sent, for the store's broke off.", |c| &c.mended),
    ("log_dropped_total", "Lines of the access log lost because its writer could not keep up.", |c| &c.log_dropped),
];

/// Name, label, help, and a number for each value of the label.
type Table = (&'static str, &'static str, &'static str, Vec<(&'static str, u64)>);

/// All workers together.
pub(crate) struct Total<'a>(pub(crate) &'a [std::sync::Arc<Counters>]);

impl Total<'_> {
    fn sum(&self, pick: impl Fn(&Counters) -> u64) -> u64 {
        self.0.iter().map(|counters| pick(counters)).sum()
    }

    fn table<T: Named>(&self, pick: fn(&Counters) -> &Counts<T>) -> Vec<(&'static str, u64)> {
        T::all().into_iter().map(|(name, n)| (name, self.sum(|c| pick(c).0[n].get()))).collect()
    }

    fn tables(&self) -> [Table; 8] {
        [
            ("requests", "outcome", "Requests by outcome.", self.table(|c| &c.outcomes)),
            ("not_stored", "reason", "Responses not stored.", self.table(|c| &c.not_stored)),
            ("bypasses", "reason", "Requests that passed the store by.", self.table(|c| &c.bypasses)),
            ("denied", "reason", "Requests refused.", self.table(|c| &c.denials)),
            ("origin_failures", "reason", "Failures of origins.", self.table(|c| &c.failures)),
            (
                "bodies_broken",
                "reason",
                "Bodies that ended early, and their connections with them.",
                self.table(|c| &c.broken),
            ),
            ("slices", "outcome", "Slices of large objects that answers wanted.", self.table(|c| &c.slices)),
            ("tls_failures", "reason", "TLS handshakes with clients that failed.", self.table(|c| &c.tls_failures)),
        ]
    }

    /// Share of requests answered from the store.
    fn hit_ratio(&self) -> f64 {
        let of = |outcome: Outcome| self.sum(|c| c.outcomes.0[outcome as usize].get()) as f64;
        let hits = of(Outcome::HitFast)
            + of(Outcome::HitMemory)
            + of(Outcome::HitDevice)
            + of(Outcome::HitStale)
            + of(Outcome::Revalidated)
            + of(Outcome::Collapsed);
        let all = hits + of(Outcome::Miss) + of(Outcome::Bypass);
        if all == 0.0 { 0.0 } else { hits / all }
    }

    /// For `/stats`.
    pub(crate) fn json(&self) -> Value {
        let mut out = Map::new();
        for (name, _, _, rows) in self.tables() {
            out.insert(name.into(), rows.into_iter().map(|(key, n)| (key.to_owned(), json!(n))).collect());
        }
        for (name, _, pick) in SIMPLE {
            out.insert(name.trim_end_matches("_total").into(), json!(self.sum(|c| pick(c).get())));
        }
        out.insert("hit_ratio".into(), json!(self.hit_ratio()));
        let heads: Vec<u64> = (0..=BOUNDS.len()).map(|n| self.sum(|c| c.heads[n].get())).collect();
        out.insert("response_head".into(), json!({"micros": BOUNDS, "counts": heads}));
        Value::Object(out)
    }

    /// For `/metrics`.
    pub(crate) fn prometheus(&self, out: &mut String) {
        for (name, label, help, rows) in self.tables() {
            let _ = writeln!(out, "# HELP picaflor_{name}_total {help}\n# TYPE picaflor_{name}_total counter");
            for (key, n) in rows {
                let _ = writeln!(out, "picaflor_{name}_total{{{label}=\"{key}\"}} {n}");
            }
        }
        for (name, help, pick) in SIMPLE {
            let n = self.sum(|c| pick(c).get());
            let _ = writeln!(out, "# HELP picaflor_{name} {help}\n# TYPE picaflor_{name} counter\npicaflor_{name} {n}");
        }
        let name = "picaflor_response_head_seconds";
        let _ = writeln!(
            out,
            "# HELP {name} Time from request to response head, fast hits excepted.\n# TYPE {name} histogram"
        );
        let mut seen = 0;
        for (n, bound) in BOUNDS.iter().enumerate() {
            seen += self.sum(|c| c.heads[n].get());
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {seen}", *bound as f64 / 1e6);
        }
        seen += self.sum(|c| c.heads[BOUNDS.len()].get());
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {seen}");
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {seen}", self.sum(|c| c.head_micros.get()) as f64 / 1e6);
    }
}

/// What was purged, for `/metrics`.
pub(crate) fn purges(stats: &Value, out: &mut String) {
    let name = "picaflor_purges_total";
    let _ = writeln!(out, "# HELP {name} Purges and invalidations by what they select.\n# TYPE {name} counter");
    for (kind, n) in stats["by_kind"].as_object().into_iter().flatten() {
        let _ = writeln!(out, "{name}{{kind=\"{kind}\"}} {n}");
    }
    for (name, kind, help, key) in [
        ("picaflor_purges_refused_total", "counter", "Purges refused, for too many are noted.", "refused"),
        ("picaflor_purges_noted", "gauge", "Purges that hits are compared with.", "noted"),
        ("picaflor_purges_pinned", "gauge", "Notes of purges that a crash does not undo.", "pinned"),
        ("picaflor_purges_swept_objects_total", "counter", "Objects deleted for a purge that was noted.", "swept"),
        ("picaflor_purges_made_stale_total", "counter", "Objects put again as stale for a soft purge.", "made_stale"),
        ("picaflor_purges_sweeps_total", "counter", "Passes over the store for purges that were noted.", "passes"),
        ("picaflor_purges_noted_max", "gauge", "Most that may be noted, URLs that are gone excepted.", "room"),
    ] {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", stats[key]);
    }
}

/// What there is now: the version, the store, the process, and these numbers with their names and what they are.
pub(crate) fn now(stats: &picaflor::Stats, gauges: &[(&'static str, &'static str, f64)]) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    ::metrics::with_local_recorder(&recorder, || {
        stats.record("proxy");
        let process = metrics_process::Collector::default();
        process.describe();
        process.collect();
        describe_gauge!("picaflor_build_info", "The version of the program.");
        gauge!("picaflor_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        for (name, help, value) in gauges {
            describe_gauge!(*name, *help);
            gauge!(*name).set(*value);
        }
    });
    recorder.handle().render()
}
