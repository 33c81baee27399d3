//! Values of the catalog's table `state`: single things by name.

use crate::Inode;
use crate::keys::exactly;
use crate::malformed::Malformed;

/// Value of `journal`: the first entry of the journal that the page file does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalStart {
    /// Its sequence.
    pub sequence: u64,
    /// Its position in the ring.
    pub position: u64,
    /// The sequence of the first entry whose changes of the catalog the page file does not hold.
    pub changes: u64,
}

impl JournalStart {
    /// The stored bytes.
    pub(crate) fn encode(self) -> Vec<u8> {
        [self.sequence, self.position, self.changes].map(u64::to_le_bytes).concat()
    }

    /// Undoes [`JournalStart::encode`].
    ///
    /// # Errors
    /// [`Malformed::TooShort`], [`Malformed::TooLong`].
    pub(crate) fn decode(value: &[u8]) -> Result<JournalStart, Malformed> {
        let fields: [u8; 24] = exactly(value)?;
        let field = |at: usize| u64::from_le_bytes(fields[at..at + 8].try_into().expect("eight bytes"));
        Ok(JournalStart { sequence: field(0), position: field(8), changes: field(16) })
    }
}

/// One of the values of `forgotten`: sectors of a file that were written in entries before some entry, and are elsewhere or
/// nowhere by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The sequence of the first entry whose sectors count again.
    pub before: u64,
    /// Whose.
    pub inode: Inode,
    /// The first sector of the file.
    pub first: u64,
    /// The one behind the last.
    pub end: u64,
}

impl Forgotten {
    /// Whether a sector written in the entry of this sequence counts no more.
    pub(crate) fn covers(&self, sequence: u64, inode: Inode, sector: u64) -> bool {
        sequence < self.before && inode == self.inode && (self.first..self.end).contains(&sector)
    }

    /// The stored bytes of several.
    pub(crate) fn encode_all(all: &[Forgotten]) -> Vec<u8> {
        let fields = all.iter().flat_map(|one| [one.before, one.inode.0, one.first, one.end]);
        fields.flat_map(u64::to_le_bytes).collect()
    }

    /// Undoes [`Forgotten::encode_all`]; `None` if the length is none of theirs.
    pub(crate) fn decode_all(value: &[u8]) -> Option<Vec<Forgotten>> {
        let field = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let decode = |one: &[u8]| Forgotten {
            before: field(&one[..8]),
            inode: Inode(field(&one[8..16])),
            first: field(&one[16..24]),
            end: field(&one[24..]),
        };
        value.len().is_multiple_of(32).then(|| value.chunks_exact(32).map(decode).collect())
    }
}

/// Value of `next-inode`.
pub(crate) fn encode_next_inode(next: u64) -> Vec<u8> {
    next.to_le_bytes().to_vec()
}

/// Undoes [`encode_next_inode`].
///
/// # Errors
/// [`Malformed::TooShort`], [`Malformed::TooLong`].
pub(crate) fn decode_next_inode(value: &[u8]) -> Result<u64, Malformed> {
    Ok(u64::from_le_bytes(exactly(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_of_state() {
        let start = JournalStart { sequence: 0x0102, position: 0x0304, changes: 0x0506 };
        let bytes = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0, 0, 0];
        assert_eq!(start.encode(), bytes);
        assert_eq!(JournalStart::decode(&start.encode()), Ok(start));
        assert_eq!(encode_next_inode(0x0506), [6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode_next_inode(&encode_next_inode(77)), Ok(77));
    }

    #[test]
    fn what_is_forgotten_is_read_as_it_was_written() {
        let one = Forgotten { before: 7, inode: Inode(3), first: 10, end: 12 };
        let all = [one, Forgotten { before: 9, ..one }];
        assert_eq!(Forgotten::decode_all(&Forgotten::encode_all(&all)), Some(all.to_vec()));
        assert_eq!(Forgotten::decode_all(&[0; 33]), None);
        assert!(one.covers(6, Inode(3), 11));
        assert!(!one.covers(7, Inode(3), 11) && !one.covers(6, Inode(3), 12) && !one.covers(6, Inode(4), 11));
    }

    #[test]
    fn other_lengths_are_refused() {
        assert_eq!(JournalStart::decode(&[0; 23]), Err(Malformed::TooShort { bytes: 23, bytes_min: 24 }));
        assert_eq!(JournalStart::decode(&[0; 25]), Err(Malformed::TooLong { bytes: 25, bytes_max: 24 }));
        assert_eq!(decode_next_inode(&[0; 7]), Err(Malformed::TooShort { bytes: 7, bytes_min: 8 }));
    }
}
