//! The reader: one pass over a trace of any format.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read as _},
    path::Path,
};

use serde::Serialize;

use super::{
    Format, Line, Request, binary, detect, har,
    lines::{Lines, Read},
    log,
    open::{self, Opened},
    parser::Parser,
    url,
};
use crate::{Error, Result, draw::thousands};

/// Bad lines of which the text is kept.
const KEPT: usize = 5;
/// Lines after which a file may be refused; one that is shorter is judged at its end. So a log is read that begins with
/// the output of another program.
const PATIENCE: u64 = 10_000;
/// Most bytes of a body that a log can mean: 16 TiB, the largest file of ext4. With more the sums of a trace could
/// overflow, and such lines come of programs that print -1 without its sign.
const LARGEST: u64 = 1 << 44;

/// What a reader has seen so far.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The file, or `standard input`.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Lines, records or entries.
    pub lines: u64,
    /// Of those, requests.
    pub requests: u64,
    /// Good ones that ask for nothing a cache would keep, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Bad ones.
    pub bad: u64,
    /// The first few bad ones.
    pub first_bad: Vec<Bad>,
}

impl Report {
    /// What the file was, what was skipped and what was bad, in lines for people.
    pub fn told(&self) -> Vec<String> {
        let Self { name, format, .. } = self;
        let mut told = vec![format!("{name}: {format}, {} lines, {} bad", thousands(self.lines), thousands(self.bad))];
        told.extend(self.skipped.iter().map(|(why, count)| format!("  skipped {}: {why}", thousands(*count))));
        told.extend(self.first_bad.iter().map(|bad| format!("  line {}: {}: {}", bad.line, bad.why, bad.text)));
        told
    }
}

/// A line that made no sense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
    /// Its beginning, made printable.
    pub text: String,
}

enum Input {
    Lines(Lines<Box<dyn BufRead + Send>>, Parser),
    Records(Box<dyn BufRead + Send>),
    Entries(std::vec::IntoIter<Line>),
}

/// Goes through a trace, request by request. After an error it ends.
pub struct Reader {
    input: Input,
    report: Report,
    sample: Vec<u8>,
    ended: bool,
}

impl Reader {
    /// The trace at `path`, or on standard input if that is `-`, in this format or whichever it has.
    ///
    /// # Errors
    /// If it cannot be read, holds nothing, or has a format that is not known here.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self> {
        Self::new(open::path(path)?, format)
    }

    /// As [`Reader::open`], from anything that can be read; `name` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(
        name: impl Into<String>,
        input: impl io::Read + Send + 'static,
        format: Option<Format>,
    ) -> Result<Self> {
        Self::new(open::bytes(name.into(), Box::new(input))?, format)
    }

    fn new(opened: Opened, format: Option<Format>) -> Result<Self> {
        let Opened { name, sample, input } = opened;
        let fail = |why: String| Error::Trace { name: name.clone(), why };
        if sample.is_empty() {
            return Err(fail("is empty".into()));
        }
        let cut = sample.len() >= open::SAMPLE - 3;
        let format = match format {
            Some(format) => format,
            None => detect::format(&sample, cut).map_err(fail)?,
        };
        let site = log::site(detect::head(&sample, cut).iter().map(|(_, line)| &line[..]));
        let input = match Parser::new(format, site) {
            Some(parser) => Input::Lines(Lines::new(input), parser),
            None if format == Format::Har => {
                let lines = har::entries(input).map_err(|error| fail(format!("is not an HTTP archive: {error}")))?;
                Input::Entries(lines.into_iter())
            }
            None => Input::Records(input),
        };
        let report =
            Report { name, format, lines: 0, requests: 0, skipped: BTreeMap::new(), bad: 0, first_bad: Vec::new() };
        Ok(Self { input, report, sample, ended: false })
    }

    /// What was seen so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The next line, record or entry; `None` at the end.
    fn step(&mut self) -> io::Result<Option<Line>> {
        Ok(match &mut self.input {
            Input::Lines(lines, parser) => match lines.next()? {
                Read::End => None,
                Read::TooLong => Some(note(&mut self.report, Line::bad("longer than 64 KiB"), b"")),
                Read::Line(line) => {
                    let outcome = parser.line(line);
                    Some(note(&mut self.report, outcome, line))
                }
            },
            Input::Records(input) => {
                let mut bytes = Vec::with_capacity(binary::RECORD);
                input.take(binary::RECORD as u64).read_to_end(&mut bytes)?;
                if bytes.is_empty() {
                    return Ok(None);
                }
                let outcome = match bytes.first_chunk() {
                    Some(record) => binary::record(record),
                    None => Line::bad("the last record is cut short"),
                };
                Some(note(&mut self.report, outcome, b""))
            }
            Input::Entries(entries) => entries.next().map(|mut entry| {
                // Every archive calls its pages alike; the file tells them apart.
                if let Line::Request(request) = &mut entry {
                    let file = url::name(self.report.name.as_bytes());
                    request.client = (request.client ^ file).max(1);
                }
                note(&mut self.report, entry, b"")
            }),
        })
    }

    /// Why this file should be refused, if most of its lines are bad.
    fn verdict(&self) -> Option<Error> {
        let Report { name, format, lines, bad, first_bad, .. } = &self.report;
        if bad * 2 <= *lines {
            return None;
        }
        let first = first_bad.first().map_or_else(String::new, |bad| format!("; line {}: {}", bad.line, bad.why));
        let likely = match detect::format(&self.sample, self.sample.len() >= open::SAMPLE - 3) {
            Ok(likely) if likely != *format => format!("; it looks like {likely}"),
            _ => String::new(),
        };
        let why = format!("{bad} of {lines} lines are not in the format {format}{first}{likely}");
        Some(Error::Trace { name: name.clone(), why })
    }
}

/// Counts what a line was.
fn note(report: &mut Report, line: Line, text: &[u8]) -> Line {
    let line = match line {
        Line::Request(request) if request.size > LARGEST => {
            Line::bad(format!("{} bytes are more than any object has", request.size))
        }
        line => line,
    };
    report.lines += 1;
    match &line {
        Line::Request(_) => report.requests += 1,
        Line::Skipped(why) => *report.skipped.entry(why).or_default() += 1,
        Line::Bad(why) => {
            report.bad += 1;
            if report.first_bad.len() < KEPT {
                let text: String = String::from_utf8_lossy(text).chars().take(80).collect();
                let text = text.chars().flat_map(char::escape_debug).collect();
                report.first_bad.push(Bad { line: report.lines, why: why.clone(), text });
            }
        }
        // Neither good nor bad, but a line: numbers are those of an editor. A header is not held against the rest.
        Line::Header => {}
    }
    line
}

impl Iterator for Reader {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.step() {
                Ok(Some(Line::Request(request))) => return Some(Ok(request)),
                Ok(Some(Line::Bad(_))) if self.report.lines >= PATIENCE => {
                    if let Some(refusal) = self.verdict() {
                        self.ended = true;
                        return Some(Err(refusal));
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.ended = true;
                    return self.verdict().map(Err);
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(Error::Trace { name: self.report.name.clone(), why: open::broken(&error) }));
                }
            }
        }
        None
    }
}
