//! Going from header to header, in address order: how blocks are found after a failure, where headers stand in them.
//!
//! Invariants that let it work:
//! - where a block ends, the next begins, with a header; unless the block says that its `rest` is free and no header
//!   newer than that word stands there: then what is left of a split is free, and has no header of its own yet. It
//!   reaches up to the first newer header in it, for the block before that may have been written over;
//! - behind the tail that the home names, a header counts only if it is newer than that home;
//! - a header is a sector, so it is old or new. One that claims to be a header and fails its checksum was damaged:
//!   the walk reports it, looks for the next that stands in no newer block, and takes no free block for free before it
//!   has seen an allocated one.

use std::{io, ops::Range};

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::{
    Corrupt,
    blocks::{HEADER, Header, Status},
};

use super::{lists::Link, options::Shape};

/// Bytes read at once: many headers of small blocks.
const WINDOW: u64 = 64 << 10;
/// Bytes of a block that are searched for newer ones in it.
const SEARCHED: u64 = 1 << 20;
/// Grains behind the tail that are searched when the block there is damaged.
const BEYOND: u64 = 8192;

/// What stands at the place where the walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A block; `true` if it has a header.
    Block(Header, bool),
    /// Grains that are to be left alone.
    Damage {
        at: u64,
        size: u64,
        why: &'static str,
    },
    End,
}

pub(super) struct Walk {
    pub(super) at: u64,
    /// Up to here there are blocks without a gap.
    pub(super) until: u64,
    /// Behind it only headers newer than this count.
    floor: u64,
    /// What the block before says of the place where the walk is: so many grains are free, said then.
    context: Option<(u32, u64)>,
    /// Between a damaged header and the next allocated block.
    doubt: bool,
    /// The free block before, if it may reach further: what is left of a split behind it and free too is one with it.
    pub(super) joins: Option<u64>,
    /// What the device said when it last refused to read. An opening is not to take that for damage, nor for the end.
    pub(super) refused: Option<io::Error>,
    window: AlignedBuf,
    /// Where it was read, if that still counts.
    window_at: Option<u64>,
}

enum Look {
    Header(Header),
    /// Something that is not a header.
    Nothing,
    Broken(&'static str),
}

pub(super) fn why(corrupt: Corrupt) -> &'static str {
    match corrupt {
        Corrupt::Field("size") => "the size is out of range",
        Corrupt::Field("code bytes") => "the code bytes do not match",
        Corrupt::Field(_) => "the allocation status disagrees with the code bytes",
        Corrupt::Magic => "there is no header",
        _ => "the header fails its checksum",
    }
}

impl Walk {
    pub(super) fn new(at: u64, until: u64, floor: u64) -> Self {
        let window = AlignedBuf::empty();
        Self { at, until, floor, context: None, doubt: false, joins: None, refused: None, window, window_at: None }
    }

    /// Moves on to grain `at`, where a block is known to begin.
    pub(super) fn skip_to(&mut self, at: u64) {
        self.at = at;
        self.context = None;
    }

    /// Forgets what was read, which may have changed since.
    pub(super) fn refresh(&mut self) {
        self.window_at = None;
    }

    /// The next block, damage, or the end.
    pub(super) fn next(&mut self, device: &dyn Device, shape: &Shape, salt: u64) -> Step {
        let step = self.here(device, shape, salt);
        match step {
            Step::Block(header, _) => {
                self.at += u64::from(header.size);
                self.context = (header.rest > 0).then_some((header.rest, header.rest_seq));
                self.doubt &= header.status != Status::Allocated;
                if self.doubt {
                    let why = "free, but behind a damaged header";
                    return Step::Damage { at: header.at, size: u64::from(header.size), why };
                }
            }
            Step::Damage { at, size, .. } => {
                self.at = at + size;
                self.context = None;
                self.doubt = true;
            }
            Step::End => {}
        }
        step
    }

    fn here(&mut self, device: &dyn Device, shape: &Shape, salt: u64) -> Step {
        let at = self.at;
        let beyond = at >= self.until;
        if at >= shape.end {
            return Step::End;
        }
        let end = if beyond { shape.end } else { self.until };
        let fits = |header: &Header| at + u64::from(header.size) <= end;
        match (self.look(device, shape, salt, at), self.context) {
            (Look::Header(header), Some((_, said))) if header.seq > said && fits(&header) => Step::Block(header, true),
            (Look::Header(_) | Look::Nothing, Some((rest, said))) if at + u64::from(rest) <= end => {
                let newer = self.newer(device, shape, salt, at + 1..at + u64::from(rest), said);
                Step::Block(implicit(at, newer.map_or(rest, |newer| (newer - at) as u32)), false)
            }
            (Look::Header(header), None) if fits(&header) && (!beyond || header.seq > self.floor) => {
                Step::Block(header, true)
            }
            (Look::Header(_) | Look::Nothing, None) if beyond => Step::End,
            (Look::Broken(why), _) => self.lost(device, shape, salt, why),
            (Look::Header(_), _) => self.lost(device, shape, salt, "it reaches behind the end"),
            (Look::Nothing, _) => self.lost(device, shape, salt, "there is no header"),
        }
    }

    /// How far the damage at the walk's place reaches: up to the next header that no newer one lies in.
    fn lost(&mut self, device: &dyn Device, shape: &Shape, salt: u64, why: &'static str) -> Step {
        let at = self.at;
        let beyond = at >= self.until;
        let end = if beyond { (at + BEYOND).min(shape.end) } else { self.until };
        let mut to = at + 1;
        while to < end {
            if let Look::Header(header) = self.look(device, shape, salt, to)
                && header.status != Status::Dead
                && (!beyond || header.seq > self.floor)
                && to + u64::from(header.size) <= if beyond { shape.end } else { end }
                && !self.is_stale(device, shape, salt, &header)
            {
                return Step::Damage { at, size: to - at, why };
            }
            to += 1;
        }
        if beyond { Step::End } else { Step::Damage { at, size: end - at, why } }
    }

    /// Whether a newer header stands inside this block.
    fn is_stale(&mut self, device: &dyn Device, shape: &Shape, salt: u64, header: &Header) -> bool {
        self.newer(device, shape, salt, header.at + 1..header.at + u64::from(header.size), header.seq).is_some()
    }

    /// The first of these grains in which a header newer than `seq` stands.
    fn newer(&mut self, device: &dyn Device, shape: &Shape, salt: u64, grains: Range<u64>, seq: u64) -> Option<u64> {
        let end = grains.end.min(grains.start + SEARCHED / shape.grain);
        (grains.start..end).find(|&at| matches!(self.look(device, shape, salt, at), Look::Header(new) if new.seq > seq))
    }

    fn look(&mut self, device: &dyn Device, shape: &Shape, salt: u64, at: u64) -> Look {
        let from = at * shape.grain;
        let held = |begin: u64| from >= begin && from + HEADER as u64 <= begin + self.window.len() as u64;
        let begin = match self.window_at.filter(|&begin| held(begin)) {
            Some(begin) => begin,
            None => {
                if let Err(error) = self.read_window(device, from, shape.end * shape.grain) {
                    self.refused = Some(error);
                    return Look::Broken("the device cannot read it");
                }
                from
            }
        };
        let bytes = &self.window[(from - begin) as usize..][..HEADER];
        match Header::decode(bytes, salt, at) {
            Ok(header) => Look::Header(header),
            Err(corrupt) if Header::claims(bytes, salt, at) && !foreign(corrupt) => Look::Broken(why(corrupt)),
            Err(_) => Look::Nothing,
        }
    }

    /// Reads what begins at byte `from`: many headers, or one if the device cannot read so much. The memory of the last
    /// window is that of the next.
    fn read_window(&mut self, device: &dyn Device, from: u64, limit: u64) -> io::Result<()> {
        let unit = device.block_size() as u64;
        let len = (WINDOW.min(limit - from) / unit * unit).max(unit) as usize;
        self.window_at = None;
        if self.window.len() != len {
            self.window = AlignedBuf::zeroed(len);
        }
        if device.read(from, &mut self.window).is_err() {
            self.window.truncate(unit as usize);
            device.read(from, &mut self.window)?;
        }
        self.window_at = Some(from);
        Ok(())
    }
}

/// An intact header of another allocator, or of another place: left there by an earlier use of the device.
fn foreign(corrupt: Corrupt) -> bool {
    corrupt == Corrupt::Field("code bytes")
}

/// What is left of a split, before it has a header.
fn implicit(at: u64, size: u32) -> Header {
    Link::NONE.header(Status::Free, at, size, 0)
}
