//! What a request for a purge asks: of the admin listener, by parameters; of a client that may, by URL and fields.

use std::borrow::Cow;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::{
    selector::{BadSelector, Kind, Selector},
    tags,
};

/// A purge that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) selectors: Vec<Selector>,
    /// Of one URL: the keys that it may be stored under.
    pub(crate) url_keys: Option<[Vec<u8>; 4]>,
    /// What is selected is stale, else it is gone.
    pub(crate) soft: bool,
}

/// What is wrong with one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAsked {
    #[error(
        "say which: /purge?url=http://host/path, or prefix=, pattern=, host=, tag=, group= with host=, or all=1; soft=1 \
         before it leaves what is selected as stale"
    )]
    Nothing,
    #[error("one purge at a time: {0} and {1} are given")]
    Several(&'static str, &'static str),
    #[error("{0}={1}: {2}")]
    Selector(&'static str, String, BadSelector),
    #[error("{0} is no parameter of a purge")]
    Unknown(String),
}

impl Asked {
    /// Of a URL.
    pub(crate) fn url(url: &str, soft: bool) -> Result<Self, BadAsked> {
        let (selector, keys) =
            Selector::url(url).map_err(|why| BadAsked::Selector(Kind::Url.name(), url.to_owned(), why))?;
        Ok(Self { selectors: vec![selector], url_keys: Some(keys), soft })
    }

    /// By a query.
    pub(crate) fn query(query: &str) -> Result<Self, BadAsked> {
        let (mut kind, mut text, mut host, mut soft) = (None, String::new(), None, false);
        let mut rest = query;
        while !rest.is_empty() {
            // A URL that was not encoded as a whole is taken as it is, its own `&` included.
            let is_raw = ["url=http://", "url=https://", "prefix=http://", "prefix=https://"];
            let end = if is_raw.iter().any(|raw| rest.starts_with(raw)) { None } else { rest.find('&') };
            let (one, behind) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            let value = if end.is_none() && value.contains("://") { value.to_owned() } else { decoded(value) };
            rest = behind;
            match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                Some(Kind::Host) => host = Some(value),
                Some(found) => {
                    if let Some(before) = kind.replace(found) {
                        return Err(BadAsked::Several(before.name(), found.name()));
                    }
                    text = value;
                }
                None if name == "soft" => soft = !matches!(&*value, "0" | "false"),
                None => return Err(BadAsked::Unknown(name.to_owned())),
            }
        }
        let (kind, text, host) = match (kind, host) {
            (Some(Kind::Group), host) => (Kind::Group, text, host),
            (Some(kind), Some(_)) => return Err(BadAsked::Several(kind.name(), Kind::Host.name())),
            (Some(kind), None) => (kind, text, None),
            (None, Some(host)) => (Kind::Host, host, None),
            (None, None) => return Err(BadAsked::Nothing),
        };
        match kind {
            Kind::Url => Self::url(&text, soft),
            // Several, as they stand in the fields of responses.
            Kind::Tag => Self::tags(text.split([' ', ',']).filter(|tag| !tag.is_empty()), soft),
            Kind::All if text != "1" => Err(BadAsked::Nothing),
            _ => {
                let selector = Selector::parse(kind, if kind == Kind::All { "" } else { &text }, host.as_deref());
                let selector = selector.map_err(|why| BadAsked::Selector(kind.name(), text, why))?;
                Ok(Self { selectors: vec![selector], url_keys: None, soft })
            }
        }
    }

    /// By URL and fields, of a client: of what has the tags that it names, else of its URL.
    pub(crate) fn client(url: &str, fields: &HeaderMap) -> Result<Self, BadAsked> {
        let soft = |name| fields.get(name).is_some_and(|value| value != "0");
        let soft = soft("soft-purge") || soft("fastly-soft-purge");
        match tags::named(fields) {
            Some(tags) => Self::tags(tags.iter().map(String::as_str), soft),
            None => Self::url(url, soft),
        }
    }

    fn tags<'a>(tags: impl Iterator<Item = &'a str>, soft: bool) -> Result<Self, BadAsked> {
        let selector = |tag: &str| {
            Selector::parse(Kind::Tag, tag, None)
                .map_err(|why| BadAsked::Selector(Kind::Tag.name(), tag.to_owned(), why))
        };
        let selectors: Vec<Selector> = tags.take(tags::MOST).map(selector).collect::<Result<_, _>>()?;
        if selectors.is_empty() { Err(BadAsked::Nothing) } else { Ok(Self { selectors, url_keys: None, soft }) }
    }
}

/// Percent-encoding undone; what does not decode stays as it is.
fn decoded(value: &str) -> String {
    percent_decode_str(value).decode_utf8().map_or_else(|_| value.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(query: &str) -> String {
        Asked::query(query).unwrap().selectors[0].text.clone()
    }

    #[test]
    fn the_url_of_a_query() {
        assert_eq!(url("url=http://a/b?c=d&e=f"), "http://a/b?c=d&e=f");
        assert_eq!(url("url=http%3A%2F%2Fa%2Fb%3Fc%26d"), "http://a/b?c&d");
        assert_eq!(url("soft=1&url=http%3a%2f%2fa%2f"), "http://a/");
        assert_eq!(url("url=http://a/%41"), "http://a/%41", "a path is kept as it is");
        assert_eq!(Asked::query("uri=http://a/"), Err(BadAsked::Unknown("uri".into())));
        assert_eq!(Asked::query(""), Err(BadAsked::Nothing));
    }

    #[test]
    fn everything_else_that_a_query_may_select() {
        let kind = |query: &str| {
            let asked = Asked::query(query).unwrap();
            (asked.selectors[0].kind, asked.selectors[0].text.clone(), asked.selectors.len(), asked.soft)
        };
        assert_eq!(kind("prefix=http://a/b&c"), (Kind::Prefix, "http://a/b&c".into(), 1, false));
        assert_eq!(kind("soft=1&pattern=*.a/*%3Fx"), (Kind::Pattern, "*.a/*?x".into(), 1, true));
        assert_eq!(kind("tag=one,two%20three&soft=0"), (Kind::Tag, "one".into(), 3, false));
        assert_eq!(kind("group=g&host=a"), (Kind::Group, "a g".into(), 1, false));
        assert_eq!(kind("host=a:8080"), (Kind::Host, "a:8080".into(), 1, false));
        assert_eq!(kind("all=1"), (Kind::All, String::new(), 1, false));
        assert_eq!(Asked::query("tag=a&url=http://b/"), Err(BadAsked::Several("tag", "url")));
        assert!(Asked::query("all").is_err() && Asked::query("tag=").is_err());
    }
}
