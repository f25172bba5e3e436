//! Access logs, a line a request: Squid's own, and the family that begins as NCSA's common log.

use jiff::fmt::strtime;

use super::{Format, Kind, Line, Request, url, worth};

/// Milliseconds of a decimal number of seconds.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let seconds: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Later than the year 9999 is no time but a number from another column.
    (0.0..253_402_300_800.0).contains(&seconds).then(|| (seconds * 1e3).round() as u64)
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number of bytes, where `-` is none.
fn size(text: &[u8]) -> Option<u64> {
    if text == b"-" { Some(0) } else { number(text) }
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| matches!(b, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// `time elapsed client result/status bytes method URL user hierarchy/peer type`
pub(super) fn squid(line: &[u8]) -> Line {
    let all: Vec<_> = fields(line).collect();
    let [time, _elapsed, client, result, bytes, method, target, rest @ ..] = &all[..] else {
        return Line::bad(format!("{} columns, where Squid's log has 10", all.len()));
    };
    let Some(time) = seconds(time) else { return Line::bad("the first column is no time in seconds") };
    let Some(status) = result.rsplit(|b| *b == b'/').next().and_then(number).filter(|_| result.contains(&b'/')) else {
        return Line::bad("the fourth column is not RESULT/STATUS");
    };
    let Some(size) = size(bytes) else { return Line::bad("the fifth column is no number of bytes") };
    if let Err(why) = worth(method, status) {
        return Line::Skipped(why);
    }
    let kind = match rest.get(2) {
        Some(mime) if mime.starts_with(b"text/html") => Kind::Page,
        Some(mime) if mime.contains(&b'/') => Kind::Part,
        _ => url::kind(target),
    };
    let server = url::split(target).map_or(0, |(host, _)| url::name_or_unknown(host));
    let (client, key) = (url::name_or_unknown(client), url::name(target));
    Line::Request(Request { time, key, size, client, server, kind, ..Request::default() })
}

/// The common log and what has grown out of it.
pub(super) struct Common {
    pub(super) format: Format,
    /// The site whose log this is, if its paths are relative and referers tell.
    pub(super) site: Option<Box<[u8]>>,
}

/// The parts of a line that all formats of the family share.
struct Parts<'a> {
    client: &'a [u8],
    time: u64,
    request: &'a [u8],
    status: u64,
    size: u64,
    tail: &'a [u8],
}

impl Common {
    pub(super) fn line(&self, line: &[u8]) -> Line {
        let parts = match parts(line) {
            Ok(parts) => parts,
            Err(why) => return Line::bad(why),
        };
        let referer = match self.tail(parts.tail) {
            Ok(referer) => referer,
            Err(why) => return Line::bad(why),
        };
        let mut words = fields(parts.request);
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Line::Skipped("a request line that is none");
        };
        if let Err(why) = worth(method, parts.status) {
            return Line::Skipped(why);
        }
        let host = url::split(target).map(|(host, _)| host);
        let server = host.or(self.site.as_deref()).map_or(0, url::name_or_unknown);
        Line::Request(Request {
            time: parts.time,
            key: url::name(target),
            size: parts.size,
            client: url::name_or_unknown(parts.client),
            server,
            referer: referer.map_or(0, |referer| self.referer(referer, host.is_some())),
            kind: url::kind(target),
            version: 0,
        })
    }

    /// What this format has behind the common part: the referer, if there is one.
    fn tail<'a>(&self, tail: &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
        match self.format {
            Format::Combined => match quoted(tail) {
                Some((referer, rest)) if quoted(rest).is_some() => Ok(Some(referer)),
                _ => Err("no referer and agent in quotes behind the bytes"),
            },
            Format::Netscape => {
                let numbers = fields(tail).take(9).filter(|field| size(field).is_some()).count();
                if numbers == 9 { Ok(None) } else { Err("fewer than nine numbers behind the bytes") }
            }
            _ if tail.trim_ascii().is_empty() => Ok(None),
            _ => Err("more columns than the common log has"),
        }
    }

    /// The referring object, named as its own request would have named it.
    fn referer(&self, referer: &[u8], absolute: bool) -> u64 {
        match (url::split(referer), &self.site) {
            (Some(_), _) if absolute => url::name(referer),
            (Some((host, path)), Some(site)) if host == &**site => url::name(path),
            _ => 0,
        }
    }
}

fn parts(line: &[u8]) -> Result<Parts<'_>, &'static str> {
    let client = fields(line).next().ok_or("an empty line")?;
    let open = line.iter().position(|b| *b == b'[').ok_or("no [date]")?;
    let close = open + line[open..].iter().position(|b| *b == b']').ok_or("no [date]")?;
    let time = date(&line[open + 1..close]).ok_or("the [date] is not as in [31/Dec/1999:23:59:59 +0000]")?;
    let rest = line[close + 1..].trim_ascii_start().strip_prefix(b"\"").ok_or("no request in quotes")?;
    // Quotes within the request are seldom escaped: the one that ends it has a status behind it.
    let mut from = 0;
    loop {
        let end = from + rest[from..].iter().position(|b| *b == b'"').ok_or("no status behind the request")?;
        if let Some((status, bytes, tail)) = answer(&rest[end + 1..]) {
            return Ok(Parts { client, time, request: &rest[..end], status, size: bytes, tail });
        }
        from = end + 1;
    }
}

/// Status, bytes and what follows.
fn answer(text: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut words = text.trim_ascii_start().splitn(3, |b| *b == b' ');
    let status = words.next().filter(|word| word.len() == 3).and_then(number)?;
    let bytes = size(words.next()?)?;
    Some((status, bytes, words.next().unwrap_or_default()))
}

/// The next thing in quotes, and what follows; a backslash takes the quote's meaning away.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.trim_ascii_start().strip_prefix(b"\"")?;
    let mut escaped = false;
    let end = inner.iter().position(|b| {
        let found = *b == b'"' && !escaped;
        escaped = *b == b'\\' && !escaped;
        found
    })?;
    Some((&inner[..end], &inner[end + 1..]))
}

/// `31/Dec/1999:23:59:59 +0000`, in milliseconds since 1970.
fn date(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let moment = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?.to_timestamp().ok()?;
    u64::try_from(moment.as_millisecond()).ok()
}

/// The host that most referers of relative requests name: the site whose log this is.
pub(super) fn site<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Box<[u8]>> {
    let mut counts = std::collections::BTreeMap::<&[u8], usize>::new();
    for line in lines {
        let referer = parts(line).ok().and_then(|parts| quoted(parts.tail));
        if let Some((host, _)) = referer.and_then(|(referer, _)| url::split(referer)) {
            *counts.entry(host).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host.into())
}
