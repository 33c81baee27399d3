//! The file back.

use crate::Progress;
use crate::error::Error;
use crate::parcel::Parcel;
use crate::recovery::{Planner, RowBuffer};

impl Parcel {
    /// Gives the file's bytes to `sink`, in order, in pieces of at most a tile. What is damaged is recovered. The bytes
    /// are right, sector by sector, but until this returns the hash of the whole is not known to be: the sink must not
    /// take them for the file before.
    ///
    /// # Errors
    /// Too much is lost, the hash is another than when the file was encoded, or the sink's error.
    pub fn decode(
        &self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let layout = self.layout();
        let data = layout.shape.data;
        let mut planner = Planner::new(self);
        let mut hasher = blake3::Hasher::new();
        for row in (0..layout.rows()).map(|row| layout.row(row)) {
            let mut buffer = RowBuffer::new(self, row);
            buffer.load(self, 0..data);
            if let Some(hole) = buffer.recover(&mut planner, |chunk| chunk.0 < data).first() {
                return Err(Error::lost(&hole.why, row.file_at));
            }
            let mut left = layout.file_bytes_of(&row);
            for chunk in 0..data {
                let tile = buffer.tile(chunk);
                let piece = &tile[..tile.len().min(left as usize)];
                hasher.update(piece);
                sink(piece)?;
                left -= piece.len() as u64;
            }
            progress(layout.file_bytes_of(&row));
        }
        self.check_hash(&hasher)
    }

    fn check_hash(&self, hasher: &blake3::Hasher) -> Result<(), Error> {
        if self.is_hash(hasher) { Ok(()) } else { Err(self.wrong_hash()) }
    }

    /// Whether what was hashed is what was encoded.
    pub(crate) fn is_hash(&self, hasher: &blake3::Hasher) -> bool {
        hasher.finalize().as_bytes() == &self.manifest.hash
    }

    pub(crate) fn wrong_hash(&self) -> Error {
        Error::WrongHash { expected: blake3::Hash::from_bytes(self.manifest.hash).to_hex().to_string() }
    }
}
