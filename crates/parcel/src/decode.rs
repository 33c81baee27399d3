//! The file back.

use crate::Progress;
use crate::error::Error;
use crate::hashes::Hashes;
use crate::parcel::Parcel;
use crate::recovery::{Planner, RowBuffer};

impl Parcel {
    /// Gives the file's bytes to `sink`, in order, in pieces of at most a tile. What is damaged is recovered. The bytes
    /// are right, sector by sector, but until this returns the hash of the whole is not known to be: the sink must not
    /// take them for the file before.
    ///
    /// # Errors
    /// Several files are held and none was named, too much is lost, the hash is another than when the file was encoded,
    /// or the sink's error.
    pub fn decode(
        &self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let member = match (self.named, self.members()) {
            (Some(named), _) => named,
            (None, [_]) => 0,
            (None, members) => {
                return Err(Error::Several { found: members.iter().map(|member| member.name.clone()).collect() });
            }
        };
        let (layout, own) = (self.layout(), self.members()[member].layout());
        let data = self.data_of(member);
        let mut planner = Planner::new(self);
        let mut hashes = Hashes::new(self, member..member + 1);
        for at in 0..own.rows() {
            let row = layout.row(at);
            let mut buffer = RowBuffer::new(self, row);
            buffer.load(self, data.clone());
            if let Some(hole) = buffer.recover(&mut planner, |chunk| data.contains(&chunk.0)).first() {
                return Err(Error::lost(&hole.why, own.row(at).file_at));
            }
            hashes.add(at, &buffer, sink)?;
            progress(own.file_bytes_of(&own.row(at)));
        }
        if hashes.are_right() { Ok(()) } else { Err(self.wrong_hash()) }
    }

    pub(crate) fn wrong_hash(&self) -> Error {
        let expected = self.members().iter().map(|member| blake3::Hash::from_bytes(member.hash).to_hex().to_string());
        Error::WrongHash { expected: expected.collect::<Vec<_>>().join(" or ") }
    }
}
