//! The objects: keys of 60 bytes, sizes as web objects have them, bodies that do not compress.
//!
//! A body is a slice of one random slab, found from the object's number and version alone. Nothing is copied to
//! make it, so that what is measured is the engine, and any other object's bytes would not compare equal.

use rand::{Rng, RngCore, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, LogNormal, Zipf};
use serde::{Deserialize, Serialize};

/// Length of every key.
pub(crate) const KEY_LEN: usize = 60;

/// A key, made on the stack.
pub(crate) type Key = [u8; KEY_LEN];

const LARGEST: usize = 1 << 20;
const SLAB: usize = 32 << 20;
const SIZES: usize = 1 << 16;

/// How large the bodies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Profile {
    /// Lognormal, median 3 KB, mean 8 KB, at most 1 MB.
    Web,
    /// A web site's of 2000: truncated Pareto with an exponent of 1 from 512 bytes to 512 KiB, mean 3.6 KB.
    Site,
    /// All of so many bytes.
    Of(u32),
    /// 100 bytes, to see what an object costs beside its bytes.
    Tiny,
}

/// A reproducible population of objects.
pub(crate) struct Data {
    slab: Vec<u8>,
    sizes: Vec<u32>,
}

impl Data {
    pub(crate) fn new(profile: Profile) -> Self {
        let mut random = SmallRng::seed_from_u64(0x9e37_79b9);
        let mut slab = vec![0; SLAB.max(if let Profile::Of(len) = profile { 2 * len as usize } else { 0 })];
        random.fill_bytes(&mut slab);
        let sizes = match profile {
            Profile::Tiny => vec![100],
            Profile::Of(len) => vec![len],
            Profile::Site => site_sizes(&mut random),
            Profile::Web => web_sizes(&mut random),
        };
        Self { slab, sizes }
    }

    /// Length of an object's body.
    pub(crate) fn len(&self, id: u64, version: u32) -> usize {
        self.sizes[mix(id, version) as usize % self.sizes.len()] as usize
    }

    /// An object's body.
    pub(crate) fn body(&self, id: u64, version: u32) -> &[u8] {
        let len = self.len(id, version);
        let from = (mix(id, version) >> 20) as usize % (self.slab.len() - len.max(LARGEST));
        &self.slab[from..from + len]
    }

    /// Whether these bytes are the object's: the length, and both ends.
    pub(crate) fn is_body(&self, id: u64, version: u32, bytes: &[u8]) -> bool {
        let body = self.body(id, version);
        let end = body.len().min(16);
        bytes.len() == body.len()
            && bytes[..end] == body[..end]
            && bytes[bytes.len() - end..] == body[body.len() - end..]
    }

    /// Bytes of keys and bodies of the first `objects`.
    pub(crate) fn total(&self, objects: u64) -> u64 {
        (0..objects).map(|id| (self.len(id, 0) + KEY_LEN) as u64).sum()
    }

    /// Sizes of the first objects, for a device benchmark that asks for the same.
    pub(crate) fn some_sizes(&self) -> impl Iterator<Item = usize> + Clone {
        (0..4096).map(|id| self.len(id, 0))
    }
}

fn web_sizes(random: &mut SmallRng) -> Vec<u32> {
    // The mean of a lognormal is median * exp(sigma^2 / 2).
    let (median, mean) = (3072.0_f64, 8192.0_f64);
    let sigma = (2.0 * (mean / median).ln()).sqrt();
    let web = LogNormal::new(median.ln(), sigma).expect("a finite sigma");
    (0..SIZES).map(|_| web.sample(random).clamp(1.0, LARGEST as f64) as u32).collect()
}

fn site_sizes(random: &mut SmallRng) -> Vec<u32> {
    let (least, most) = (512.0_f64, 524_288.0);
    let size = |unit: f64| (least / (1.0 - unit * (1.0 - least / most))).round() as u32;
    (0..SIZES).map(|_| size(random.random())).collect()
}

/// Spreads a number over 64 bits.
fn mix(id: u64, version: u32) -> u64 {
    let mut x = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(version) << 40);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The key of an object: a URL of one of 1,000 servers.
pub(crate) fn key(id: u64) -> Key {
    let mut key = *b"http://www.server000.example/images/0000000000000000-pic.jpg";
    let mut server = id % 1000;
    for digit in key[17..20].iter_mut().rev() {
        *digit = b'0' + (server % 10) as u8;
        server /= 10;
    }
    let mut rest = id;
    for digit in key[36..52].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    key
}

/// Each of so many objects in turn, in no order that an engine could like: a prime that divides no population used here
/// makes this a permutation.
pub(crate) fn scattered(number: u64, objects: u64) -> u64 {
    number.wrapping_mul(2_147_483_647) % objects
}

/// Which object is asked for next.
pub(crate) enum Chooser {
    /// Each as likely as any other.
    Uniform(u64),
    /// By Zipf's law; the popular ones are scattered over the whole range.
    Zipf(u64, Zipf<f64>),
}

impl Chooser {
    pub(crate) fn zipf(objects: u64, exponent: f64) -> Self {
        Self::Zipf(objects, Zipf::new(objects as f64, exponent).expect("objects and a positive exponent"))
    }

    pub(crate) fn next(&self, random: &mut SmallRng) -> u64 {
        match self {
            Self::Uniform(objects) => random.random_range(0..*objects),
            Self::Zipf(objects, zipf) => scattered(zipf.sample(random) as u64 - 1, *objects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_web() {
        let data = Data::new(Profile::Web);
        let mut sizes: Vec<_> = (0..100_000).map(|id| data.len(id, 0)).collect();
        sizes.sort_unstable();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((2900..3300).contains(&sizes[sizes.len() / 2]), "median {}", sizes[sizes.len() / 2]);
        assert!((7500..8700).contains(&mean), "mean {mean}");
    }

    #[test]
    fn sizes_of_a_site_have_the_mean_of_the_paper() {
        let data = Data::new(Profile::Site);
        let mean = (0..100_000).map(|id| data.len(id, 0)).sum::<usize>() / 100_000;
        assert!((3300..3800).contains(&mean), "mean {mean}");
    }

    #[test]
    fn another_objects_body_is_noticed() {
        let data = Data::new(Profile::Tiny);
        assert!(data.is_body(1, 0, data.body(1, 0)));
        assert!(!data.is_body(1, 0, data.body(2, 0)) && !data.is_body(1, 0, data.body(1, 1)));
    }

    #[test]
    fn keys_differ() {
        assert_eq!(&key(0x2a)[..], b"http://www.server042.example/images/000000000000002a-pic.jpg");
        assert_ne!(key(1), key(1001));
    }
}
