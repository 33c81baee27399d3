//! The hashes of the files that a parcel holds, row by row.
//!
//! Invariants:
//! 1. A file's bytes are hashed in their order, padding left out.

use std::ops::Range;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::parcel::Parcel;
use crate::recovery::RowBuffer;

/// Hashes of some members in the making.
pub(crate) struct Hashes<'a>(Vec<(&'a Manifest, Range<u16>, blake3::Hasher)>);

impl<'a> Hashes<'a> {
    /// Of `members`.
    pub fn new(parcel: &'a Parcel, members: Range<usize>) -> Hashes<'a> {
        let each = members.map(|at| (&parcel.members()[at], parcel.data_of(at), blake3::Hasher::new()));
        Hashes(each.collect())
    }

    /// Takes row `at`, whose data is right, and gives each piece of a file to `sink`.
    ///
    /// # Errors
    /// The sink's.
    pub fn add(
        &mut self,
        at: u64,
        buffer: &RowBuffer,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (manifest, data, hasher) in &mut self.0 {
            let layout = manifest.layout();
            if at >= layout.rows() {
                continue;
            }
            // A member's last row may be shorter than the joint's.
            let row = layout.row(at);
            let mut left = layout.file_bytes_of(&row);
            for chunk in data.clone() {
                let piece = &buffer.tile(chunk)[..row.tile_bytes.min(left as usize)];
                hasher.update(piece);
                sink(piece)?;
                left -= piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Whether what was taken is what was encoded.
    pub fn are_right(&self) -> bool {
        self.0.iter().all(|(manifest, _, hasher)| hasher.finalize().as_bytes() == &manifest.hash)
    }
}
