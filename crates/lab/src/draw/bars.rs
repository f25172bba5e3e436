//! Bars side by side: one row for each thing that is compared, in SVG written by hand, for no axis is needed where
//! every bar has its number.

use super::{COLOURS, INK, escape, short};

/// Horizontal bars, each with its value.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// Over them.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Name and values: one for each of `groups`.
    pub rows: Vec<(String, Vec<f64>)>,
    /// What the values of a row are, for the legend; empty if there is one only.
    pub groups: Vec<String>,
    /// Whether bars are as long as the logarithm of their value over the smallest's tenth.
    pub log: bool,
}

const BAR: usize = 16;
/// Least room for names, and most, which is that of some 45 letters.
const LEFT: (usize, usize) = (170, 340);
/// From the left edge to the end of the longest bar.
const END: usize = 650;

impl Bars {
    /// The drawing, as SVG.
    pub fn svg(&self) -> String {
        let longest = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let left = (longest * 15 / 2 + 12).clamp(LEFT.0, LEFT.1);
        let values = || self.rows.iter().flat_map(|(_, values)| values).copied().filter(|v| v.is_finite() && *v > 0.0);
        let most = values().fold(0.0, f64::max);
        let least = values().fold(f64::INFINITY, f64::min) / 10.0;
        let length = |value: f64| {
            let share = match self.log {
                _ if value.is_nan() || value <= 0.0 || most <= 0.0 => 0.0,
                true => (value / least).ln() / (most / least).ln(),
                false => value / most,
            };
            share * (END - left) as f64
        };
        let legend = if self.groups.len() > 1 { 24 } else { 0 };
        let row_height = |count: usize| count.max(1) * BAR + 10;
        let height = 44 + legend + self.rows.iter().map(|(_, values)| row_height(values.len())).sum::<usize>();
        let colour = |at: usize| {
            let c = COLOURS[at % COLOURS.len()];
            format!("rgb({},{},{})", c.0, c.1, c.2)
        };
        let ink = format!("rgb({},{},{})", INK.0, INK.1, INK.2);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" width=\"760\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"{ink}\">\n<rect width=\"760\" height=\"{height}\" \
             fill=\"white\"/>\n<text x=\"380\" y=\"22\" font-size=\"17\" text-anchor=\"middle\">{}</text>\n",
            escape(&self.title) + if self.log { ", logarithmic" } else { "" }
        );
        let mut at = left;
        for (number, group) in self.groups.iter().enumerate().filter(|_| legend > 0) {
            svg += &format!("<rect x=\"{at}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{}\"/>", colour(number));
            svg += &format!("<text x=\"{}\" y=\"47\">{}</text>\n", at + 17, escape(group));
            at += 40 + group.chars().count() * 8;
        }
        let mut y = 36 + legend;
        for (name, values) in &self.rows {
            let middle = y + (row_height(values.len()) - 10) / 2 + 4;
            svg += &format!("<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\n", left - 8, escape(name));
            for (number, value) in values.iter().enumerate() {
                let (long, top) = (length(*value), y + number * BAR);
                let label = if value.is_finite() { format!("{} {}", short(*value), self.unit) } else { "none".into() };
                svg += &format!(
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{long:.1}\" height=\"{}\" fill=\"{}\"/>",
                    BAR - 3,
                    colour(number)
                );
                svg += &format!(
                    "<text x=\"{:.1}\" y=\"{}\" font-size=\"12\">{}</text>\n",
                    left as f64 + long + 5.0,
                    top + 11,
                    escape(label.trim_end())
                );
            }
            y += row_height(values.len());
        }
        svg + "</svg>\n"
    }
}
