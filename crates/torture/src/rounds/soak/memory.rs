//! What a proxy has resident, as the kernel counts it, and whether that stays as it is.

use std::{fmt, time::Duration};

use super::options::Soak;
use crate::rss;

/// What an idle connection may take.
const CONNECTION: u64 = 6 << 10;
/// A process that lived less long says nothing of a trend.
const LEAST: Duration = Duration::from_secs(600);

/// What one process had resident: seconds since its start, and bytes.
pub(super) struct Memory {
    bound: u64,
    /// What the trend may rise by, from the first quarter's end on.
    rise: u64,
    samples: Vec<(f64, u64)>,
    beyond: u64,
}

/// A line through what was resident after the first quarter.
#[derive(Clone, Copy)]
pub(super) struct Trend {
    pub(super) rise: f64,
    pub(super) seconds: f64,
    pub(super) mean: f64,
}

impl Memory {
    /// Of a process whose store has this cap, and so many connections.
    pub(super) fn new(soak: &Soak) -> Self {
        let bound = rss::bound(soak.memory) + soak.clients as u64 * CONNECTION + soak.memory_over;
        Self { bound, rise: soak.memory / 20 + (2 << 20), samples: Vec::new(), beyond: 0 }
    }

    /// # Errors
    /// In words, the first time: it is more than it may be.
    pub(super) fn sample(&mut self, at: Duration, resident: u64) -> Result<(), String> {
        self.samples.push((at.as_secs_f64(), resident));
        self.beyond += u64::from(resident > self.bound);
        if resident > self.bound && self.beyond == 1 {
            return Err(format!("{} resident, of at most {}", mib(resident), mib(self.bound)));
        }
        Ok(())
    }

    pub(super) fn last(&self) -> u64 {
        self.samples.last().map_or(0, |(_, resident)| *resident)
    }

    pub(super) fn most(&self) -> u64 {
        self.samples.iter().map(|(_, resident)| *resident).max().unwrap_or(0)
    }

    /// Of the last three quarters of its life.
    pub(super) fn trend(&self) -> Option<Trend> {
        let end = self.samples.last()?.0;
        let warm: Vec<_> = self.samples.iter().filter(|(at, _)| *at >= end / 4.0).collect();
        let n = warm.len() as f64;
        let mean_at = warm.iter().map(|(at, _)| at).sum::<f64>() / n;
        let mean = warm.iter().map(|(_, resident)| *resident as f64).sum::<f64>() / n;
        let squares: f64 = warm.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
        let products: f64 = warm.iter().map(|(at, resident)| (at - mean_at) * (*resident as f64 - mean)).sum();
        let seconds = end * 0.75;
        (squares > 0.0).then(|| Trend { rise: products / squares * seconds, seconds, mean })
    }

    /// The process has ended.
    ///
    /// # Errors
    /// In words: it rose.
    pub(super) fn judge(&self) -> Result<(), String> {
        let Some(trend) = self.trend() else { return Ok(()) };
        let long_enough = trend.seconds >= LEAST.as_secs_f64() * 0.75;
        if long_enough && trend.rise > self.rise as f64 {
            return Err(format!("memory is not flat: {self}, of at most {}", mib(self.rise)));
        }
        Ok(())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "most {} of {} resident", mib(self.most()), mib(self.bound))?;
        if self.beyond > 0 {
            write!(f, " (beyond it in {} of {} samples)", self.beyond, self.samples.len())?;
        }
        let Some(Trend { rise, seconds, mean }) = self.trend() else { return Ok(()) };
        let mib = 1024.0 * 1024.0;
        write!(f, ", mean {:.1} MiB, trend {:+.2} MiB in the last {seconds:.0} s", mean / mib, rise / mib)
    }
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(resident: impl Fn(u64) -> u64) -> Memory {
        let mut memory = Memory::new(&Soak::default());
        for second in 0..3600 {
            let _ = memory.sample(Duration::from_secs(second), resident(second));
        }
        memory
    }

    #[test]
    fn what_warms_up_and_stays_is_flat_and_what_grows_is_not() {
        assert_eq!(filled(|second| (20 << 20) + (second.min(800) << 15)).judge(), Ok(()));
        assert_eq!(filled(|second| (40 << 20) + second % 7 * (1 << 20)).judge(), Ok(()), "noise is no trend");
        let grows = filled(|second| (20 << 20) + second * (6 << 20) / 2700).judge();
        assert!(grows.as_ref().is_err_and(|why| why.contains("not flat")), "{grows:?}");
    }

    #[test]
    fn a_moment_beyond_the_bound_is_too_much() {
        let soak = Soak { clients: 0, memory_over: 1 << 20, ..Soak::default() };
        let (mut memory, bound) = (Memory::new(&soak), rss::bound(soak.memory) + soak.memory_over);
        assert_eq!(memory.sample(Duration::ZERO, bound), Ok(()));
        assert!(memory.sample(Duration::ZERO, bound + 1).is_err());
    }
}
