//! Which format a trace has: that under which most of its beginning makes sense, at least half of it.

use super::{
    Format, Line, binary,
    lines::{Lines, Read},
    log,
    parser::Parser,
};

/// Lines that are tried.
const TRIED: usize = 2000;

/// What the first lines are under some format.
struct Tried {
    format: Format,
    good: usize,
    bad: usize,
    /// Its number, and what is wrong with it.
    first_bad: Option<(usize, String)>,
}

/// The format; or, if under each most lines are bad, why none, with the one that comes nearest. `last_is_cut` says that
/// the sample ends within a line.
pub(super) fn format(sample: &[u8], last_is_cut: bool) -> Result<Format, String> {
    let text = sample.trim_ascii_start();
    if text.starts_with(b"{") {
        return Ok(Format::Har);
    }
    let lines = head(sample, last_is_cut);
    let mut best: Option<Tried> = None;
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
        let tried = tried(format, &lines);
        if tried.good > best.as_ref().map_or(0, |best| best.good) {
            best = Some(tried);
        }
    }
    match best {
        Some(Tried { format, bad, .. }) if bad * 2 <= lines.len() => Ok(format),
        _ if binary::likely(sample) => Ok(Format::OracleGeneral),
        nearest => Err(refusal(nearest, lines.len())),
    }
}

fn refusal(nearest: Option<Tried>, lines: usize) -> String {
    let names: Vec<_> = Format::ALL.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    match nearest {
        Some(Tried { format, bad, first_bad: Some((line, why)), .. }) => format!(
            "is in no format known here ({names}); {format} comes nearest, but {bad} of its first {lines} lines are not in \
             it; line {line}: {why}"
        ),
        _ => format!("is in no format known here ({names}); if it is, and only begins otherwise, name it with --from"),
    }
}

/// The first lines of a sample that are not empty, with their numbers.
pub(super) fn head(sample: &[u8], last_is_cut: bool) -> Vec<(usize, Vec<u8>)> {
    let whole = if last_is_cut {
        sample.iter().rposition(|b| *b == b'\n').map_or(sample.len(), |at| at + 1)
    } else {
        sample.len()
    };
    let mut lines = Lines::new(&sample[..whole]);
    let mut head = Vec::new();
    let mut number = 0;
    while head.len() < TRIED
        && let Ok(Read::Line(line)) = lines.next()
    {
        number += 1;
        if !line.trim_ascii().is_empty() {
            head.push((number, line.to_vec()));
        }
    }
    head
}

fn tried(format: Format, lines: &[(usize, Vec<u8>)]) -> Tried {
    let mut tried = Tried { format, good: 0, bad: 0, first_bad: None };
    let site = log::site(lines.iter().map(|(_, line)| &line[..]));
    let Some(mut parser) = Parser::new(format, site) else { return tried };
    for (number, line) in lines {
        match parser.line(line) {
            Line::Request(_) | Line::Skipped(_) => tried.good += 1,
            // A header speaks for its format, a comment for none; both are one line of many.
            Line::Header if matches!(format, Format::Csv | Format::Dec) && !line.starts_with(b"#") => tried.good += 1,
            Line::Header => {}
            Line::Bad(why) => {
                tried.bad += 1;
                tried.first_bad.get_or_insert((*number, why));
            }
        }
    }
    tried
}
