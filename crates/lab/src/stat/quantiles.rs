//! How values are spread.

/// Quantiles that are told, of everything that has some.
pub const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

/// Values at [`QUANTILES`] of what is sorted by value, each with a weight.
pub(super) fn quantiles(sorted: &[(u64, u64)], weight: fn(&(u64, u64)) -> u64) -> [u64; 7] {
    let all: u64 = sorted.iter().map(weight).sum();
    QUANTILES.map(|quantile| {
        let wanted = (all as f64 * quantile).ceil() as u64;
        let mut sum = 0;
        let found = sorted.iter().find(|one| {
            sum += weight(one);
            sum >= wanted
        });
        found.map_or(0, |one| one.0)
    })
}

/// Cumulative shares over values that are sorted, thinned to steps of a twelfth of a power of two.
pub(super) fn distribution(sorted: impl Iterator<Item = (u64, u64)> + Clone) -> Vec<(f64, f64)> {
    let all = sum(sorted.clone().map(|(_, weight)| weight)).max(1) as f64;
    let (mut points, mut sum) = (Vec::<(f64, f64)>::new(), 0_u64);
    let mut step = f64::NEG_INFINITY;
    for (value, weight) in sorted {
        sum = sum.saturating_add(weight);
        let point = (value.max(1) as f64, sum as f64 / all);
        let here = (point.0.log2() * 12.0).floor();
        match points.last_mut() {
            Some(last) if here == step => *last = point,
            _ => points.push(point),
        }
        step = here;
    }
    points
}

/// A sum that stops at the largest number, where a trace of absurd sizes would begin again at 0.
pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}
