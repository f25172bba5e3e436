//! A stored response on the fast path: fresh, in one piece, and its head written in one go. The client's own
//! conditions, range and directives have here the answer that they have in `respond`.

use std::{fs::File, ops::Range, sync::Arc};

use http::StatusCode;
use picaflor::Object;

use super::seen::{Plain, Wishes};
use crate::{
    head::{Field, Head},
    range::{self, Plan},
    rules::{
        Asked, Reuse,
        validate::{self, Validators},
    },
    wire::{push_field, push_number},
};

/// A response that can go out at once.
pub(super) struct FastHit {
    pub(super) object: Object,
    /// Has the body, too.
    pub(super) file: Option<Arc<File>>,
    age: u64,
    ttl: u64,
    shape: Shape,
    stored: StatusCode,
}

/// What of it is sent.
enum Shape {
    Whole,
    /// 304.
    NotModified,
    /// 206.
    Part(Range<usize>),
    /// 416.
    NoPart,
}

impl FastHit {
    /// `None` where only the slow path has the answer. What the request says of caches counts if it `is_obeyed`.
    pub(super) fn new(
        (object, file): (Object, Option<Arc<File>>),
        head: &Head,
        now: u64,
        plain: &Plain<'_, '_>,
        is_obeyed: bool,
    ) -> Option<Self> {
        if now >= head.fast_until || (file.is_none() && object.body_slice().is_none()) {
            return None;
        }
        let shape = match &plain.wishes {
            None => Shape::Whole,
            Some(wishes) if wishes.accept(head, now, is_obeyed) => wishes.shape(&object, head, plain.head_only)?,
            Some(_) => return None,
        };
        let age = head.policy.age(now);
        let ttl = head.fast_until - now;
        Some(Self { object, file, age, ttl, shape, stored: head.status })
    }

    /// As it is sent.
    pub(super) fn status(&self) -> StatusCode {
        match self.shape {
            Shape::Whole => self.stored,
            Shape::NotModified => StatusCode::NOT_MODIFIED,
            Shape::Part(_) => StatusCode::PARTIAL_CONTENT,
            Shape::NoPart => StatusCode::RANGE_NOT_SATISFIABLE,
        }
    }

    /// What of the stored body is sent, if any is.
    pub(super) fn part(&self) -> Range<usize> {
        match &self.shape {
            // One of such a length is in memory, or there would be no hit.
            Shape::Whole => 0..usize::try_from(self.object.len()).unwrap_or(0),
            Shape::Part(part) => part.clone(),
            Shape::NotModified | Shape::NoPart => 0..0,
        }
    }

    /// Appends the head as it is sent.
    pub(super) fn write_head(&self, plain: &Plain<'_, '_>, out: &mut Vec<u8>) {
        let (start, len) = (out.len(), self.object.len());
        match &self.shape {
            Shape::Whole => {
                out.extend_from_slice(Head::wire(self.object.metadata()));
                push_field(out, b"content-length: ", len);
            }
            Shape::NotModified => {
                out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
                self.push_fields(out, validate::kept_in_304);
            }
            Shape::Part(part) => {
                out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
                self.push_fields(out, |name| name != b"content-range");
                out.extend_from_slice(b"content-range: bytes ");
                push_number(out, part.start as u64);
                out.push(b'-');
                push_number(out, part.end as u64 - 1);
                out.push(b'/');
                push_number(out, len);
                push_field(out, b"\r\ncontent-length: ", part.len() as u64);
            }
            Shape::NoPart => {
                out.extend_from_slice(b"HTTP/1.1 416 Range Not Satisfiable\r\n");
                self.push_fields(out, |name| name != b"content-range");
                push_field(out, b"content-length: 0\r\ncontent-range: bytes */", len);
            }
        }
        if plain.is_old {
            // Stored heads begin with `HTTP/1.1`, too.
            out[start + b"HTTP/1.".len()] = b'0';
        }
        if plain.is_last {
            out.extend_from_slice(b"connection: close\r\n");
        }
        push_field(out, b"age: ", self.age / 1000);
        push_field(out, b"cache-status: picaflor; hit; ttl=", self.ttl / 1000);
        out.extend_from_slice(b"\r\n");
    }

    fn push_fields(&self, out: &mut Vec<u8>, is_kept: impl Fn(&[u8]) -> bool) {
        for field in Head::lines(self.object.metadata()).filter(|field| is_kept(field.name)) {
            out.extend_from_slice(field.line);
        }
    }
}

impl Wishes<'_> {
    /// Whether what is fresh is as fresh as the request wants it.
    fn accept(&self, head: &Head, now: u64, is_obeyed: bool) -> bool {
        if self.cache_control.is_none() && self.pragma.is_none() {
            return true;
        }
        let mut asked = Asked::of_lines(self.cache_control.into_iter(), self.pragma.into_iter());
        if !is_obeyed {
            asked.ignore();
        }
        head.policy.reuse(&asked, now) == Reuse::Fresh
    }

    /// `None` of several parts.
    fn shape(&self, object: &Object, head: &Head, head_only: bool) -> Option<Shape> {
        let is_conditional = self.none_match.is_some() || self.modified_since.is_some();
        let range = self.range.filter(|_| !head_only);
        if head.status != StatusCode::OK || !(is_conditional || range.is_some()) {
            return Some(Shape::Whole);
        }
        let validators = stored_validators(object.metadata());
        if is_conditional && validators.are_known(self.none_match.into_iter(), self.modified_since, head.received) {
            return Some(Shape::NotModified);
        }
        match range.filter(|_| validators.let_range(self.if_range)).map(|range| range::plan(range, object.len())) {
            None | Some(Plan::Whole) => Some(Shape::Whole),
            Some(Plan::One(part)) => {
                Some(Shape::Part(usize::try_from(part.start).ok()?..usize::try_from(part.end).ok()?))
            }
            Some(Plan::Nothing) => Some(Shape::NoPart),
            Some(Plan::Several(_)) => None,
        }
    }
}

fn stored_validators(metadata: &[u8]) -> Validators<'_> {
    let mut found = Validators::default();
    for Field { name, value, .. } in Head::lines(metadata) {
        let place = match name {
            b"etag" => &mut found.etag,
            b"last-modified" => &mut found.modified,
            b"date" => &mut found.date,
            _ => continue,
        };
        place.get_or_insert(value);
    }
    found
}
