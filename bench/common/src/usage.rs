//! What this process has used so far: processor time, device bytes, memory of its own.

use std::{
    fs,
    ops::Sub,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};

/// A reading of the counters; the difference of two readings is what happened between them.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    at: Instant,
    cpu: Duration,
    written: u64,
    read: u64,
}

/// What happened between two readings.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// Wall time in seconds.
    pub seconds: f64,
    /// Processor time in seconds, user and system, of all threads.
    pub cpu: f64,
    /// Bytes this process caused to be written to devices.
    pub written: f64,
    /// Bytes this process caused to be read from devices.
    pub read: f64,
}

impl Usage {
    /// Reads the counters now.
    pub fn now() -> Self {
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
            let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(u64::try_from(micros(usage.user_time()) + micros(usage.system_time())).unwrap_or(0))
        });
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Self { at: Instant::now(), cpu, written: field(&io, "write_bytes:"), read: field(&io, "\nread_bytes:") }
    }

    /// What happened since this reading.
    pub fn until_now(self) -> Used {
        Self::now() - self
    }
}

impl Sub for Usage {
    type Output = Used;

    fn sub(self, earlier: Self) -> Used {
        Used {
            seconds: self.at.duration_since(earlier.at).as_secs_f64(),
            cpu: self.cpu.saturating_sub(earlier.cpu).as_secs_f64(),
            written: self.written.saturating_sub(earlier.written) as f64,
            read: self.read.saturating_sub(earlier.read) as f64,
        }
    }
}

/// Anonymous memory of this process in bytes: what it holds itself, the page cache left out.
pub fn anonymous_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "RssAnon:") * 1024
}

fn field(text: &str, name: &str) -> u64 {
    text.find(name)
        .and_then(|at| text[at + name.len()..].split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_move() {
        let before = Usage::now();
        let mut sum = 0_u64;
        while before.at.elapsed() < Duration::from_millis(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = before.until_now();
        assert!(used.cpu > 0.0 && used.seconds >= 0.03, "{used:?}");
        assert!(anonymous_memory() > 0);
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(field("rchar: 1\nread_bytes: 7\nwrite_bytes: 9\n", "\nread_bytes:"), 7);
        assert_eq!(field("a: 1\n", "b:"), 0);
    }
}
