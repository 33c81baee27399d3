//! Keys of the catalog's tables, and spans of them.
//!
//! 1. Numbers in keys are big-endian, so that keys sort as what they stand for; a name or an attribute's name comes last and
//!    has no length.
//! 2. A decoder takes any bytes and gives [`Malformed`] for what no encoder makes.
//!
//! Left out: values (`inode`, `name`, `state`) and which table a key belongs to.

use std::ops::{Bound, Range};

use crate::Inode;
use crate::malformed::Malformed;

/// Row of `state`: where replay begins.
pub(crate) const JOURNAL: &[u8] = b"journal";
/// Row of `state`: the first sector behind those that the catalog knows.
pub(crate) const END: &[u8] = b"end";
/// Row of `state`: sectors in older entries of the journal that count no more.
pub(crate) const FORGOTTEN: &[u8] = b"forgotten";
/// Row of `state`: the number of the next inode.
pub(crate) const NEXT_INODE: &[u8] = b"next-inode";

/// Row of `state`: how far the scrub is.
pub(crate) const SCRUB: &[u8] = b"scrub";
/// Row of `state`: what was counted of the device.
pub(crate) const SEEN: &[u8] = b"seen";
/// Row of `state`: where sums of swaths are kept.
pub(crate) const SWATHS: &[u8] = b"swaths";

/// The longest name of a node or an attribute, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Key in `inodes` and `orphans`.
pub(crate) fn inode(inode: Inode) -> [u8; 8] {
    inode.0.to_be_bytes()
}

/// Key in `names`.
pub(crate) fn name(directory: Inode, name: &[u8]) -> Vec<u8> {
    [&inode(directory), name].concat()
}

/// Key in `attributes`.
pub(crate) fn attribute(of: Inode, name: &[u8]) -> Vec<u8> {
    [&inode(of), name].concat()
}

/// Key in `runs`.
pub(crate) fn run(of: Inode, file_sector: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&inode(of));
    key[8..].copy_from_slice(&file_sector.to_be_bytes());
    key
}

/// Key in `free`.
pub(crate) fn sector(place: u64) -> [u8; 8] {
    place.to_be_bytes()
}

/// Undoes [`inode()`].
///
/// # Errors
/// [`Malformed::TooShort`], [`Malformed::TooLong`].
pub(crate) fn decode_inode(key: &[u8]) -> Result<Inode, Malformed> {
    Ok(Inode(u64::from_be_bytes(exactly(key)?)))
}

/// Undoes [`name()`] and [`attribute()`].
///
/// # Errors
/// [`Malformed::TooShort`], [`Malformed::TooLong`].
pub(crate) fn decode_name(key: &[u8]) -> Result<(Inode, &[u8]), Malformed> {
    let too_short = Malformed::TooShort { bytes: key.len(), bytes_min: 9 };
    let (of, name) = key.split_first_chunk().ok_or(too_short)?;
    match name.len() {
        0 => Err(too_short),
        1..=NAME_BYTES_MAX => Ok((Inode(u64::from_be_bytes(*of)), name)),
        _ => Err(Malformed::TooLong { bytes: key.len(), bytes_max: 8 + NAME_BYTES_MAX }),
    }
}

/// Undoes [`run()`].
///
/// # Errors
/// [`Malformed::TooShort`], [`Malformed::TooLong`].
pub(crate) fn decode_run(key: &[u8]) -> Result<(Inode, u64), Malformed> {
    let key: [u8; 16] = exactly(key)?;
    let number = u128::from_be_bytes(key);
    Ok((Inode((number >> 64) as u64), number as u64))
}

/// Undoes [`sector()`].
///
/// # Errors
/// [`Malformed::TooShort`], [`Malformed::TooLong`].
pub(crate) fn decode_sector(key: &[u8]) -> Result<u64, Malformed> {
    Ok(u64::from_be_bytes(exactly(key)?))
}

/// The bytes as an array of their only possible length.
pub(crate) fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| match bytes.len() < N {
        true => Malformed::TooShort { bytes: bytes.len(), bytes_min: N },
        false => Malformed::TooLong { bytes: bytes.len(), bytes_max: N },
    })
}

/// Where keys begin and end, as maps take it.
type Bounds<'s> = (Bound<&'s [u8]>, Bound<&'s [u8]>);

/// Keys that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Span {
    /// All keys of a table.
    pub(crate) fn all() -> Span {
        Span { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// The keys from `key` on.
    pub(crate) fn from(key: &[u8]) -> Span {
        Span { from: Bound::Included(key.to_vec()), to: Bound::Unbounded }
    }

    /// The keys behind `key`.
    pub(crate) fn after(key: &[u8]) -> Span {
        Span { from: Bound::Excluded(key.to_vec()), to: Bound::Unbounded }
    }

    /// The keys up to `key`, itself included.
    pub(crate) fn up_to(key: &[u8]) -> Span {
        Span { from: Bound::Unbounded, to: Bound::Included(key.to_vec()) }
    }

    /// The keys of `names`, `attributes` or `runs` that begin with an inode.
    pub(crate) fn of(inode: Inode) -> Span {
        let from = Bound::Included(self::inode(inode).to_vec());
        let to = match inode.0.checked_add(1) {
            Some(next) => Bound::Excluded(next.to_be_bytes().to_vec()),
            None => Bound::Unbounded,
        };
        Span { from, to }
    }

    /// The keys of [`Span::of`] that come behind a name.
    pub(crate) fn of_behind(inode: Inode, name: &[u8]) -> Span {
        Span { from: Bound::Excluded(self::name(inode, name)), ..Span::of(inode) }
    }

    /// The keys of `runs` with a first file sector in a range.
    pub(crate) fn runs(of: Inode, file_sectors: Range<u64>) -> Span {
        Span {
            from: Bound::Included(run(of, file_sectors.start).to_vec()),
            to: Bound::Excluded(run(of, file_sectors.end).to_vec()),
        }
    }

    /// The bounds, where some key lies between them: both maps that are asked for a range panic at bounds that cross.
    pub(crate) fn bounds(&self) -> Option<Bounds<'_>> {
        let from = self.from.as_ref().map(Vec::as_slice);
        let to = self.to.as_ref().map(Vec::as_slice);
        let crossed = match (from, to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        };
        (!crossed).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        assert!(inode(Inode(255)) < inode(Inode(256)));
        assert!(run(Inode(1), u64::MAX) < run(Inode(2), 0));
        assert!(run(Inode(7), 255) < run(Inode(7), 256));
        assert!(name(Inode(1), &[0xff; 255]) < name(Inode(2), &[1]));
        assert!(name(Inode(1), b"a") < name(Inode(1), b"ab"));
    }

    #[test]
    fn stored_bytes_of_keys() {
        assert_eq!(inode(Inode(0x0102)), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(name(Inode(3), b"ab"), [0, 0, 0, 0, 0, 0, 0, 3, b'a', b'b']);
        assert_eq!(attribute(Inode(3), b"ab"), [0, 0, 0, 0, 0, 0, 0, 3, b'a', b'b']);
        assert_eq!(run(Inode(3), 0x0405), [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4, 5]);
        assert_eq!(sector(0x0a0b), [0, 0, 0, 0, 0, 0, 10, 11]);
    }

    #[test]
    fn each_key_decodes_and_no_other_length_does() {
        let long = [7; NAME_BYTES_MAX + 9];
        for bytes in 0..long.len() + 1 {
            let key = &long[..bytes.min(long.len())];
            assert_eq!(decode_inode(key).is_ok(), key.len() == 8);
            assert_eq!(decode_sector(key).is_ok(), key.len() == 8);
            assert_eq!(decode_run(key).is_ok(), key.len() == 16);
            assert_eq!(decode_name(key).is_ok(), (9..=8 + NAME_BYTES_MAX).contains(&key.len()));
        }
        assert_eq!(decode_inode(&inode(Inode(u64::MAX))), Ok(Inode(u64::MAX)));
        assert_eq!(decode_run(&run(Inode(1 << 40), 9)), Ok((Inode(1 << 40), 9)));
        assert_eq!(decode_name(&name(Inode(5), b"x")), Ok((Inode(5), &b"x"[..])));
    }

    #[test]
    fn bounds_that_cross_are_no_bounds() {
        assert_eq!(Span::runs(Inode(1), 5..5).bounds(), None);
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
        let crossed = Span::runs(Inode(1), 5..4);
        assert_eq!(crossed.bounds(), None);
        assert!(Span::of(Inode(u64::MAX)).bounds().is_some());
    }
}
