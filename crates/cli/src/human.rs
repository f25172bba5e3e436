//! Numbers as people read them. What people write is read by the configuration's `Size` and `Span`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{BinaryBytes, HumanCount};
use picaflor_proxy::config::Size;

/// `1.18 MiB`; `256 MiB` where that is exact.
pub(crate) fn size(bytes: u64) -> String {
    let text = BinaryBytes(bytes).to_string();
    let exact = text.parse::<Size>().is_ok_and(|size| size.0 == bytes);
    if exact { text.replace(".00 ", " ") } else { text }
}

/// `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    HumanCount(n).to_string()
}

/// `1 object`, `2 objects`.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// `12.3%` of a whole.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "0.0%".into() } else { format!("{:.1}%", part as f64 / whole as f64 * 100.0) }
}

/// `2026-01-31T12:00:00Z`.
pub(crate) fn time(unix_millis: u64) -> String {
    // The last year that this form has digits for, so that no number of an object can make the formatter fail.
    const LAST: u64 = 253_402_300_799_000;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(unix_millis.min(LAST))).to_string()
}

/// `1h 2m 3s`.
pub(crate) fn span(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Names and values in two columns, indented.
pub(crate) fn table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("  {name:width$}  {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size((1 << 30) + 1), "1.00 GiB");
        assert_eq!(size(5), "5 B");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "object", "objects"), "1 object");
        assert_eq!(share(1, 8), "12.5%");
        assert_eq!(share(1, 0), "0.0%");
        assert_eq!(time(1_000), "1970-01-01T00:00:01Z");
        assert_eq!(time(u64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(span(3661), "1h 1m 1s");
        assert_eq!(table(&[("a".into(), "1".into()), ("bc".into(), "2".into())]), "  a   1\n  bc  2\n");
    }
}
