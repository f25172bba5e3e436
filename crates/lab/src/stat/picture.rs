//! Statistics as a page with drawings.

use super::Stat;
use crate::{
    Result,
    draw::{Chart, Mark, Page, Scale, Series, short, thousands as count},
    trace::Report,
};

/// The page of one trace; `name` is its title, `files` what it was read from.
///
/// # Errors
/// If a drawing cannot be made.
pub fn page(name: &str, files: &[Report], stat: &Stat) -> Result<String> {
    let mut page = Page::new(name);
    for line in files.iter().flat_map(Report::told) {
        page.text(&line);
    }
    page.table(&["", ""], &stat.rows());
    for chart in charts(stat) {
        page.drawing(&chart.svg()?);
    }
    Ok(page.finish())
}

fn line(name: &str, points: &[(f64, f64)]) -> Series {
    Series { name: name.into(), points: points.to_vec(), mark: Mark::Line, ..Series::default() }
}

fn charts(stat: &Stat) -> Vec<Chart> {
    let curves = &stat.curves;
    let zipf = &stat.zipf;
    let mut popularity = vec![line("requests of an object", &curves.popularity)];
    if zipf.exponent.is_finite() {
        let at = |rank: f64| (rank, 10_f64.powf(zipf.intercept - zipf.exponent * rank.log10()));
        let name = format!("Zipf, exponent {:.2} (R² {:.2})", zipf.exponent, zipf.r2);
        let points = vec![at(1.0), at(zipf.ranks as f64)];
        popularity.push(Series { name, points, mark: Mark::Dashed, ..Series::default() });
    }
    let axis = |text: &str, scale| (text.to_owned(), scale);
    let mut charts = vec![
        Chart {
            title: "Sizes".into(),
            x: axis("bytes", Scale::Log),
            y: axis("share that is no larger", Scale::Linear),
            series: vec![
                line("objects", &curves.sizes),
                line("requests", &curves.request_sizes),
                line("requested bytes", &curves.size_bytes),
            ],
        },
        Chart {
            title: "Popularity".into(),
            x: axis("rank of the object", Scale::Log),
            y: axis("requests", Scale::Log),
            series: popularity,
        },
        Chart {
            title: "Requests over time".into(),
            x: axis("hours since the first", Scale::Linear),
            y: axis("requests a second", Scale::Linear),
            series: vec![line("", &curves.rate)],
        },
        Chart {
            title: "Reuse".into(),
            x: axis("requests since the object's last one", Scale::Log),
            y: axis("share of all requests", Scale::Linear),
            series: vec![line("", &curves.reuse)],
        },
    ];
    if stat.servers + stat.clients > 0 {
        let lines = [line("servers", &curves.servers), line("clients", &curves.clients)];
        charts.push(Chart {
            title: "Servers and clients".into(),
            x: axis("rank", Scale::Log),
            y: axis("requests of it", Scale::Log),
            series: lines.into_iter().filter(|series| !series.points.is_empty()).collect(),
        });
    }
    if !curves.sets.is_empty() {
        charts.push(Chart {
            title: "Locality sets: a page and what its client asks for after it".into(),
            x: axis("bytes of the set", Scale::Log),
            y: axis("share that is no larger", Scale::Linear),
            series: vec![line("", &curves.sets)],
        });
    }
    charts
}

impl Stat {
    /// Names and values, as people read them.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let bytes = |n: f64| format!("{}B", short(n));
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let sizes = |of: &[u64; 7]| of.iter().map(|size| short(*size as f64)).collect::<Vec<_>>().join("  ");
        let known = |n: u64| if n == 0 { "not told".into() } else { count(n) };
        let mut rows: Vec<(&str, String)> = vec![
            ("requests", count(self.requests)),
            ("objects", count(self.objects)),
            ("bytes requested", bytes(self.bytes as f64)),
            ("bytes of all objects", bytes(self.unique_bytes as f64)),
            ("one-hit wonders", format!("{} of the objects", percent(self.one_hit_wonders))),
            ("first requests", format!("{}: no cache hits more than the rest", percent(self.first_requests))),
            ("servers", known(self.servers)),
            ("clients", known(self.clients)),
            ("time", format!("{:.1} h, {} requests a second", self.seconds / 3600.0, short(self.per_second()))),
            ("mean size", format!("{} an object, {} a request", bytes(self.mean_size), bytes(self.mean_request_size))),
            ("sizes at 5 25 50 75 90 99 100%", sizes(&self.sizes)),
            ("the same of requests", sizes(&self.request_sizes)),
            (
                "larger than 1 MiB",
                format!("{:.3}% of requests, {} of bytes", self.large.0 * 100.0, percent(self.large.1)),
            ),
        ];
        if self.zipf.exponent.is_finite() {
            let text =
                format!("{:.3}, R² {:.3}, ranks 1 to {}", self.zipf.exponent, self.zipf.r2, count(self.zipf.ranks));
            rows.push(("Zipf exponent", text));
        }
        if let Some(sets) = &self.locality {
            let [a, b, c, d] = sets.within.map(percent);
            rows.push(("locality sets", format!("{}, {:.1} objects on average", count(sets.sets), sets.mean_objects)));
            rows.push(("of these within 32, 64, 96, 128 KiB", format!("{a}  {b}  {c}  {d}")));
            let again = format!("{} of the first set, over {}", percent(sets.hit_rate), count(sets.again));
            rows.push(("asked for again at the next visit", again));
        }
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect()
    }

    fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-3)
    }
}
