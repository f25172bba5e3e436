//! Following the lists of PL and PFL after a failure.
//!
//! Lists save time, they decide nothing: a block is free because its header says so. Following one after a failure, a
//! header is trusted only if it was durable before the failure, is not dead, and lies where discovery has not been;
//! what a list has lost, or is too new, discovery finds. Heads are mended: each comes to lead to a trusted block, of
//! PFL a free one. An opening follows all lists in turn, as far as a bounded number of device reads takes it; steps go
//! on from there, and a request that nothing serves goes on with the list of its size first.

use std::collections::VecDeque;

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::blocks::{HEADER, Header, Status};

use super::{
    FreeLists,
    lists::Link,
    options::{Method, Shape},
    space::Space,
};

/// Bytes read at once, from a multiple of it on: blocks that got their first headers one after the other lie side by
/// side, and so do their headers on a list of PL.
const WINDOW: u64 = 64 << 10;

/// How far the lists were followed.
pub(super) struct Follow {
    cursors: Vec<Cursor>,
    /// Sequence numbers that failures left unknown, and the first of this opening.
    voids: Vec<(u64, u64)>,
    opening: u64,
    /// What was read last, the newest behind.
    windows: VecDeque<(u64, AlignedBuf)>,
    /// So many of them are kept.
    most: usize,
    /// Device reads made.
    reads: usize,
}

/// A place on a list. A list that leads into itself ends where it comes upon `mark` again, which moves on after twice as
/// many headers each time.
#[derive(Clone, Default)]
struct Cursor {
    /// Grain of the next header; 0 at the end.
    at: u64,
    mark: u64,
    left: u64,
    span: u64,
}

impl Cursor {
    fn go_to(&mut self, next: u64) {
        self.at = if next == self.mark { 0 } else { next };
        if self.left == 0 {
            self.span = (self.span * 2).max(8);
            (self.mark, self.left) = (next, self.span);
        }
        self.left -= 1;
    }
}

impl Follow {
    /// From the heads on, which an opening found; at most so many bytes are kept of what is read.
    pub(super) fn new(heads: &[u64], voids: &[(u64, u64)], opening: u64, memory: usize) -> Self {
        let cursors = heads.iter().map(|&at| Cursor { at, mark: at, ..Cursor::default() }).collect();
        let most = (memory / WINDOW as usize).clamp(1, 64);
        Self { cursors, voids: voids.to_vec(), opening, windows: VecDeque::new(), most, reads: 0 }
    }

    /// Puts free blocks on the free lists until `limit` device reads are done or every list, or the one that is asked
    /// for, is at its end. How many there were.
    pub(super) fn go_on(
        &mut self,
        device: &dyn Device,
        (shape, salt): (&Shape, u64),
        space: &mut Space,
        limit: usize,
        only: Option<u16>,
    ) -> u64 {
        // They may have changed since.
        self.windows.clear();
        self.reads = 0;
        let mut found = 0;
        let lists = only.map_or(0..self.cursors.len(), |list| usize::from(list)..usize::from(list) + 1);
        loop {
            let mut moved = false;
            for list in lists.clone() {
                if self.reads >= limit {
                    return found;
                }
                let at = self.cursors.get(list).map_or(0, |cursor| cursor.at);
                if at > 0 {
                    moved = true;
                    let header = self.header(device, shape, salt, at).filter(|_| at < space.lists.tail);
                    found += u64::from(header.is_some_and(|header| self.take(&header, list, shape, space)));
                    let next = header.map_or(0, |header| header.next);
                    self.cursors[list].go_to(next);
                }
            }
            if !moved {
                return found;
            }
        }
    }

    /// Whether every list was followed to its end.
    pub(super) fn is_done(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.at == 0)
    }

    /// Notes what a header of a list says; whether it is a free block that was not known.
    fn take(&self, header: &Header, list: usize, shape: &Shape, space: &mut Space) -> bool {
        let (at, size) = (header.at, header.size);
        let void = self.voids.iter().any(|&(from, to)| (from..=to).contains(&header.seq));
        let fits = at + u64::from(size) <= space.lists.tail;
        let free = header.status == Status::Free;
        let trusted = !void && fits && header.status != Status::Dead;
        if space.links.heads[list] == at && !(trusted && (free || shape.method == Method::Pl)) {
            space.links.heads[list] = header.next;
        }
        // What is left of a split behind it may be free too: then discovery joins the two.
        let new = header.seq < self.opening && space.is_unknown(at) && !space.is_free(at);
        if trusted && free && new && header.rest == 0 {
            space.lists.insert(at, size, true, Link::of(header));
            return true;
        }
        false
    }

    fn header(&mut self, device: &dyn Device, shape: &Shape, salt: u64, at: u64) -> Option<Header> {
        let from = at.checked_mul(shape.grain)?;
        if !(shape.start..shape.end).contains(&at) {
            return None;
        }
        let holds =
            |(begin, bytes): &(u64, AlignedBuf)| *begin <= from && from + HEADER as u64 <= *begin + bytes.len() as u64;
        if !self.windows.iter().any(holds) {
            self.reads += 1;
            let unit = device.read_unit() as u64;
            let begin = from / WINDOW * WINDOW;
            let len = WINDOW.min(shape.end * shape.grain - begin).next_multiple_of(unit).max(unit);
            let window = read(device, begin, len).or_else(|| read(device, from / unit * unit, unit))?;
            if self.windows.len() == self.most {
                self.windows.pop_front();
            }
            self.windows.push_back(window);
        }
        let (begin, bytes) = self.windows.iter().find(|window| holds(window))?;
        Header::decode(&bytes[(from - begin) as usize..], salt, at).ok()
    }
}

fn read(device: &dyn Device, from: u64, len: u64) -> Option<(u64, AlignedBuf)> {
    let mut buf = AlignedBuf::zeroed(len as usize);
    (from + len <= device.capacity()).then(|| device.read(from, &mut buf).ok())??;
    Some((from, buf))
}

impl FreeLists {
    /// Goes on following persistent lists after a failure, all or one of them, with so many device reads. Whether free
    /// blocks were found.
    pub(super) fn follow_on(&self, limit: usize, only: Option<u16>) -> bool {
        if self.space.lock().follow.is_none() {
            return false;
        }
        let _all = self.gate.write();
        let mut space = self.space.lock();
        let Some(mut follow) = space.follow.take().filter(|_| space.walk.is_some()) else { return false };
        let found = follow.go_on(self.device.as_ref(), (&self.shape, self.salt), &mut space, limit, only);
        space.follow = (!follow.is_done()).then_some(follow);
        found > 0
    }
}
