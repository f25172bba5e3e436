//! Where persistent lists are being followed after a failure: a place on each, and what was read of the device last.

use std::collections::VecDeque;

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::blocks::{HEADER, Header};

use super::options::Shape;

/// Bytes read at once, from a multiple of it on: blocks that got their first headers one after the other lie side by
/// side, and so do their headers on a list of PL.
const WINDOW: u64 = 64 << 10;

/// How far the lists were followed.
pub(super) struct Follow {
    pub(super) cursors: Vec<Cursor>,
    /// Sequence numbers that failures left unknown, and the first of this opening.
    pub(super) voids: Vec<(u64, u64)>,
    pub(super) opening: u64,
    /// What was read last, the newest behind.
    windows: VecDeque<(u64, AlignedBuf)>,
    /// So many of them are kept.
    most: usize,
    /// Device reads made.
    pub(super) reads: usize,
}

/// A place on a list. A list that leads into itself ends where it comes upon `mark` again, which moves on after twice
/// as many headers each time.
#[derive(Clone, Default)]
pub(super) struct Cursor {
    /// Grain of the next header; 0 at the end.
    pub(super) at: u64,
    mark: u64,
    left: u64,
    span: u64,
}

impl Cursor {
    pub(super) fn go_to(&mut self, next: u64) {
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

    /// Forgets what was read, which may change meanwhile, and counts reads anew.
    pub(super) fn refresh(&mut self) {
        self.windows.clear();
        self.reads = 0;
    }

    /// Whether every list was followed to its end.
    pub(super) fn is_done(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.at == 0)
    }

    /// The header at grain `at`, if an intact one stands there.
    pub(super) fn header(&mut self, device: &dyn Device, shape: &Shape, salt: u64, at: u64) -> Option<Header> {
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
