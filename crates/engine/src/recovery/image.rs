//! A checkpoint's image: the index as it was, read back part by part.

use picaflor_format::{
    checkpoint::{Directory, PAGES, PlaceRow, decode_cluster, next_piece},
    cluster::Content,
    superblock::CheckpointRef,
};

use super::ahead;
use crate::volume::Volume;

fn load_cluster(volume: &Volume, id: u32, seq: u64, content: Content) -> Result<Vec<u8>, String> {
    if id >= volume.space.count() {
        return Err(format!("cluster {id} does not exist"));
    }
    let bytes = volume.read_cluster(id).ok_or_else(|| format!("cluster {id} cannot be read"))?;
    let (header, payload) = decode_cluster(&bytes).map_err(|why| format!("cluster {id}: {why}"))?;
    if header.seq != seq || header.store != volume.store_id() || header.content != content || header.id != id {
        return Err(format!("cluster {id} holds something else"));
    }
    Ok(payload.to_vec())
}

pub(super) fn load_directory(volume: &Volume, reference: CheckpointRef) -> Result<Directory, String> {
    let payload = load_cluster(volume, reference.directory, reference.seq, Content::CheckpointDirectory)?;
    Directory::decode(&payload).map_err(|why| format!("directory: {why}"))
}

/// Fills the index from a checkpoint; in place, the rows of the table are returned instead.
pub(super) fn load_checkpoint(volume: &Volume, reference: CheckpointRef) -> Result<(Directory, Vec<PlaceRow>), String> {
    let directory = load_directory(volume, reference)?;
    let mut rows = Vec::new();
    let mut image: Vec<u64> = Vec::new();
    let pieces = |&(id, seq): &(u32, u64)| -> Result<Vec<_>, String> {
        let payload = load_cluster(volume, id, seq, Content::CheckpointPart)?;
        let (mut rest, mut pieces) = (&payload[..], Vec::new());
        while !rest.is_empty() {
            let (piece, after) = next_piece(rest).map_err(|why| format!("cluster {id}: {why}"))?;
            rest = after;
            pieces.push(piece);
        }
        Ok(pieces)
    };
    ahead::in_order(&directory.parts, ahead::readers(&volume.shared.options), pieces, |(id, _), pieces| {
        for piece in pieces? {
            if piece.first as usize != image.len() {
                return Err(format!("cluster {id}: a piece of segment {} is missing", piece.segment));
            }
            image.extend_from_slice(&piece.words);
            if image.len() != piece.total as usize {
                continue;
            }
            if volume.in_place.is_some() {
                let row = |words: &[u64; PlaceRow::WORDS]| PlaceRow::from_words(*words);
                rows.extend(image.as_chunks().0.iter().map(row));
            } else if piece.segment == PAGES {
                volume.divisions.restore(&image);
            } else {
                volume
                    .index
                    .restore(piece.segment, &image)
                    .ok_or_else(|| format!("segment {} makes no sense", piece.segment))?;
            }
            image.clear();
        }
        Ok(())
    })?;
    Ok((directory, rows))
}
