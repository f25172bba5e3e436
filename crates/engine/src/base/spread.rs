//! From a key to the number of its home among several devices.

use picaflor_common::{Hasher, KeyHash};
use picaflor_format::superblock::Spread as OnDevice;

/// What of a key says on which of several devices its object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Spread {
    /// All of it: every device gets the same share, and the objects of a page are read from several devices at once.
    #[default]
    Key,
    /// All up to its third `/`, which is scheme and host of a URL: the objects of a site stay on one device, side by
    /// side where hints ask for it; a site that is asked for often loads one device. A key with fewer is spread whole.
    Origin,
}

impl Spread {
    pub(crate) fn on_device(self) -> OnDevice {
        match self {
            Self::Key => OnDevice::Key,
            Self::Origin => OnDevice::Origin,
        }
    }

    /// As a store of several devices was made; `None` of one that was made before objects had homes.
    pub(crate) fn as_made(made: OnDevice) -> Option<Self> {
        match made {
            OnDevice::None => None,
            OnDevice::Key => Some(Self::Key),
            OnDevice::Origin => Some(Self::Origin),
        }
    }

    /// The number of a key's home among so many devices.
    pub(crate) fn home(self, hasher: Hasher, hash: KeyHash, key: &[u8], devices: usize) -> usize {
        if devices < 2 {
            return 0;
        }
        let spread = match self {
            Self::Key => hash,
            Self::Origin => hasher.key(origin(key)),
        };
        // The high half: within a device the index goes by the low one.
        let high = spread.0 >> 64;
        ((high * devices as u128) >> 64) as usize
    }
}

/// The key up to its third `/`.
fn origin(key: &[u8]) -> &[u8] {
    let third = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(2);
    third.map_or(key, |(at, _)| &key[..=at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_gets_its_share_of_keys_and_an_origin_stays_together() {
        let hasher = Hasher::new(7);
        let home = |spread: Spread, key: &str| spread.home(hasher, hasher.key(key.as_bytes()), key.as_bytes(), 3);
        for spread in [Spread::Key, Spread::Origin] {
            let mut shares = [0; 3];
            (0..3000).for_each(|i| shares[home(spread, &format!("http://host-{i}/page"))] += 1);
            assert!(shares.iter().all(|share| (850..1150).contains(share)), "{spread:?}: {shares:?}");
        }
        let homes = |spread| (0..100).map(|i| home(spread, &format!("http://host/{i}/a/b"))).collect::<Vec<_>>();
        assert!(homes(Spread::Origin).windows(2).all(|two| two[0] == two[1]));
        assert!(homes(Spread::Key).windows(2).any(|two| two[0] != two[1]));
        let short = (0..100).map(|i| home(Spread::Origin, &format!("key/{i}"))).collect::<Vec<_>>();
        assert!(short.windows(2).any(|two| two[0] != two[1]), "keys that are no URLs are spread too");
    }
}
