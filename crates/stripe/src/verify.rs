//! Reads every sector of a stripe's chunks.

use claystone_code::ChunkIndex;

/// What became of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkVerdict {
    /// Every sector was read and its checksum is right.
    Verified,
    /// Some sectors are lost.
    SectorsLost(Vec<u64>),
    /// The chunk is not there, or lost as a whole.
    Lost,
    /// Its disk did not answer, so nothing is known.
    Unknown,
    /// The record gives it no place.
    Unplaced,
}

/// What was found of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Chunk by chunk.
    pub chunks: Vec<ChunkVerdict>,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Verification {
    /// Whether every chunk is in place and right: only then a stripe may be called healthy.
    pub fn healthy(&self) -> bool {
        self.chunks.iter().all(|verdict| *verdict == ChunkVerdict::Verified)
    }

    /// Chunks that are known to be bad and need repair.
    pub fn lost(&self) -> Vec<ChunkIndex> {
        let lost = |verdict: &ChunkVerdict| {
            matches!(verdict, ChunkVerdict::SectorsLost(_) | ChunkVerdict::Lost | ChunkVerdict::Unplaced)
        };
        let indices = self.chunks.iter().enumerate().filter(|(_, verdict)| lost(verdict));
        indices.map(|(index, _)| ChunkIndex(index as u16)).collect()
    }
}
