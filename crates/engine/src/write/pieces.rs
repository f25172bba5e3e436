//! Lengths of pieces: how an object is cut so that its pieces fill clusters, alone or with others.

use picaflor_format::{
    cluster::{HEADER, ROW, TRAILER},
    frame::{self, ChunkKey, GRAIN},
};

/// A length is cut of which many would leave more than this part of their clusters empty.
pub(crate) const WASTE: usize = 32;
/// A piece that fills clusters is no smaller than this part of one.
pub(crate) const PIECES: usize = 16;
/// Clusters of a store in which those pieces have no buffers of their own.
pub(crate) const SMALL: u32 = 128;

/// Bytes that a frame takes in a cluster, its row among them.
pub(crate) fn taken(payload: usize) -> usize {
    (frame::HEADER + payload).next_multiple_of(GRAIN) + ROW
}

/// Bytes of a cluster that each frame of so many wastes if all are as long.
pub(crate) fn wasted(cluster: usize, payload: usize) -> usize {
    let room = cluster - HEADER - TRAILER;
    let taken = taken(payload);
    let fit = (room / taken).max(1);
    room.saturating_sub(fit * taken) / fit
}

/// Bytes of body of a piece of which so many fill a cluster.
pub(crate) fn piece_of(cluster: usize, pieces: usize) -> usize {
    let each = (cluster - HEADER - TRAILER) / pieces - ROW;
    each / GRAIN * GRAIN - frame::HEADER - ChunkKey::LEN
}

/// What a body takes in pieces of so many bytes, and what the last of them wastes.
pub(crate) fn cost_of(cluster: usize, body: usize, piece: usize) -> usize {
    let rest = match body % piece {
        0 => 0,
        rest => taken(ChunkKey::LEN + rest) + wasted(cluster, ChunkKey::LEN + rest),
    };
    body / piece * taken(ChunkKey::LEN + piece) + rest
}

/// Bytes of body of the pieces that a body of so many is best cut into: the largest whose waste is small, or the one
/// that wastes least. Halves, quarters and so on fill a cluster whichever of them come together.
pub(crate) fn best_piece(cluster: usize, body: usize) -> usize {
    let halves = std::iter::successors(Some(1), |pieces| Some(pieces * 2)).take_while(|pieces| *pieces <= PIECES);
    let pieces = halves.map(|pieces| piece_of(cluster, pieces)).filter(|piece| *piece < body);
    let cost = |piece: &usize| cost_of(cluster, body, *piece) - body;
    let cheap = pieces.clone().find(|piece| cost(piece) * WASTE <= body);
    cheap.or_else(|| pieces.min_by_key(cost)).unwrap_or(body)
}

/// Whether a frame of so many bytes is such a piece.
pub(crate) fn fills_with_others(cluster: usize, len: usize) -> bool {
    let of = |pieces| piece_of(cluster, pieces) + ChunkKey::LEN + frame::HEADER;
    (0..=PIECES.ilog2()).any(|halved| of(1 << halved) == len)
}

#[cfg(test)]
mod tests {
    use picaflor_format::zone::{CLUSTER_MAX, CLUSTER_MIN};

    use super::*;

    #[test]
    fn pieces_fill_their_clusters() {
        for cluster in [CLUSTER_MIN, 64 << 10, 256 << 10, CLUSTER_MAX].map(|cluster| cluster as usize) {
            let room = cluster - HEADER - TRAILER;
            for pieces in [1, 2, 4, 8, 16] {
                let piece = taken(ChunkKey::LEN + piece_of(cluster, pieces));
                assert!(piece * pieces <= room && (piece + GRAIN) * pieces > room, "{pieces} in {cluster}");
                assert!(wasted(cluster, ChunkKey::LEN + piece_of(cluster, pieces)) <= GRAIN);
            }
        }
    }

    #[test]
    fn a_body_is_cut_where_many_of_its_length_would_leave_much_empty() {
        let cluster = 256 << 10;
        let pieces = |body: usize| body.div_ceil(best_piece(cluster, body));
        // A quarter and a little; three quarters and a little; five clusters and a little.
        assert_eq!([64 << 10, 65 << 10, 200 << 10, 1310 << 10].map(pieces), [2, 2, 4, 6]);
        for body in (10_000..2_000_000).step_by(997) {
            let cost = cost_of(cluster, body, best_piece(cluster, body)) - body;
            assert!(cost * 24 <= body, "{body} bytes cost {cost} more");
        }
    }
}
