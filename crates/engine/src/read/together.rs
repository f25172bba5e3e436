//! What tells a key's own frame from others: the beginnings of frames, of one or of many together, and tables of their
//! clusters with these, read before the locks of their keys are taken.
//!
//! Invariant: what was read at a grain is shown only if its cluster was not granted anew since an entry was seen to
//! lead there: so it is what any entry leads to that leads there now.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_device::AlignedBuf;
use picaflor_format::{
    BLOCK,
    frame::{GRAIN, HEADER, Header, Kind},
};

use crate::{
    base::{frame::Frame, medium::Begun},
    index::Location,
    read::tables::{Granted, Tables, cut_table, has_rows},
    space::Space,
};

/// Of a frame so much is read: its header, and most keys.
pub(crate) const HEAD: usize = 512;

/// The header of the frame that these bytes begin with, if that is an object of this key, in one piece. No damage makes
/// another key of it, so what of the frame was not read need not be.
pub(crate) fn own_header(bytes: &[u8], key: &[u8]) -> Option<Header> {
    let header = Header::decode(bytes).ok().filter(|header| header.kind == Kind::Whole)?;
    (bytes.get(HEADER..header.meta_start()) == Some(key)).then_some(header)
}

/// What was read of one volume.
pub(crate) struct Together {
    /// By their grains: the cluster's use, and bytes that begin with the frame.
    heads: HashMap<u64, (Granted, Bytes)>,
    tables: HashMap<Granted, Arc<Frame>>,
    space: Arc<Space>,
}

/// What is under way of it.
pub(crate) struct Asked {
    begun: Begun,
    /// Of each frame its grain, its cluster's use, and what is read before it.
    heads: Vec<(u64, Granted, usize)>,
    tables: Vec<Granted>,
    of: Tables,
}

impl Together {
    /// The header of the frame at a grain, if that is an object of this key, in one piece.
    pub(crate) fn own(&self, grain: u64, key: &[u8]) -> Option<Header> {
        let (granted, bytes) = self.heads.get(&grain)?;
        own_header(bytes, key).filter(|_| self.space.grants.last(granted.cluster) == granted.number)
    }

    /// The table of a cluster in this use.
    pub(crate) fn table(&self, granted: Granted) -> Option<Arc<Frame>> {
        self.tables.get(&granted).cloned()
    }

    /// Asks for what tells keys of the places of these from others, where entries lead to clusters on the device: the
    /// tables that memory has not, and the beginnings of frames of which no table tells.
    pub(crate) fn ask(of: &Tables, hashes: impl Iterator<Item = KeyHash>) -> Asked {
        let (medium, catalog) = (&of.catalog.medium, &of.catalog);
        let (mut heads, mut tables) = (Vec::new(), BTreeSet::new());
        for hash in hashes.filter(|_| catalog.places.is_none()) {
            for entry in catalog.index.candidates(hash.short()) {
                let Location::OnDisk { grain } = entry.location() else { continue };
                let Some(cluster) = medium.cluster_of(grain) else { continue };
                let granted = Granted { cluster, number: catalog.space.grants.last(cluster) };
                // Else it was granted anew before that.
                if catalog.index.find(hash.short(), entry.location()).is_none() {
                    continue;
                }
                match of.use_of(grain).map(|granted| of.kept(granted)) {
                    Some(None) => drop(tables.insert(granted)),
                    Some(Some(table)) if has_rows(&table) => {}
                    _ => heads.push((grain, granted, entry.grains() as usize * GRAIN)),
                }
            }
        }
        let unit = medium.device.read_unit();
        let at = |grain: u64, cluster| (grain * GRAIN as u64 - medium.map().cluster_start(cluster)) as usize;
        let of_heads = heads.iter().map(|&(grain, Granted { cluster, .. }, len)| {
            let (at, end) = (at(grain, cluster) / unit * unit, at(grain, cluster) + len.min(HEAD));
            (cluster, at, end.next_multiple_of(unit).min(medium.cluster_len()) - at)
        });
        let of_tables = tables.iter().flat_map(|granted: &Granted| {
            let front = granted.is_earlier().then_some((granted.cluster, 0, BLOCK));
            [(granted.cluster, medium.cluster_len() - BLOCK, BLOCK)].into_iter().chain(front)
        });
        let begun = medium.batch(of_heads.chain(of_tables)).begin();
        heads.iter_mut().for_each(|(grain, granted, len)| *len = at(*grain, granted.cluster) % unit);
        Asked { begun, heads, tables: tables.into_iter().collect(), of: of.clone() }
    }
}

impl Asked {
    pub(crate) fn wait(self) -> Together {
        let mut read = self.begun.wait().into_iter();
        let head = |((grain, granted, skip), bytes): (_, Option<AlignedBuf>)| {
            Some((grain, (granted, bytes?.into_bytes().slice(skip..))))
        };
        let heads = self.heads.into_iter().zip(&mut read).filter_map(head).collect();
        // The rest of one that is longer is read when it is asked for.
        let table = |granted: Granted| {
            let (end, front) = (read.next()?, if granted.is_earlier() { read.next()? } else { None });
            let end = end.filter(|end| cut_table(end).is_none())?;
            Some((granted, self.of.keep(granted, &end, front.as_deref())))
        };
        let tables = self.tables.into_iter().filter_map(table).collect();
        Together { heads, tables, space: Arc::clone(&self.of.catalog.space) }
    }
}
