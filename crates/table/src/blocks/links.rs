//! The methods PL and PFL: lists on the device, whose heads are current in memory and written now and then (§2.2,
//! §2.3).
//!
//! In PL a block joins the list of its size when it gets its first header, and stays. In PFL it joins at its head when
//! it is freed; an allocation takes the head off, by moving the head in memory only. A block that is taken from the
//! middle leaves its header on the list, allocated, with the pointer to what comes next: who follows the list steps
//! over it.
//!
//! Lists save time, they decide nothing: a block is free because its header says so. Following one after a failure, a
//! header is trusted only if it was durable before the failure, is not dead, and lies before the tail; what a list
//! has lost, or is too new, discovery finds. Heads of PFL are mended: each becomes the first trusted free block.

use std::collections::HashSet;

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::blocks::{HEADER, Header, Home, Status};

use super::{
    lists::{Link, Taken},
    options::{Method, Shape},
    space::Space,
};

#[derive(Default)]
pub(super) struct Links {
    /// First block of each list, in grains; 0 for none. Empty in TS.
    pub(super) heads: Vec<u64>,
    changed: bool,
}

impl Links {
    pub(super) fn new(shape: &Shape, heads: &[u64]) -> Self {
        let mut heads = heads.to_vec();
        heads.resize(if shape.method == Method::Ts { 0 } else { shape.lists() }, 0);
        Self { heads, changed: false }
    }

    /// Whether a head has changed since this was asked last.
    pub(super) fn changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What the header of a block that is allocated now says.
    pub(super) fn taken(&mut self, taken: &Taken, shape: &Shape) -> Link {
        match shape.method {
            Method::Pl if taken.link.list == Header::NO_LIST => self.push(taken.at, taken.size, shape),
            Method::Ts | Method::Pl => taken.link,
            Method::Pfl => {
                if let Some(head) = self.heads.get_mut(usize::from(taken.link.list))
                    && *head == taken.at
                {
                    *head = taken.link.next;
                    self.changed = true;
                }
                taken.link
            }
        }
    }

    /// What the header of a block that is freed now says.
    pub(super) fn freed(&mut self, header: &Header, shape: &Shape) -> Link {
        match shape.method {
            Method::Pfl => self.push(header.at, header.size, shape),
            Method::Ts | Method::Pl => Link::of(header),
        }
    }

    fn push(&mut self, at: u64, size: u32, shape: &Shape) -> Link {
        let list = shape.list(size);
        let Some(head) = self.heads.get_mut(usize::from(list)) else { return Link::NONE };
        self.changed = true;
        let next = std::mem::replace(head, at);
        // Taken from the middle, and come back: a list that leads to itself would hide what is behind.
        Link { list, next: if next == at { 0 } else { next } }
    }
}

/// Follows the lists that the home names, `limit` headers in all, and puts the free blocks found on the free lists. How
/// many there were.
pub(super) fn follow(device: &dyn Device, shape: &Shape, home: &Home, space: &mut Space, limit: usize) -> u64 {
    space.links = Links::new(shape, &home.heads);
    let tail = space.lists.tail;
    let mut seen = HashSet::new();
    let mut found = 0;
    let mut buf = AlignedBuf::zeroed(device.read_unit().max(HEADER));
    for list in 0..space.links.heads.len() {
        let mut at = std::mem::take(&mut space.links.heads[list]);
        while (shape.start..tail).contains(&at) && seen.len() < limit && seen.insert(at) {
            if device.read(at * shape.grain, &mut buf).is_err() {
                break;
            }
            let Ok(header) = Header::decode(&buf, home.salt, at) else { break };
            let void = home.voids.iter().any(|&(from, to)| (from..=to).contains(&header.seq));
            let fits = at + u64::from(header.size) <= tail;
            if !void && fits && header.status != Status::Dead {
                let free = header.status == Status::Free;
                if space.links.heads[list] == 0 && (free || shape.method == Method::Pl) {
                    space.links.heads[list] = at;
                }
                // What is left of a split behind it may be free too: then discovery joins the two.
                if free && header.rest == 0 {
                    space.lists.insert(at, header.size, true, Link::of(&header));
                    found += 1;
                }
            }
            at = header.next;
        }
    }
    found
}
