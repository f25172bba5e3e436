//! Following the lists of PL and PFL after a failure.
//!
//! Lists save time, they decide nothing: a block is free because its header says so. Following one after a failure, a
//! header is trusted only if it was durable before the failure, is not dead, and lies before the tail; what a list
//! has lost, or is too new, discovery finds. Heads of PFL are mended: each becomes the first trusted free block.

use std::collections::HashSet;

use picaflor_device::{AlignedBuf, Device};
use picaflor_format::blocks::{HEADER, Header, Home, Status};

use super::{
    links::Links,
    lists::Link,
    options::{Method, Shape},
    space::Space,
};

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
