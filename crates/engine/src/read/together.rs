//! The beginnings of frames, read together before the locks of their keys are taken, to tell each of many keys from
//! others.
//!
//! Invariant: what was read at a grain is shown only if its cluster was not granted anew since an entry was seen to
//! lead there: so it is what any entry leads to that leads there now.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_device::AlignedBuf;
use picaflor_format::frame::{GRAIN, HEADER, Header, Kind};

use crate::{base::medium::Begun, cache::catalog::Catalog, index::Location, space::Passed};

/// Of a frame so much is read: its header, and most keys.
const HEAD: usize = 512;

/// Beginnings of frames of one volume.
pub(crate) struct Together {
    /// By their grains: the cluster, and bytes that begin with the frame.
    read: HashMap<u64, (u32, Bytes)>,
    asked: Arc<Passed>,
}

/// What is under way of them.
pub(crate) struct Asked {
    begun: Begun,
    /// Of each its grain, its cluster, and what was read before it.
    wanted: Vec<(u64, u32, usize)>,
    asked: Arc<Passed>,
}

impl Together {
    /// The header of the frame at a grain, if that is an object of this key, in one piece. No damage makes another key
    /// of it, so what of the frame was not read need not be.
    pub(crate) fn own(&self, grain: u64, key: &[u8]) -> Option<Header> {
        let (cluster, bytes) = self.read.get(&grain)?;
        let header = Header::decode(bytes).ok().filter(|header| header.kind == Kind::Whole)?;
        let is_own = bytes.get(HEADER..header.meta_start()) == Some(key);
        (is_own && self.asked.has(*cluster)).then_some(header)
    }

    /// Asks for the beginnings of what these keys' entries lead to on the device, where that is clusters.
    pub(crate) fn ask(catalog: &Catalog, hashes: impl Iterator<Item = KeyHash>) -> Asked {
        let medium = &catalog.medium;
        let asked = catalog.space.walked.begin(catalog.space.count());
        let mut wanted = Vec::new();
        for hash in hashes.filter(|_| catalog.places.is_none()) {
            for entry in catalog.index.candidates(hash.short()) {
                let Location::OnDisk { grain } = entry.location() else { continue };
                let Some(cluster) = medium.cluster_of(grain) else { continue };
                asked.set(cluster, true);
                // Else it was granted anew before that.
                if catalog.index.find(hash.short(), entry.location()).is_some() {
                    wanted.push((grain, cluster, entry.grains() as usize * GRAIN));
                }
            }
        }
        let unit = medium.device.read_unit();
        let at = |grain: u64, cluster| (grain * GRAIN as u64 - medium.map.cluster_start(cluster)) as usize;
        let places = wanted.iter().map(|&(grain, cluster, len)| {
            let (at, end) = (at(grain, cluster) / unit * unit, at(grain, cluster) + len.min(HEAD));
            (cluster, at, end.next_multiple_of(unit).min(medium.cluster_len()) - at)
        });
        let begun = medium.batch(places).begin();
        let wanted = wanted.iter().map(|&(grain, cluster, _)| (grain, cluster, at(grain, cluster) % unit)).collect();
        Asked { begun, wanted, asked }
    }
}

impl Asked {
    pub(crate) fn wait(self) -> Together {
        let read = self.begun.wait().into_iter().zip(self.wanted);
        let frame = |(bytes, (grain, cluster, skip)): (Option<AlignedBuf>, _)| {
            Some((grain, (cluster, bytes?.into_bytes().slice(skip..))))
        };
        Together { read: read.filter_map(frame).collect(), asked: self.asked }
    }
}
