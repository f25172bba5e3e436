//! Key hashes. XXH3-128 seeded with the store's random seed, so that colliding keys cannot be chosen.
//!
//! The low 64 bits place a key in the index and name it in cluster tables; all 128 name it in the
//! delete log. Chunks of large objects hash in a domain of their own: no key can collide with one.

use std::{
    collections::HashMap,
    hash::{self, BuildHasherDefault},
};

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Seed of one store and the hashes made with it.
#[derive(Debug, Clone, Copy)]
pub struct Hasher {
    seed: u64,
}

/// Hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u128);

impl KeyHash {
    /// The part that the index and the cluster tables keep.
    pub fn short(self) -> u64 {
        self.0 as u64
    }
}

const CHUNK_DOMAIN: u64 = 0x9e37_79b9_7f4a_7c15;
const MARK_DOMAIN: u64 = 0xc2b2_ae3d_27d4_eb4f;

impl Hasher {
    /// The hasher of a store with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// Hash of an object's key.
    pub fn key(self, key: &[u8]) -> KeyHash {
        KeyHash(xxh3_128_with_seed(key, self.seed))
    }

    /// What marks the frames of one use of a cluster. Keyed, so that no body can hold the image of a frame that a
    /// scan after a crash would believe.
    pub fn mark(self, cluster_seq: u64) -> u64 {
        xxh3_128_with_seed(&cluster_seq.to_le_bytes(), self.seed ^ MARK_DOMAIN) as u64
    }

    /// Hash of a chunk's key.
    pub fn chunk(self, chunk_key: &[u8]) -> KeyHash {
        KeyHash(xxh3_128_with_seed(chunk_key, self.seed ^ CHUNK_DOMAIN))
    }

    /// Hash of a frame's key, whatever the frame holds.
    pub fn frame(self, kind: picaflor_format::frame::Kind, key: &[u8]) -> KeyHash {
        match kind {
            picaflor_format::frame::Kind::Chunk => self.chunk(key),
            _ => self.key(key),
        }
    }
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub struct Identity(u64);

impl hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map whose keys are hashes.
pub type HashKeyed<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;
