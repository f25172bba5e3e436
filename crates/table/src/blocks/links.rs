//! The methods PL and PFL: lists on the device, whose heads are current in memory and written now and then (§2.2,
//! §2.3).
//!
//! In PL a block joins the list of its size when it gets its first header, and stays. In PFL it joins at its head when
//! it is freed; an allocation takes the head off, by moving the head in memory only. A block that is taken from the
//! middle leaves its header on the list, allocated, with the pointer to what comes next: a walk of the list steps
//! over it.

use picaflor_format::blocks::Header;

use super::{
    lists::{Link, Taken},
    options::{Method, Shape},
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
