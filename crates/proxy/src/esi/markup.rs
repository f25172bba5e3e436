//! Reading the markup of a page, piece by piece as it comes. Known are `<esi:include src= alt= onerror="continue"/>`,
//! `<esi:comment/>`, `<esi:remove>`, `<esi:try>` with one `<esi:attempt>` and one `<esi:except>`, and `<!--esi -->`.
//!
//! * What is not of these is text, and passed on as it is. An element of `esi:` that is not known, not closed, or not
//!   where it belongs is an error: half a page is worse than none, and its author is to know.
//! * What comes out does not depend on where the pieces end. No more is held back than one tag, of at most
//!   [`LONGEST`] bytes.
//! * Within `<esi:remove>` nothing is looked at but its end.

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem};

/// Longest tag, from `<` to `>`.
const LONGEST: usize = 16 << 10;

/// Most elements in one another.
const DEEPEST: usize = 16;

/// What is found, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Text(Bytes),
    Include(Include),
    AttemptBegins,
    AttemptEnds,
    ExceptBegins,
    ExceptEnds,
}

/// A fragment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Include {
    pub(crate) src: String,
    pub(crate) alt: Option<String>,
    /// The page goes on without it.
    pub(crate) may_fail: bool,
}

/// What is wrong with the markup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadMarkup(pub(crate) &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Comment,
    Remove,
    /// How many of its two parts have been there.
    Try(u8),
    Attempt,
    Except,
    /// `<esi:include>` that is not closed in itself: only its end may come.
    Include,
}

/// A page on its way.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    held: BytesMut,
    open: Vec<Open>,
}

/// What the next thing is that is not text, and where.
enum Found {
    /// Nothing: so many bytes are text.
    Text(usize),
    Tag(usize),
    CommentBegins(usize),
    CommentEnds(usize),
}

const COMMENT: &[u8] = b"<!--esi";

impl Markup {
    /// Takes a piece; what is certain of it becomes events.
    pub(crate) fn add(&mut self, piece: &[u8], out: &mut Vec<Event>) -> Result<(), BadMarkup> {
        self.held.extend_from_slice(piece);
        loop {
            if self.open.last() == Some(&Open::Remove) {
                if !self.skip_removed() {
                    return Ok(());
                }
                continue;
            }
            match self.find() {
                Found::Text(len) => {
                    self.text(len, out)?;
                    return Ok(());
                }
                Found::CommentBegins(at) => {
                    self.text(at, out)?;
                    self.begin(Open::Comment)?;
                    let _ = self.held.split_to(COMMENT.len());
                }
                Found::CommentEnds(at) => {
                    self.text(at, out)?;
                    let _ = self.held.split_to(b"-->".len());
                    self.end(Open::Comment, "`-->` ends a comment in the middle of an element")?;
                }
                Found::Tag(at) => {
                    self.text(at, out)?;
                    let Some(len) = tag_len(&self.held)? else { return Ok(()) };
                    let tag = self.held.split_to(len);
                    self.tag(&tag, out)?;
                }
            }
        }
    }

    /// There is no more.
    pub(crate) fn finish(mut self, out: &mut Vec<Event>) -> Result<(), BadMarkup> {
        if self.held.starts_with(b"<esi:") || self.held.starts_with(b"</esi:") {
            return Err(BadMarkup("a tag does not end"));
        }
        let left = self.held.len();
        self.text(left, out)?;
        match self.open.last() {
            None => Ok(()),
            Some(Open::Comment) => Err(BadMarkup("`<!--esi` does not end")),
            Some(_) => Err(BadMarkup("an element does not end")),
        }
    }

    /// Takes out what is removed; whether its end has come.
    fn skip_removed(&mut self) -> bool {
        let end = b"</esi:remove>";
        if let Some(at) = memmem::find(&self.held, end) {
            let _ = self.held.split_to(at + end.len());
            self.open.pop();
            return true;
        }
        let _ = self.held.split_to(self.held.len().saturating_sub(end.len() - 1));
        false
    }

    fn find(&self) -> Found {
        let held = &self.held[..];
        let in_comment = self.open.contains(&Open::Comment);
        let tag = memchr_iter(b'<', held).find_map(|at| {
            let rest = &held[at..];
            let may_be = |what: &[u8]| rest.len() < what.len() && what.starts_with(rest);
            if rest.starts_with(b"<esi:") || rest.starts_with(b"</esi:") {
                return Some(Found::Tag(at));
            }
            // A word that only begins so is another comment.
            match rest.strip_prefix(COMMENT).map(<[u8]>::first) {
                Some(Some(next)) if !next.is_ascii_alphanumeric() => return Some(Found::CommentBegins(at)),
                Some(None) => return Some(Found::Text(at)),
                _ => {}
            }
            (may_be(b"<esi:") || may_be(b"</esi:") || may_be(COMMENT)).then_some(Found::Text(at))
        });
        let tag = tag.unwrap_or(Found::Text(held.len()));
        if !in_comment {
            return tag;
        }
        let (Found::Text(before) | Found::Tag(before) | Found::CommentBegins(before) | Found::CommentEnds(before)) =
            tag;
        match memmem::find(&held[..before], b"-->") {
            Some(at) => Found::CommentEnds(at),
            // Its beginning may be there.
            None => match tag {
                Found::Text(len) if len == held.len() => {
                    let dashes = held.iter().rev().take(2).take_while(|b| **b == b'-').count();
                    Found::Text(len - dashes)
                }
                other => other,
            },
        }
    }

    fn text(&mut self, len: usize, out: &mut Vec<Event>) -> Result<(), BadMarkup> {
        if len == 0 {
            return Ok(());
        }
        let text = self.held.split_to(len).freeze();
        match self.open.last() {
            Some(Open::Try(_) | Open::Include) if text.iter().all(u8::is_ascii_whitespace) => {}
            Some(Open::Try(_)) => return Err(BadMarkup("text in `esi:try` beside `esi:attempt` and `esi:except`")),
            Some(Open::Include) => return Err(BadMarkup("text in `esi:include`")),
            _ => out.push(Event::Text(text)),
        }
        Ok(())
    }

    fn begin(&mut self, what: Open) -> Result<(), BadMarkup> {
        let in_comment = self.open.contains(&Open::Comment);
        match (self.open.last_mut(), what) {
            (Some(Open::Include), _) => return Err(BadMarkup("an element in `esi:include`")),
            (_, Open::Comment) if in_comment => return Err(BadMarkup("`<!--esi` in another one")),
            (Some(Open::Try(done @ 0)), Open::Attempt) | (Some(Open::Try(done @ 1)), Open::Except) => *done += 1,
            (Some(Open::Try(_)), Open::Comment) => return Err(BadMarkup("`<!--esi` between the parts of `esi:try`")),
            (Some(Open::Try(_)), _) => {
                return Err(BadMarkup("`esi:try` has one `esi:attempt` and, behind it, one `esi:except`"));
            }
            (_, Open::Attempt | Open::Except) => return Err(BadMarkup("a part of `esi:try` without it")),
            _ => {}
        }
        if self.open.len() == DEEPEST {
            return Err(BadMarkup("too many elements in one another"));
        }
        self.open.push(what);
        Ok(())
    }

    fn end(&mut self, what: Open, why: &'static str) -> Result<(), BadMarkup> {
        if self.open.pop() == Some(what) { Ok(()) } else { Err(BadMarkup(why)) }
    }

    fn tag(&mut self, tag: &[u8], out: &mut Vec<Event>) -> Result<(), BadMarkup> {
        let text = std::str::from_utf8(tag).map_err(|_| BadMarkup("a tag is not UTF-8"))?;
        if let Some(name) = text.strip_prefix("</esi:").and_then(|rest| rest.strip_suffix('>')) {
            return self.end_tag(name.trim_ascii_end(), out);
        }
        let inner = text.strip_prefix("<esi:").and_then(|rest| rest.strip_suffix('>'));
        let inner = inner.ok_or(BadMarkup("a tag does not end"))?;
        let (inner, is_empty) = inner.strip_suffix('/').map_or((inner, false), |inner| (inner, true));
        let (name, rest) = inner.split_at(inner.find(|c: char| c.is_ascii_whitespace()).unwrap_or(inner.len()));
        let what = match name {
            "include" => {
                // Its place is judged first.
                self.begin(Open::Include)?;
                if is_empty {
                    self.open.pop();
                }
                out.push(Event::Include(include(rest)?));
                return Ok(());
            }
            "comment" => {
                let known = attributes(rest, &["text"])?;
                self.begin(Open::Include)?;
                self.open.pop();
                return if is_empty && known[0].is_some() {
                    Ok(())
                } else {
                    Err(BadMarkup("`esi:comment` is not <esi:comment text=\"…\"/>"))
                };
            }
            "remove" => Open::Remove,
            "try" => Open::Try(0),
            "attempt" => Open::Attempt,
            "except" => Open::Except,
            _ => return Err(BadMarkup("an element of ESI that is not known here")),
        };
        attributes(rest, &[])?;
        if is_empty && what != Open::Remove {
            return Err(BadMarkup("an empty part of `esi:try`"));
        }
        self.begin(what)?;
        match what {
            Open::Remove if is_empty => drop(self.open.pop()),
            Open::Attempt => out.push(Event::AttemptBegins),
            Open::Except => out.push(Event::ExceptBegins),
            _ => {}
        }
        Ok(())
    }

    fn end_tag(&mut self, name: &str, out: &mut Vec<Event>) -> Result<(), BadMarkup> {
        let why = "an element ends that did not begin, or another one is still open";
        match name {
            "include" => self.end(Open::Include, why),
            "try" => self.end(Open::Try(2), "`esi:try` ends before it has both parts"),
            "attempt" => {
                out.push(Event::AttemptEnds);
                self.end(Open::Attempt, why)
            }
            "except" => {
                out.push(Event::ExceptEnds);
                self.end(Open::Except, why)
            }
            _ => Err(BadMarkup(why)),
        }
    }
}

/// Length of the tag that begins here, quoted `>` not counted; `None` if its end has not come.
fn tag_len(held: &[u8]) -> Result<Option<usize>, BadMarkup> {
    let mut quote = None;
    for (n, &byte) in held.iter().enumerate().take(LONGEST) {
        match (byte, quote) {
            (b'"' | b'\'', None) => quote = Some(byte),
            (b'>', None) => return Ok(Some(n + 1)),
            (_, Some(open)) if open == byte => quote = None,
            _ => {}
        }
    }
    if held.len() < LONGEST { Ok(None) } else { Err(BadMarkup("a tag does not end")) }
}

fn include(text: &str) -> Result<Include, BadMarkup> {
    let mut found = attributes(text, &["src", "alt", "onerror"])?.into_iter();
    let (src, alt, onerror) = (found.next().flatten(), found.next().flatten(), found.next().flatten());
    let src = src.filter(|src| !src.is_empty()).ok_or(BadMarkup("`esi:include` without `src`"))?;
    match onerror.as_deref() {
        None | Some("continue") => Ok(Include { src, alt, may_fail: onerror.is_some() }),
        Some(_) => Err(BadMarkup("`onerror` of `esi:include` is not `continue`")),
    }
}

/// The values of the attributes of these names, each at most once, and there are no others.
fn attributes(text: &str, names: &[&str]) -> Result<Vec<Option<String>>, BadMarkup> {
    let bad = || BadMarkup("an attribute is not NAME=\"VALUE\", not known here, or there twice");
    let mut found = vec![None; names.len()];
    let mut rest = text;
    loop {
        let trimmed = rest.trim_ascii_start();
        if trimmed.is_empty() {
            return Ok(found);
        }
        if trimmed.len() == rest.len() {
            return Err(bad());
        }
        let (name, after) = trimmed.split_once('=').ok_or_else(bad)?;
        let place = names.iter().position(|known| *known == name.trim_ascii_end()).ok_or_else(bad)?;
        let after = after.trim_ascii_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\'')).ok_or_else(bad)?;
        let (value, behind) = after[1..].split_once(quote).ok_or_else(bad)?;
        if found[place].replace(decoded(value)?).is_some() {
            return Err(bad());
        }
        rest = behind;
    }
}

/// With the five entities that XML has of itself.
fn decoded(value: &str) -> Result<String, BadMarkup> {
    let bad = BadMarkup("a value of an attribute has `<`, or `&` that is none of &amp; &lt; &gt; &quot; &apos;");
    if value.contains('<') {
        return Err(bad);
    }
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('&') {
        let (name, behind) = after.split_once(';').ok_or(bad.clone())?;
        out.push_str(before);
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return Err(bad),
        });
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// What a page comes to, texts joined, in pieces that end at `cuts`.
#[cfg(any(test, fuzzing))]
pub(crate) fn read(page: &[u8], cuts: &[usize]) -> Result<Vec<Event>, BadMarkup> {
    let (mut markup, mut events, mut at) = (Markup::default(), Vec::new(), 0);
    for &cut in cuts.iter().chain([&page.len()]) {
        let cut = cut.clamp(at, page.len());
        markup.add(&page[at..cut], &mut events)?;
        assert!(markup.held.len() <= LONGEST, "{} bytes are held", markup.held.len());
        at = cut;
    }
    markup.finish(&mut events)?;
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Text(before)), Event::Text(text)) => *before = [&before[..], &text[..]].concat().into(),
            (_, event) => joined.push(event),
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// In one word each.
    fn told(page: &str) -> String {
        let events = match read(page.as_bytes(), &[]) {
            Ok(events) => events,
            Err(BadMarkup(why)) => return format!("bad: {why}"),
        };
        let told = events.iter().map(|event| match event {
            Event::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Event::Include(Include { src, alt, may_fail }) => {
                format!(
                    "[{src}{}{}]",
                    alt.as_ref().map_or(String::new(), |alt| format!("|{alt}")),
                    if *may_fail { "?" } else { "" }
                )
            }
            Event::AttemptBegins => "(".into(),
            Event::AttemptEnds => ")".into(),
            Event::ExceptBegins => "{".into(),
            Event::ExceptEnds => "}".into(),
        });
        told.collect()
    }

    #[test]
    fn what_is_known_is_found_and_all_else_is_text() {
        let tried =
            "<esi:try> <esi:attempt>a<esi:include src='/x'/></esi:attempt>\n<esi:except>b</esi:except></esi:try>";
        for (page, expected) in [
            ("", ""),
            ("a<b>c</b><!-- d --><esi><esix:y/>", "a<b>c</b><!-- d --><esi><esix:y/>"),
            ("a<esi:include src=\"/x\"/>b", "a[/x]b"),
            ("<esi:include src='/x?a=1&amp;b=2' alt = \"/y>\" onerror=\"continue\" />", "[/x?a=1&b=2|/y>?]"),
            ("<esi:include\n src='/x'>  </esi:include>c", "[/x]c"),
            (
                "a<esi:comment text=\"<not>\"/>b",
                "bad: a value of an attribute has `<`, or `&` that is none of &amp; &lt; &gt; &quot; &apos;",
            ),
            ("a<esi:comment text=\"x\"/>b", "ab"),
            ("a<esi:remove><b><esi:include src='/no'/></b></esi:remove>b", "ab"),
            ("a<esi:remove/>b", "ab"),
            ("a<!--esi <esi:include src='/x'/> b-->c", "a [/x] bc"),
            ("a<!--esinside-->b", "a<!--esinside-->b"),
            ("a<!--esi-->b-->", "ab-->"),
            (tried, "(a[/x]){b}"),
            ("<!--esi <esi:try><esi:attempt>-</esi:attempt><esi:except>b</esi:except></esi:try>-->", " (-){b}"),
        ] {
            assert_eq!(told(page), expected, "{page}");
        }
        assert!(told(&tried.replace("a<", &format!("{tried}<"))).starts_with("((a[/x]){b}["), "in one another");
    }

    #[test]
    fn what_is_not_well_formed_is_an_error() {
        for page in [
            "<esi:include/>",
            "<esi:include src=''/>",
            "<esi:include src=/x/>",
            "<esi:include src='/x' src='/y'/>",
            "<esi:include src='/x' ttl='1'/>",
            "<esi:include src='/x'alt='/y'/>",
            "<esi:include src='/x' onerror='stop'/>",
            "<esi:include src='/x&nbsp;'/>",
            "<esi:include src='/x'>",
            "<esi:include src='/x'>a</esi:include>",
            "<esi:include src='/x'",
            "<esi:vars>",
            "<esi:comment/>",
            "<esi:remove>a",
            "</esi:remove>",
            "<esi:try></esi:try>",
            "<esi:try><esi:attempt>a</esi:attempt></esi:try>",
            "<esi:try><esi:except>a</esi:except><esi:attempt>a</esi:attempt></esi:try>",
            "<esi:try>a<esi:attempt>a</esi:attempt><esi:except>b</esi:except></esi:try>",
            "<esi:try><esi:include src='/x'/></esi:try>",
            "<esi:attempt>a</esi:attempt>",
            "<esi:try><esi:attempt>a</esi:except></esi:try>",
            "<!--esi a",
            "<!--esi <!--esi a--> -->",
            "<!--esi <esi:try><esi:attempt>a-->",
            "<esi:include src='\u{e9}'",
        ] {
            assert!(told(page).starts_with("bad: "), "{page}: {}", told(page));
        }
        assert!(told(&format!("<esi:include src='{}'/>", "x".repeat(LONGEST))).starts_with("bad: "));
        let deep = "<esi:try><esi:attempt>".repeat(DEEPEST);
        assert_eq!(told(&deep), "bad: too many elements in one another");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_pieces_end(
            words in vec(prop_oneof![
                Just("<esi:include src='/x'/>"), Just("<esi:include src=\"/y>\" onerror='continue'>"),
                Just("</esi:include>"), Just("<esi:remove>"), Just("</esi:remove>"), Just("<esi:comment text='-'/>"),
                Just("<esi:try>"), Just("</esi:try>"), Just("<esi:attempt>"), Just("</esi:attempt>"),
                Just("<esi:except>"), Just("</esi:except>"), Just("<!--esi"), Just("-->"), Just("-"), Just("<"),
                Just("<!--"), Just(" "), Just("a"), Just("</"), Just("<esi"), Just("'"),
            ], 0..12),
            cuts in vec(0usize..200, 0..8),
        ) {
            let page = words.concat();
            let mut cuts = cuts;
            cuts.sort_unstable();
            let every: Vec<_> = (0..page.len()).collect();
            let whole = read(page.as_bytes(), &[]);
            for cuts in [cuts, every] {
                // Of two errors the one that comes first may be another.
                match (read(page.as_bytes(), &cuts), &whole) {
                    (Err(_), Err(_)) => {}
                    (found, whole) => prop_assert_eq!(&found, whole),
                }
            }
        }
    }
}
