//! Time, real or virtual, behind one small type.
//!
//! Invariants: clones tell the same time; `now_nanos` never goes back; a virtual clock moves only when
//! told to, so that expiry, ages and timers are repeatable in tests and simulations.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time of day and the time passed. Cheap to clone; clones share one time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Real { start: Instant },
    Virtual(Arc<VirtualTime>),
}

#[derive(Debug)]
struct VirtualTime {
    start_millis: u64,
    passed_nanos: AtomicU64,
    /// By how much the time of day was set forward, or back.
    set_millis: AtomicI64,
}

impl Clock {
    /// The machine's own time.
    #[must_use]
    pub fn real() -> Self {
        Self(Kind::Real { start: Instant::now() })
    }

    /// A clock that stands at `unix_millis` until [`Clock::advance`] or [`Clock::sleep`] moves it.
    #[must_use]
    pub fn virtual_at(unix_millis: u64) -> Self {
        let time =
            VirtualTime { start_millis: unix_millis, passed_nanos: AtomicU64::new(0), set_millis: AtomicI64::new(0) };
        Self(Kind::Virtual(Arc::new(time)))
    }

    /// Whether time passes only on request.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self.0, Kind::Virtual(_))
    }

    /// Milliseconds since the Unix epoch. On a real clock this follows the machine's time of day and
    /// can jump either way; for durations use [`Clock::now_nanos`].
    #[must_use]
    pub fn now_millis(&self) -> u64 {
        match &self.0 {
            Kind::Real { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Kind::Virtual(time) => {
                let passed = time.passed_nanos.load(Ordering::Acquire) / 1_000_000;
                let now = time.start_millis.saturating_add(passed);
                now.saturating_add_signed(time.set_millis.load(Ordering::Acquire))
            }
        }
    }

    /// Nanoseconds since this clock was made; never goes back.
    #[must_use]
    pub fn now_nanos(&self) -> u64 {
        match &self.0 {
            Kind::Real { start } => nanos(start.elapsed()),
            Kind::Virtual(time) => time.passed_nanos.load(Ordering::Acquire),
        }
    }

    /// Lets `duration` pass: a real clock blocks the thread, a virtual one advances at once.
    pub fn sleep(&self, duration: Duration) {
        match &self.0 {
            Kind::Real { .. } => std::thread::sleep(duration),
            Kind::Virtual(time) => time.advance(duration),
        }
    }

    /// Moves a virtual clock, and all its clones, forward.
    ///
    /// # Panics
    /// On a real clock: only the test or simulation that made a virtual one may move time.
    pub fn advance(&self, duration: Duration) {
        match &self.0 {
            Kind::Real { .. } => panic!("a real clock cannot be advanced"),
            Kind::Virtual(time) => time.advance(duration),
        }
    }

    /// Sets the time of day of a virtual clock, and of all its clones, forward or back, as an administrator or the
    /// network may set a machine's; [`Clock::now_nanos`] does not move.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub fn set_by(&self, millis: i64) {
        match &self.0 {
            Kind::Real { .. } => panic!("a real clock cannot be set"),
            Kind::Virtual(time) => drop(time.set_millis.fetch_add(millis, Ordering::AcqRel)),
        }
    }

    /// Moves a virtual clock, and all its clones, forward until [`Clock::now_nanos`] is at least `nanos`.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub fn advance_to(&self, nanos: u64) {
        match &self.0 {
            Kind::Real { .. } => panic!("a real clock cannot be advanced"),
            Kind::Virtual(time) => time.advance_to(nanos),
        }
    }
}

impl VirtualTime {
    fn advance_to(&self, nanos: u64) {
        self.passed_nanos.fetch_max(nanos, Ordering::AcqRel);
    }

    fn advance(&self, duration: Duration) {
        self.passed_nanos.fetch_add(nanos(duration), Ordering::AcqRel);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

/// Saturates after 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_moves_only_when_told_and_for_all_clones() {
        let clock = Clock::virtual_at(1_000);
        let other = clock.clone();
        assert_eq!((other.now_millis(), other.now_nanos()), (1_000, 0));
        clock.advance(Duration::from_micros(1_500));
        assert_eq!((other.now_millis(), other.now_nanos()), (1_001, 1_500_000));
        other.sleep(Duration::from_micros(500));
        assert_eq!(clock.now_millis(), 1_002);
        clock.advance_to(2_500_000);
        other.advance_to(2_400_000);
        assert_eq!(clock.now_nanos(), 2_500_000);
    }

    #[test]
    fn the_time_of_day_is_set_and_the_time_passed_is_not() {
        let clock = Clock::virtual_at(10_000);
        clock.advance(Duration::from_millis(5));
        clock.set_by(-4_000);
        assert_eq!((clock.now_millis(), clock.now_nanos()), (6_005, 5_000_000));
        clock.set_by(5_000);
        assert_eq!((clock.now_millis(), clock.now_nanos()), (11_005, 5_000_000));
        clock.set_by(-60_000);
        assert_eq!(clock.now_millis(), 0, "not before the epoch");
    }

    #[test]
    fn real_time_passes() {
        let clock = Clock::real();
        let before = clock.now_nanos();
        clock.sleep(Duration::from_millis(2));
        assert!(clock.now_nanos() - before >= 2_000_000);
        assert!(clock.now_millis() > 1_600_000_000_000);
    }

    #[test]
    #[should_panic(expected = "real clock")]
    fn a_real_clock_is_not_advanced() {
        Clock::real().advance(Duration::from_secs(1));
    }
}
