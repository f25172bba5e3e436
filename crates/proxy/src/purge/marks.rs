//! The purges that are noted, and whether one of them selects a stored response.
//!
//! A response is looked up by each hash that it has, so the number of purges does not matter, but for patterns, which
//! are tried one by one, and for prefixes, of which each length is tried.

use std::collections::{BTreeMap, HashMap};

use super::{
    record::Record,
    selector::{self, Kind, Selector},
};

/// What became of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    /// No purge selects it.
    Valid,
    /// It is stale since then, in milliseconds since 1970.
    StaleSince(u64),
    /// It is gone.
    Gone,
}

/// The newest purges of one selector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    hard: u64,
    soft: u64,
    /// When the soft one was.
    at: u64,
}

impl Mark {
    fn add(&mut self, record: &Record) {
        if !record.soft {
            self.hard = self.hard.max(record.seq);
        } else if record.seq > self.soft {
            (self.soft, self.at) = (record.seq, record.at);
        }
    }
}

/// What is found for one response.
struct Finding {
    seq: u64,
    /// The first soft purge that selects it.
    stale: Option<u64>,
    gone: bool,
}

impl Finding {
    fn note(&mut self, mark: Option<&Mark>) {
        let Some(mark) = mark else { return };
        self.gone |= mark.hard > self.seq;
        if mark.soft > self.seq {
            self.stale = Some(self.stale.map_or(mark.at, |at| at.min(mark.at)));
        }
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// URLs, hosts, tags, groups.
    by_hash: HashMap<u64, Mark>,
    prefixes: BTreeMap<u32, HashMap<u64, Mark>>,
    patterns: Vec<(String, Mark)>,
    all: Mark,
}

impl Marks {
    /// Of these purges.
    pub(crate) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut marks = Self::default();
        records.for_each(|record| marks.add(record));
        marks
    }

    pub(crate) fn add(&mut self, record: &Record) {
        let Selector { kind, text, hashes } = &record.selector;
        match kind {
            Kind::All => self.all.add(record),
            Kind::Pattern => match self.patterns.iter_mut().find(|(pattern, _)| pattern == text) {
                Some((_, mark)) => mark.add(record),
                None => {
                    let mut mark = Mark::default();
                    mark.add(record);
                    self.patterns.push((text.clone(), mark));
                }
            },
            Kind::Prefix => {
                for (len, hash) in hashes {
                    self.prefixes.entry(*len).or_default().entry(*hash).or_default().add(record);
                }
            }
            Kind::Url | Kind::Host | Kind::Tag | Kind::Group => {
                hashes.iter().for_each(|(_, hash)| self.by_hash.entry(*hash).or_default().add(record));
            }
        }
    }

    /// Nothing of these URLs is selected by this purge or an earlier one any more.
    pub(crate) fn remove_urls(&mut self, record: &Record) {
        for (_, hash) in &record.selector.hashes {
            if let Some(mark) = self.by_hash.get_mut(hash).filter(|mark| mark.hard == record.seq) {
                mark.hard = 0;
                if mark.soft <= record.seq {
                    self.by_hash.remove(hash);
                }
            }
        }
    }

    /// Of a response of this URL whose fetch began when `seq` was the last number, with these tags.
    pub(crate) fn check(&self, url_key: &[u8], seq: u64, tags: impl Iterator<Item = u64>) -> Validity {
        let mut finding = Finding { seq, stale: None, gone: false };
        finding.note(Some(&self.all));
        if !self.by_hash.is_empty() {
            finding.note(self.by_hash.get(&selector::of_url_key(url_key)));
            finding.note(self.by_hash.get(&selector::of_host(selector::origin(url_key))));
            tags.for_each(|tag| finding.note(self.by_hash.get(&tag)));
        }
        for (len, of_len) in &self.prefixes {
            let Some(beginning) = url_key.get(..*len as usize) else { break };
            finding.note(of_len.get(&selector::of_prefix(beginning)));
        }
        for (pattern, mark) in &self.patterns {
            if (mark.hard > seq || mark.soft > seq) && selector::matches(pattern, url_key) {
                finding.note(Some(mark));
            }
        }
        match finding {
            Finding { gone: true, .. } => Validity::Gone,
            Finding { stale: Some(at), .. } => Validity::StaleSince(at),
            _ => Validity::Valid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_selected_by_what_it_is_and_by_no_earlier_purge() {
        let tag = selector::of_tag(b"t");
        let (key, other) = (b"origin://a.org/img/x.png", b"origin://b.org/img/x.png");
        for (kind, text) in [
            (Kind::Url, "http://a.org/img/x.png"),
            (Kind::Prefix, "http://a.org/img/"),
            (Kind::Pattern, "a.org/*.png"),
            (Kind::Host, "a.org"),
            (Kind::Tag, "t"),
            (Kind::All, ""),
        ] {
            for (soft, selected) in [(false, Validity::Gone), (true, Validity::StaleSince(9))] {
                let record = Record { selector: Selector::parse(kind, text, None).unwrap(), seq: 5, at: 9, soft };
                let marks = Marks::of([&record].into_iter());
                let tags = || [3, tag].into_iter();
                assert_eq!(marks.check(key, 4, tags()), selected, "{kind:?}");
                assert_eq!(marks.check(key, 5, tags()), Validity::Valid, "{kind:?}");
                let expected = if kind == Kind::All { selected } else { Validity::Valid };
                assert_eq!(marks.check(other, 4, [3].into_iter()), expected, "{kind:?}");
            }
        }
    }

    #[test]
    fn hard_and_soft_purges_of_one_tag_count_each() {
        let selector = || Selector::parse(Kind::Tag, "t", None).unwrap();
        let record = |seq, at, soft| Record { selector: selector(), seq, at, soft };
        let marks = Marks::of([record(5, 10, false), record(7, 20, true)].iter());
        let check = |seq| marks.check(b"http://a/", seq, [selector::of_tag(b"t")].into_iter());
        assert_eq!((check(4), check(6), check(7)), (Validity::Gone, Validity::StaleSince(20), Validity::Valid));
    }
}
