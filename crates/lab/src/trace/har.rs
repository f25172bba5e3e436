//! HTTP archives: the JSON that browsers save of a page load.
//!
//! The file is read as a stream, one entry in memory at a time; what stays is a request of each. Bodies, which make
//! archives large, are passed by.

use std::{fmt, io::Read};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{Kind, Line, Request, url, worth};

/// All entries of an archive, in their order.
pub(super) fn entries(input: impl Read) -> serde_json::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut json = serde_json::Deserializer::from_reader(input);
    At { path: &["log", "entries"], lines: &mut lines }.deserialize(&mut json)?;
    json.end()?;
    Ok(lines)
}

/// Goes down a path of names; at its end is the array of entries.
struct At<'a> {
    path: &'a [&'static str],
    lines: &'a mut Vec<Line>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() { deserializer.deserialize_seq(self) } else { deserializer.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an HTTP archive: an object with log.entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((wanted, rest)) = self.path.split_first() else { return Ok(()) };
        let mut found = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == *wanted {
                found = true;
                map.next_value_seed(At { path: rest, lines: self.lines })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let missing = || serde::de::Error::custom(format!("not an HTTP archive: no {wanted:?} in it"));
        if found { Ok(()) } else { Err(missing()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(value) = seq.next_element::<serde_json::Value>()? {
            self.lines.push(match Entry::deserialize(value) {
                Ok(entry) => entry.line(),
                Err(why) => Line::bad(why.to_string()),
            });
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: String,
    #[serde(default)]
    pageref: String,
    request: Asked,
    response: Answer,
}

#[derive(Deserialize)]
struct Asked {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Header>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: i64,
    #[serde(default)]
    content: Content,
    body_size: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Content {
    size: Option<f64>,
    mime_type: Option<String>,
}

impl Entry {
    fn line(&self) -> Line {
        if let Err(why) = worth(self.request.method.as_bytes(), u64::try_from(self.response.status).unwrap_or(0)) {
            return Line::Skipped(why);
        }
        let target = self.request.url.as_bytes();
        let Some((host, _)) = url::split(target) else { return Line::Skipped("a URL without a server") };
        let referer = self.request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("referer"));
        let kind = match self.response.content.mime_type.as_deref() {
            None | Some("") => url::kind(target),
            Some(mime) if mime.starts_with("text/html") => Kind::Page,
            Some(_) => Kind::Part,
        };
        // What went over the wire, where the browser knew it: -1 says that it did not.
        let size = self.response.body_size.filter(|size| *size > 0.0).or(self.response.content.size).unwrap_or(0.0);
        let Ok(time) = self.started_date_time.parse::<jiff::Timestamp>() else {
            return Line::bad("startedDateTime is no time with a zone");
        };
        Line::Request(Request {
            time: u64::try_from(time.as_millisecond()).unwrap_or(0),
            key: url::name(target),
            size: size as u64,
            client: url::name_or_unknown(self.pageref.as_bytes()),
            server: url::name_or_unknown(host),
            referer: referer.map_or(0, |header| url::name_or_unknown(header.value.as_bytes())),
            kind,
            version: 0,
        })
    }
}
