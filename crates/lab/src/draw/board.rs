//! Bars with columns of numbers behind them: one measure that is seen at a glance, and others that can be read.

use super::{COLOURS, FAINT, INK, escape, short};

/// One row of a [`Board`].
#[derive(Debug, Clone, Default)]
pub struct BoardRow {
    /// What it is.
    pub label: String,
    /// Which colour: rows of one kind have one.
    pub colour: usize,
    /// Length of its bar.
    pub bar: f64,
    /// One for each column.
    pub numbers: Vec<f64>,
}

/// Horizontal bars, and a table behind them.
#[derive(Debug, Clone, Default)]
pub struct Board {
    /// Over it, large.
    pub title: String,
    /// Below that, small: lines of it.
    pub note: Vec<String>,
    /// What the bars are.
    pub bars: String,
    /// What the numbers are.
    pub numbers: String,
    /// Their columns.
    pub columns: Vec<String>,
    /// From the top.
    pub rows: Vec<BoardRow>,
}

const WIDTH: usize = 900;
const MARGIN: usize = 24;
/// Where bars begin, and how long the longest is.
const BARS: (usize, usize) = (276, 240);
/// Where the right edge of the first column is, and how far apart they are.
const COLUMNS: (usize, usize) = (652, 112);
const ROW: usize = 30;

impl Board {
    /// The drawing, as SVG.
    pub fn svg(&self) -> String {
        let top = 52 + 19 * self.note.len() + 46;
        let height = top + ROW * self.rows.len() + 16;
        let rgb = |c: plotters::style::RGBColor| format!("rgb({},{},{})", c.0, c.1, c.2);
        let text = |x: usize, y: usize, how: &str, what: &str| {
            format!("<text x=\"{x}\" y=\"{y}\" {how}>{}</text>\n", escape(what))
        };
        let faint = "fill=\"rgb(110,110,110)\" font-size=\"13\"";
        let right = |how: &str| format!("text-anchor=\"end\" {how}");
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"15\" fill=\"{}\">\n<rect width=\"{WIDTH}\" \
             height=\"{height}\" fill=\"white\"/>\n",
            rgb(INK)
        );
        svg += &text(MARGIN, 36, "font-size=\"22\" font-weight=\"bold\"", &self.title);
        for (line, note) in self.note.iter().enumerate() {
            svg += &text(MARGIN, 60 + 19 * line, faint, note);
        }
        let head = top - 14;
        svg += &text(BARS.0, head, faint, &self.bars);
        let edge = |at: usize| COLUMNS.0 + COLUMNS.1 * at;
        let middle = (edge(0) + edge(self.columns.len().max(1) - 1) - 60) / 2;
        svg += &text(middle, head - 19, &format!("text-anchor=\"middle\" {faint}"), &self.numbers);
        for (at, column) in self.columns.iter().enumerate() {
            svg += &text(edge(at), head, &right(faint), column);
        }
        let most = self.rows.iter().map(|row| row.bar).filter(|bar| bar.is_finite()).fold(0.0, f64::max);
        for (at, row) in self.rows.iter().enumerate() {
            let y = top + ROW * at;
            let long = if most > 0.0 && row.bar.is_finite() { row.bar / most * BARS.1 as f64 } else { 0.0 };
            let line = rgb(FAINT);
            svg +=
                &format!("<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{line}\"/>\n", WIDTH - MARGIN);
            svg += &text(MARGIN, y + 20, "", &row.label);
            svg += &format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{long:.1}\" height=\"18\" rx=\"2\" fill=\"{}\"/>\n",
                BARS.0,
                y + 6,
                rgb(COLOURS[row.colour % COLOURS.len()])
            );
            let behind = BARS.0 + long as usize + 7;
            svg += &text(behind, y + 20, "font-weight=\"bold\"", &short(row.bar));
            for (at, number) in row.numbers.iter().enumerate() {
                svg += &text(edge(at), y + 20, &right(""), &short(*number));
            }
        }
        svg + "</svg>\n"
    }
}
