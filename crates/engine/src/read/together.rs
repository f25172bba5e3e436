//! The beginnings of frames, by which a key's own is told from others: of one frame, or of many together, before the
//! locks of their keys are taken.
//!
//! Invariant: what was read at a grain is shown only if its cluster was not granted anew since an entry was seen to
//! lead there: so it is what any entry leads to that leads there now.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_device::AlignedBuf;
use picaflor_format::frame::{GRAIN, HEADER, Header, Kind};

use crate::{base::medium::Begun, cache::catalog::Catalog, index::Location, space::Space};

/// Of a frame so much is read: its header, and most keys.
pub(crate) const HEAD: usize = 512;

/// The header of the frame that these bytes begin with, if that is an object of this key, in one piece. No damage makes
/// another key of it, so what of the frame was not read need not be.
pub(crate) fn own_header(bytes: &[u8], key: &[u8]) -> Option<Header> {
    let header = Header::decode(bytes).ok().filter(|header| header.kind == Kind::Whole)?;
    (bytes.get(HEADER..header.meta_start()) == Some(key)).then_some(header)
}

/// Beginnings of frames of one volume.
pub(crate) struct Together {
    /// By their grains: the cluster, its grant, and bytes that begin with the frame.
    read: HashMap<u64, (u32, u32, Bytes)>,
    space: Arc<Space>,
}

/// What is under way of them.
pub(crate) struct Asked {
    begun: Begun,
    /// Of each its grain, its cluster, the grant of that, and what was read before it.
    wanted: Vec<(u64, u32, u32, usize)>,
    space: Arc<Space>,
}

impl Together {
    /// The header of the frame at a grain, if that is an object of this key, in one piece.
    pub(crate) fn own(&self, grain: u64, key: &[u8]) -> Option<Header> {
        let (cluster, granted, bytes) = self.read.get(&grain)?;
        own_header(bytes, key).filter(|_| self.space.grants.last(*cluster) == *granted)
    }

    /// Asks for the beginnings of what these keys' entries lead to on the device, where that is clusters.
    pub(crate) fn ask(catalog: &Catalog, hashes: impl Iterator<Item = KeyHash>) -> Asked {
        let (medium, space) = (&catalog.medium, Arc::clone(&catalog.space));
        let mut wanted = Vec::new();
        for hash in hashes.filter(|_| catalog.places.is_none()) {
            for entry in catalog.index.candidates(hash.short()) {
                let Location::OnDisk { grain } = entry.location() else { continue };
                let Some(cluster) = medium.cluster_of(grain) else { continue };
                let granted = space.grants.last(cluster);
                // Else it was granted anew before that.
                if catalog.index.find(hash.short(), entry.location()).is_some() {
                    wanted.push((grain, cluster, granted, entry.grains() as usize * GRAIN));
                }
            }
        }
        let unit = medium.device.read_unit();
        let at = |grain: u64, cluster| (grain * GRAIN as u64 - medium.map.cluster_start(cluster)) as usize;
        let places = wanted.iter().map(|&(grain, cluster, _, len)| {
            let (at, end) = (at(grain, cluster) / unit * unit, at(grain, cluster) + len.min(HEAD));
            (cluster, at, end.next_multiple_of(unit).min(medium.cluster_len()) - at)
        });
        let begun = medium.batch(places).begin();
        wanted.iter_mut().for_each(|(grain, cluster, _, len)| *len = at(*grain, *cluster) % unit);
        Asked { begun, wanted, space }
    }
}

impl Asked {
    pub(crate) fn wait(self) -> Together {
        let read = self.begun.wait().into_iter().zip(self.wanted);
        let frame = |(bytes, (grain, cluster, granted, skip)): (Option<AlignedBuf>, _)| {
            Some((grain, (cluster, granted, bytes?.into_bytes().slice(skip..))))
        };
        Together { read: read.filter_map(frame).collect(), space: self.space }
    }
}
