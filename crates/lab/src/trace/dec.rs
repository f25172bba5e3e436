//! The proxy traces of Digital Equipment Corporation, 29 August to 22 September 1996, as text.
//!
//! The archive is gone. The fields are taken in the order in which its description had them, as far as it is
//! remembered: event duration, server duration, last modification, seconds, microseconds, client, server, port, path,
//! query, size, status, type, flags, method, protocol. A first line with these names, in any order, overrides it.
//! Clients, servers, paths and queries are numbers. The packed binary form is not read.

use super::{
    Kind, Line, NOT_GET, NOT_OK, Request,
    log::number,
    url::{name, name_or_unknown},
};

const NAMES: [&str; 16] = [
    "event_duration",
    "server_duration",
    "last_mod",
    "time_sec",
    "time_usec",
    "client",
    "server",
    "port",
    "path",
    "query",
    "size",
    "status",
    "type",
    "flags",
    "method",
    "protocol",
];

/// Fields of an entry, by their place in [`NAMES`].
const TIME: usize = 3;
const CLIENT: usize = 5;
const SERVER: usize = 6;
const SIZE: usize = 10;
const STATUS: usize = 11;
const METHOD: usize = 14;

pub(super) struct Dec {
    /// Where in a line each field is.
    order: [usize; NAMES.len()],
}

impl Default for Dec {
    fn default() -> Self {
        Self { order: std::array::from_fn(|at| at) }
    }
}

impl Dec {
    pub(super) fn line(&mut self, line: &[u8]) -> Line {
        let words: Vec<_> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        if words.first().is_none_or(|word| word[0] == b'#') {
            return Line::Header;
        }
        if words.iter().all(|word| NAMES.iter().any(|name| name.as_bytes() == *word)) {
            return self.header(&words);
        }
        if words.len() < NAMES.len() {
            return Line::bad(format!("{} columns, where the DEC traces have {}", words.len(), NAMES.len()));
        }
        let mut values = [0; NAMES.len()];
        for (at, value) in values.iter_mut().enumerate() {
            let word = words[self.order[at]];
            // The method may be spelled out.
            let spelled = at == METHOD && word.eq_ignore_ascii_case(b"GET");
            match number(word).or(spelled.then_some(0)) {
                Some(number) => *value = number,
                None if at == METHOD => return Line::Skipped(NOT_GET),
                None => return Line::bad(format!("{} is no number", NAMES[at])),
            }
        }
        Self::entry(&values)
    }

    fn header(&mut self, words: &[&[u8]]) -> Line {
        for (field, place) in NAMES.iter().zip(&mut self.order) {
            match words.iter().position(|word| *word == field.as_bytes()) {
                Some(at) => *place = at,
                None => return Line::bad(format!("the header does not name {field}")),
            }
        }
        Line::Header
    }

    fn entry(values: &[u64; NAMES.len()]) -> Line {
        // A year is the least that makes a number of seconds a time of the nineties.
        if !(31_536_000..=u64::from(u32::MAX)).contains(&values[TIME]) || values[TIME + 1] >= 1_000_000 {
            return Line::bad("time_sec and time_usec are no time");
        }
        // The traces number methods from 0, GET; an unknown one is as good as none.
        if values[METHOD] != 0 {
            return Line::Skipped(NOT_GET);
        }
        if !matches!(values[STATUS], 200 | 206 | 304) {
            return Line::Skipped(NOT_OK);
        }
        let mut url = Vec::with_capacity(40);
        for value in &values[SERVER..=SERVER + 3] {
            url.extend_from_slice(&value.to_le_bytes());
        }
        Line::Request(Request {
            time: values[TIME] * 1000 + values[TIME + 1] / 1000,
            key: name(&url),
            size: values[SIZE],
            client: name_or_unknown(&values[CLIENT].to_le_bytes()),
            server: name_or_unknown(&values[SERVER].to_le_bytes()),
            kind: Kind::Unknown,
            ..Request::default()
        })
    }
}
