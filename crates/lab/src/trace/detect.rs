//! Which format a trace has: that under which most of its beginning makes sense.

use super::{
    Format, Line, binary,
    lines::{Lines, Read},
    log,
    read::Parser,
};

/// Lines that are tried.
const TRIED: usize = 200;

/// The format, or `None` if under each most lines are bad. `last_is_cut` says that the sample ends within a line.
pub(super) fn format(sample: &[u8], last_is_cut: bool) -> Option<Format> {
    let text = sample.trim_ascii_start();
    if text.starts_with(b"{") {
        return Some(Format::Har);
    }
    let lines = head(sample, last_is_cut);
    let mut best = None;
    // Of equals the first wins: the most particular ones are asked first.
    let text_formats = [
        Format::Squid,
        Format::Netscape,
        Format::Combined,
        Format::Common,
        Format::Dec,
        Format::Csv,
        Format::LibcachesimCsv,
    ];
    for format in text_formats {
        let good = good(format, &lines);
        if good * 2 > lines.len() && best.is_none_or(|(most, _)| good > most) {
            best = Some((good, format));
        }
    }
    let records = || binary::likely(sample).then_some(Format::OracleGeneral);
    best.map(|(_, format)| format).or_else(records)
}

/// The first lines of a sample.
pub(super) fn head(sample: &[u8], last_is_cut: bool) -> Vec<Vec<u8>> {
    let whole = if last_is_cut {
        sample.iter().rposition(|b| *b == b'\n').map_or(sample.len(), |at| at + 1)
    } else {
        sample.len()
    };
    let mut lines = Lines::new(&sample[..whole]);
    let mut head = Vec::new();
    while head.len() < TRIED
        && let Ok(Read::Line(line)) = lines.next()
    {
        if !line.trim_ascii().is_empty() {
            head.push(line.to_vec());
        }
    }
    head
}

fn good(format: Format, lines: &[Vec<u8>]) -> usize {
    let site = log::site(lines.iter().map(|line| &line[..]));
    let Some(mut parser) = Parser::new(format, site) else { return 0 };
    let mut good = 0;
    for line in lines {
        match parser.line(line) {
            Line::Request(_) | Line::Skipped(_) => good += 1,
            // A header speaks for its format, a comment for none; both are one line of many.
            Line::Header if matches!(format, Format::Csv | Format::Dec) && !line.starts_with(b"#") => good += 1,
            Line::Header | Line::Bad(_) => {}
        }
    }
    good
}
