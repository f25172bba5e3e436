//! What the benches share: how a machine and a process are measured, how rounds become one figure, how a
//! result is written down.

pub mod limit;
pub mod machine;
pub mod report;
pub mod usage;

/// The middle value; the mean of the two middle ones for an even count. Nothing without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(super::median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(super::median(&[4.0, 1.0, 2.0, f64::NAN, 3.0]), Some(2.5));
        assert_eq!(super::median(&[]), None);
    }
}
