//! Following the lists of PL and PFL after a failure.
//!
//! Lists save time, they decide nothing: a block is free because its header says so. Following one after a failure, a
//! header is trusted only if it was durable before the failure, is not dead, and lies where discovery has not been;
//! what a list has lost, or is too new, discovery finds. Heads are mended: each comes to lead to a trusted block, of
//! PFL a free one. An opening follows all lists in turn, as far as a bounded number of device reads takes it; steps go
//! on from there, and a request that nothing serves goes on with the list of its size first.

use picaflor_device::Device;
use picaflor_format::blocks::{Header, Status};

use super::{
    FreeLists,
    cursors::Follow,
    lists::Link,
    options::{Method, Shape},
    space::Space,
};

impl Follow {
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
        let mut found = 0;
        let lists = only.map_or(0..self.cursors.len(), |list| usize::from(list)..usize::from(list) + 1);
        'all: loop {
            let mut moved = false;
            for list in lists.clone() {
                if self.reads >= limit {
                    break 'all;
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
                break;
            }
        }
        self.refresh();
        found
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
