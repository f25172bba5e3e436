//! A checkpoint's image: the index as it was, read back part by part.

use std::{collections::BTreeMap, fmt};

use picaflor_format::{
    checkpoint::{BEGUN, Begun, Directory, PAGES, PINNED, decode_cluster, next_piece},
    cluster::Content,
    journal::{Page, Record},
    superblock::{CheckpointRef, Superblock},
};

use super::parallel_read;
use crate::{Error, VolumeReceipt, index::IndexEntry, read::parts::Parts};

/// Why what an opening needs is of no use.
#[derive(Clone)]
pub(super) enum Unfit {
    /// It was read, and is not what was written.
    Damaged(String),
    /// The device refused to read it. It may be whole: it is not reported as damaged.
    Refused(Error),
}

impl From<String> for Unfit {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { .. } => Self::Refused(error),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(why) => f.write_str(why),
            Self::Refused(error) => write!(f, "{error}"),
        }
    }
}

impl VolumeReceipt {
    /// Notes why something of the opening could not be had; `what` names it.
    pub(super) fn note(&mut self, what: &str, why: &Unfit) {
        let notes = match why {
            Unfit::Damaged(_) => &mut self.damage,
            Unfit::Refused(_) => &mut self.refused,
        };
        notes.push(format!("{what}{why}"));
    }
}

fn load_cluster(volume: &Parts, id: u32, seq: u64, content: Content) -> Result<Vec<u8>, Unfit> {
    if id >= volume.space.count() {
        return Err(format!("cluster {id} does not exist").into());
    }
    let bytes = volume.medium.read_at(id, 0, volume.medium.cluster_len()).map_err(Unfit::Refused)?;
    let (header, payload) = decode_cluster(&bytes).map_err(|why| format!("cluster {id}: {why}"))?;
    if header.seq != seq || header.store != volume.medium.store_id || header.content != content || header.id != id {
        return Err(format!("cluster {id} holds something else").into());
    }
    Ok(payload.to_vec())
}

pub(super) fn load_directory(volume: &Parts, reference: CheckpointRef) -> Result<Directory, Unfit> {
    let payload = load_cluster(volume, reference.directory, reference.seq, Content::CheckpointDirectory)?;
    Ok(Directory::decode(&payload).map_err(|why| format!("directory: {why}"))?)
}

/// The clusters of a checkpoint, and the use of each; without its directory that one alone.
pub(super) fn own_clusters(reference: CheckpointRef, directory: Option<&Directory>) -> BTreeMap<u32, u64> {
    let parts = directory.into_iter().flat_map(|directory| directory.parts.iter().copied());
    parts.chain([(reference.directory, reference.seq)]).collect()
}

/// The clusters that the previous checkpoint calls open, and its own; `None` if it is not whole. Behind a superblock
/// that is not the newest it may have been given up since, and its clusters hold objects.
pub(super) fn previous_checkpoint(
    volume: &Parts,
    reference: CheckpointRef,
    pages: &[Page],
) -> Option<(Vec<u32>, Vec<u32>)> {
    let directory = load_directory(volume, reference).ok()?;
    let own = own_clusters(reference, Some(&directory));
    let granted_again = pages.iter().flat_map(|page| &page.records).any(|record| match record {
        Record::Reserve { cluster, seq } => own.get(cluster).is_some_and(|known| seq > known),
        _ => false,
    });
    (!granted_again).then(|| (directory.open, own.into_keys().collect()))
}

/// A checkpoint, read.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) directory: Directory,
    pub(super) begun: Begun,
    /// The images of places, where objects have them.
    pub(super) of_places: Vec<u64>,
}

/// Fills the index from the newest checkpoint that is whole, if there ever was one.
pub(super) fn load_newest(
    volume: &Parts,
    block: &Superblock,
    receipt: &mut VolumeReceipt,
) -> Result<Option<(CheckpointRef, Loaded)>, Unfit> {
    let mut refused = None;
    for (name, reference) in [("current", block.current), ("previous", block.previous)] {
        let Some(reference) = reference else { continue };
        match load_checkpoint(volume, reference) {
            Ok(loaded) => {
                receipt.checkpoint = name;
                return Ok(Some((reference, loaded)));
            }
            Err(why) => {
                volume.catalog.index.update_all(|_| IndexEntry::EMPTY);
                receipt.note(&format!("{name} checkpoint: "), &why);
                refused = refused.or(Some(why).filter(|why| matches!(why, Unfit::Refused(_))));
            }
        }
    }
    // If one was refused, that may be the sound one.
    let why = || refused.unwrap_or_else(|| Unfit::Damaged("neither checkpoint is intact".into()));
    if block.current.is_some() { Err(why()) } else { Ok(None) }
}

/// Fills the index from a checkpoint; where objects have places, the images of these are returned instead.
fn load_checkpoint(volume: &Parts, reference: CheckpointRef) -> Result<Loaded, Unfit> {
    let directory = load_directory(volume, reference)?;
    let (mut begun, mut of_places) = (Begun::default(), Vec::new());
    let mut image: Vec<u64> = Vec::new();
    let pieces = |&(id, seq): &(u32, u64)| -> Result<Vec<_>, Unfit> {
        let payload = load_cluster(volume, id, seq, Content::CheckpointPart)?;
        let (mut rest, mut pieces) = (&payload[..], Vec::new());
        while !rest.is_empty() {
            let (piece, after) = next_piece(rest).map_err(|why| format!("cluster {id}: {why}"))?;
            rest = after;
            pieces.push(piece);
        }
        Ok(pieces)
    };
    parallel_read::in_order(
        &directory.parts,
        parallel_read::readers(&volume.shared.options),
        pieces,
        |(id, _), pieces| {
            for piece in pieces? {
                if piece.first as usize != image.len() {
                    let why = format!("cluster {id}: a piece of segment {} is missing", piece.segment);
                    return Err(Unfit::Damaged(why));
                }
                image.extend_from_slice(&piece.words);
                if image.len() != piece.total as usize {
                    continue;
                }
                if piece.segment == PINNED {
                    let pinned = volume.shared.pins.restore_image(&image);
                    pinned.map_err(|why| format!("cluster {id}: pinned records: {why}"))?;
                } else if piece.segment == BEGUN {
                    begun = Begun::from_words(&image).map_err(|why| format!("cluster {id}: what began: {why}"))?;
                } else if volume.catalog.places.is_some() {
                    of_places.extend_from_slice(&image);
                } else if piece.segment == PAGES {
                    volume.residents.pages.restore(&image);
                } else {
                    volume
                        .catalog
                        .index
                        .restore(piece.segment, &image)
                        .ok_or_else(|| format!("segment {} makes no sense", piece.segment))?;
                }
                image.clear();
            }
            Ok(())
        },
    )?;
    Ok(Loaded { directory, begun, of_places })
}
