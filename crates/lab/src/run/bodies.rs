//! Bodies that cost little to make, to keep and to check: zeros, with eight bytes of their own in every 512.
//!
//! A simulated device keeps no zeros, so a replay of gigabytes fits into memory; and a slot that is missing, of another
//! object, of an older version or at another place of its object is noticed.

use picaflor::Object;

use crate::{synth::mix, trace::Request};

/// Longest body.
const MOST: usize = 8 << 20;
/// Bytes of which each stretch has its own mark.
const STRETCH: usize = 512;
const MARK: usize = 8;

#[derive(Default)]
pub(super) struct Bodies {
    /// Zeros, but for the marks of the last body that was made.
    zeros: Vec<u8>,
    last: usize,
}

fn len_of(request: &Request) -> usize {
    usize::try_from(request.size).unwrap_or(usize::MAX).clamp(1, MOST)
}

/// What the stretches of this request's body begin with.
fn marks(request: &Request) -> impl Iterator<Item = [u8; MARK]> {
    let object = mix(request.versioned_key());
    // Odd: its first byte is never zero, however short the stretch is.
    (0..).map(move |stretch| (mix(object ^ stretch) | 1).to_le_bytes())
}

impl Bodies {
    pub(super) fn of(&mut self, request: &Request) -> &[u8] {
        for old in self.zeros[..self.last].chunks_mut(STRETCH) {
            let len = old.len().min(MARK);
            old[..len].fill(0);
        }
        self.last = len_of(request);
        self.zeros.resize(self.zeros.len().max(self.last), 0);
        let body = &mut self.zeros[..self.last];
        for (stretch, mark) in body.chunks_mut(STRETCH).zip(marks(request)) {
            let len = stretch.len().min(MARK);
            stretch[..len].copy_from_slice(&mark[..len]);
        }
        body
    }

    /// Whether this is the body of the request.
    pub(super) fn is_of(request: &Request, body: &[u8]) -> bool {
        let right = |(stretch, mark): (&[u8], [u8; MARK])| {
            let (own, rest) = stretch.split_at(stretch.len().min(MARK));
            own == &mark[..own.len()] && rest.iter().fold(0, |or, byte| or | byte) == 0
        };
        body.len() == len_of(request) && body.chunks(STRETCH).zip(marks(request)).all(right)
    }

    /// The same of an object. All of it is read, in however many pieces it lies.
    ///
    /// # Errors
    /// Those of reading the pieces.
    pub(super) fn are_in(request: &Request, object: &Object) -> picaflor::Result<bool> {
        Ok(Self::is_of(request, &object.body()?))
    }

    /// The same for tasks.
    ///
    /// # Errors
    /// Those of reading the pieces.
    pub(super) async fn are_in_async(request: &Request, object: &Object) -> picaflor::Result<bool> {
        if let Some(body) = object.body_in_memory() {
            return Ok(Self::is_of(request, &body));
        }
        let mut all = Vec::new();
        let mut pieces = object.chunks(0..object.len());
        while let Some(piece) = pieces.next_async().await {
            all.extend_from_slice(&piece?);
        }
        Ok(Self::is_of(request, &all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_its_own_and_no_other_s() {
        let mut bodies = Bodies::default();
        let of = |key, size, version| Request { key, size, version, ..Request::default() };
        let all = [of(1, 3000, 0), of(1, 3000, 1), of(2, 3000, 0), of(1, 512, 0), of(1, 515, 0), of(9, 0, 0)];
        for one in &all {
            let body = bodies.of(one).to_vec();
            assert!(all.iter().all(|other| Bodies::is_of(other, &body) == (other == one)), "{one:?}");
            for at in 0..body.len() {
                let mut wrong = body.clone();
                wrong[at] ^= 4;
                assert!(!Bodies::is_of(one, &wrong), "{at}");
            }
        }
        let body = bodies.of(&all[0]).to_vec();
        let moved = [&body[512..1024], &body[..512], &body[1024..]].concat();
        assert!(!Bodies::is_of(&all[0], &moved));
        assert_eq!(bodies.of(&of(7, u64::MAX, 0)).len(), MOST);
    }
}
