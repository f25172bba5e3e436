//! Drawings: SVG, and the page that holds them. They know numbers, not where these come from.
//!
//! A page is one file without links, scripts or fonts of others, and a function of what it shows: no dates, no random
//! names.

mod axis;
mod bars;
mod board;
mod chart;
mod page;

pub use axis::Scale;
pub use bars::Bars;
pub use board::{Board, BoardRow};
pub use chart::{Chart, Mark, Series};
pub use page::Page;

use plotters::style::RGBColor;

/// `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let threes: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|three| String::from_utf8_lossy(three)).collect();
    threes.join(",")
}

/// Colours that are told apart by those who see fewer of them (Okabe & Ito), the plainest first.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(160, 140, 20),
];

const INK: RGBColor = RGBColor(51, 51, 51);
const FAINT: RGBColor = RGBColor(228, 228, 228);

/// Width and height of a drawing, in pixels before scaling.
const SIZE: (u32, u32) = (760, 430);

/// A number as an axis or a table shows it: three digits that matter, thousands in words of SI.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        s if s >= 1e12 => (value / 1e12, "T"),
        s if s >= 1e9 => (value / 1e9, "G"),
        s if s >= 1e6 => (value / 1e6, "M"),
        s if s >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        s if s >= 100.0 || s == 0.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        s if s >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Text inside of SVG and HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [(0.0, "0"), (1.0, "1"), (1234.0, "1234"), (12_345.0, "12.3k"), (0.25, "0.25"), (5e6, "5M")];
        for (value, text) in all {
            assert_eq!(short(value), text);
        }
        assert_eq!((short(-2.5e9), short(999.6), short(0.0003)), ("-2.5G".into(), "1000".into(), "0.0003".into()));
    }
}
