//! Values of the catalog's table `names`: which node a name stands for.

use crate::inode::{decode_kind, encode_kind};
use crate::keys::exactly;
use crate::malformed::Malformed;
use crate::{Inode, Kind};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameRecord {
    /// The node.
    pub inode: Inode,
    /// What it is: the same as in its inode record, so that a directory can be listed without those.
    pub kind: Kind,
}

impl NameRecord {
    /// The stored bytes.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut value = self.inode.0.to_le_bytes().to_vec();
        value.push(encode_kind(self.kind));
        value
    }

    /// Undoes [`NameRecord::encode`].
    ///
    /// # Errors
    /// [`Malformed::TooShort`], [`Malformed::TooLong`], [`Malformed::Kind`].
    pub(crate) fn decode(value: &[u8]) -> Result<NameRecord, Malformed> {
        let [inode @ .., kind] = exactly::<9>(value)?;
        Ok(NameRecord { inode: Inode(u64::from_le_bytes(inode)), kind: decode_kind(kind)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_of_a_name() {
        let record = NameRecord { inode: Inode(0x0102), kind: Kind::Directory };
        assert_eq!(record.encode(), [2, 1, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(NameRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(NameRecord::decode(&[1; 8]), Err(Malformed::TooShort { bytes: 8, bytes_min: 9 }));
        assert_eq!(NameRecord::decode(&[1; 10]), Err(Malformed::TooLong { bytes: 10, bytes_max: 9 }));
        assert_eq!(NameRecord::decode(&[1, 0, 0, 0, 0, 0, 0, 0, 8]), Err(Malformed::Kind { kind: 8 }));
    }
}
