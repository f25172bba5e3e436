//! A stored response on the fast path: fresh, in one piece, and its head written in one go.

use picaflor::Object;

use crate::head::Head;

/// A response that can go out at once.
pub(super) struct FastHit {
    pub(super) object: Object,
    pub(super) status: u16,
    age: u64,
    ttl: u64,
}

impl FastHit {
    pub(super) fn new(object: Object, head: &Head, now: u64) -> Option<Self> {
        if now >= head.fast_until || object.body_slice().is_none() {
            return None;
        }
        let age = head.policy.age(now);
        let ttl = head.fast_until - now;
        Some(Self { object, status: head.status.as_u16(), age, ttl })
    }

    pub(super) fn body(&self) -> &[u8] {
        // It has one, or there would be no hit.
        self.object.body_slice().unwrap_or_default()
    }

    /// Appends the head as it is sent.
    pub(super) fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Head::wire(self.object.metadata()));
        out.extend_from_slice(b"content-length: ");
        push_number(out, self.object.len());
        out.extend_from_slice(b"\r\nage: ");
        push_number(out, self.age / 1000);
        out.extend_from_slice(b"\r\ncache-status: picaflor; hit; ttl=");
        push_number(out, self.ttl / 1000);
        out.extend_from_slice(b"\r\n\r\n");
    }
}

fn push_number(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers() {
        for n in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            super::push_number(&mut out, n);
            assert_eq!(out, n.to_string().as_bytes());
        }
    }
}
