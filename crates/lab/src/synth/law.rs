//! Laws that web traffic follows: Zipf's for popularity, log-normal bodies with Pareto tails for sizes.

use super::dice::Dice;

/// Zipf's law on 1..=n by inverting its continuous form: no table, and n may be anything.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    exponent: f64,
    /// Of the integral up to n + 1.
    top: f64,
    n: u64,
}

impl Zipf {
    /// The k-th of `n` is asked for in proportion to k^-exponent.
    pub fn new(n: u64, exponent: f64) -> Self {
        // At 1 the integral is a logarithm; a hair beside it, the other form is as good.
        let exponent = if (exponent - 1.0).abs() < 1e-6 { 1.0 + 1e-6 } else { exponent };
        Self { exponent, top: (n as f64 + 1.0).powf(1.0 - exponent) - 1.0, n }
    }

    /// A rank, from 1.
    pub fn rank(&self, dice: &mut Dice) -> u64 {
        let x = (1.0 + dice.unit() * self.top).powf(1.0 / (1.0 - self.exponent));
        (x as u64).clamp(1, self.n)
    }
}

/// Sizes: most from a log-normal distribution, some from the tail of a Pareto distribution.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Median of the log-normal part, in bytes.
    pub median: f64,
    /// Standard deviation of its logarithm.
    pub sigma: f64,
    /// Largest of it.
    pub body_cap: f64,
    /// Share of the Pareto part.
    pub tail: f64,
    /// Exponent of the Pareto part.
    pub alpha: f64,
    /// Smallest of it, in bytes.
    pub from: f64,
    /// Largest of it.
    pub cap: f64,
}

impl Sizes {
    /// One size, in bytes; never less than 64.
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        let size = if dice.chance(self.tail) {
            truncated_pareto(dice.unit(), self.alpha, self.from, self.cap)
        } else {
            (self.median.ln() + self.sigma * dice.normal()).exp().min(self.body_cap)
        };
        (size as u64).max(64)
    }
}

/// The inverse of the truncated Pareto distribution (Iyengar, Jin & Challenger 2003, §3.3; P-I8): `unit` in 0..1,
/// the smallest value `k`, the largest `c`.
pub fn truncated_pareto(unit: f64, alpha: f64, k: f64, c: f64) -> f64 {
    k * (1.0 - unit * (1.0 - (c / k).powf(-alpha))).powf(-1.0 / alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        let zipf = Zipf::new(1000, 0.8);
        let mut dice = Dice::new(1, 1);
        let mut counts = [0_u32; 1001];
        for _ in 0..2_000_000 {
            counts[zipf.rank(&mut dice) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        // The continuous form gives rank k the integral from k to k + 1.
        let integral = |from: f64, to: f64| (to.powf(0.2) - from.powf(0.2)) / (1001_f64.powf(0.2) - 1.0);
        for rank in [1_usize, 10, 100, 1000] {
            let expected = 2e6 * integral(rank as f64, rank as f64 + 1.0);
            let off = (f64::from(counts[rank]) / expected - 1.0).abs();
            assert!(off < 5.0 / expected.sqrt(), "rank {rank}: {} for {expected}", counts[rank]);
        }
    }

    #[test]
    fn truncated_pareto_has_the_published_means() {
        // RESULTS of the PMFLF paper: alpha 1, 512 bytes, 2^10 grains: 3,552 bytes, or 3,847 in whole grains.
        let mut dice = Dice::new(2, 1);
        let (mut raw, mut rounded) = (0.0, 0.0);
        let n = 1_000_000;
        for _ in 0..n {
            let size = truncated_pareto(dice.unit(), 1.0, 512.0, 512.0 * 1024.0).round();
            assert!((512.0..=524_288.0).contains(&size));
            raw += size;
            rounded += (size / 512.0).ceil() * 512.0;
        }
        let (raw, rounded) = (raw / f64::from(n), rounded / f64::from(n));
        assert!((raw / 3552.0 - 1.0).abs() < 0.02, "{raw}");
        assert!((rounded / 3847.0 - 1.0).abs() < 0.02, "{rounded}");
    }
}
