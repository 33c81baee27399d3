//! The bytes of a segment's header and of a fence, and the names of their files.
//!
//! Invariants:
//! 1. Each is one part of 512 bytes, so a power cut leaves it whole or absent.
//! 2. Every function here is pure; nothing here panics on bytes or names from a disk.

use claystone_chunk::{Lease, OwnerId, SegmentId, SegmentInfo, Term};

use crate::fields::{array_at, crc32c_without, put, u16_at, u32_at, u64_at, u128_at};
use crate::identity::FORMAT_VERSION;

/// The directory of segments and fences.
pub const SEGMENT_DIR: &str = "segments";
/// Bytes of a segment's header, and of a fence.
pub const HEADER_BYTES: usize = 512;
/// Where a segment's content begins in its file.
pub const CONTENT_OFFSET: u64 = 4096;

/// What names of spares begin with; no owner's do.
const SPARE_PREFIX: &str = "spare.";
/// What names of files end with that get their own when they are whole.
const NEW_SUFFIX: &str = ".new";
const SEGMENT_MAGIC: [u8; 8] = *b"CLAYSEGM";
const FENCE_MAGIC: [u8; 8] = *b"CLAYFENC";
const CRC_AT: usize = 12;

/// What a segment file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A segment.
    Segment(SegmentInfo),
    /// What an interrupted creation left.
    Remnant,
    /// Not what was written; why.
    Damaged(&'static str),
}

/// What a spare's file was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    /// Nothing: it was never a segment's.
    None,
    /// A segment's, or about to be.
    Segment(SegmentId),
    /// What cannot be said.
    Unknown,
}

/// Whose name a file of the directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A segment's.
    Segment(SegmentId),
    /// An owner's fence.
    Fence(OwnerId),
    /// A fence that is being written.
    NewFence(OwnerId),
}

/// The file of a segment.
pub fn segment_path(id: SegmentId) -> String {
    format!("{SEGMENT_DIR}/{}.{}", id.owner, id.number)
}

/// The file of a spare.
pub fn spare_path(number: u64) -> String {
    format!("{SEGMENT_DIR}/{SPARE_PREFIX}{number}")
}

/// The file of a spare that is being written.
pub fn new_spare_path(number: u64) -> String {
    format!("{SEGMENT_DIR}/{SPARE_PREFIX}{number}{NEW_SUFFIX}")
}

/// The number of the spare that has this name in the directory, and whether it is being written; `None`: it is no spare's.
pub fn parse_spare(name: &str) -> Option<(u64, bool)> {
    let rest = name.strip_prefix(SPARE_PREFIX)?;
    let new = rest.strip_suffix(NEW_SUFFIX);
    parse_number(new.unwrap_or(rest)).map(|number| (number, new.is_some()))
}

/// The file of an owner's fence.
pub fn fence_path(owner: OwnerId) -> String {
    format!("{SEGMENT_DIR}/{owner}.fence")
}

/// The file of a fence that is being written.
pub fn new_fence_path(owner: OwnerId) -> String {
    format!("{SEGMENT_DIR}/{owner}.fence{NEW_SUFFIX}")
}

impl Name {
    /// Whose a name in the directory is; `None`: nobody's.
    pub fn parse(name: &str) -> Option<Name> {
        let (owner, rest) = name.split_once('.')?;
        let digits = owner.len() == 32 && owner.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let owner = OwnerId(u128::from_str_radix(owner, 16).ok().filter(|_| digits)?);
        match rest {
            "fence" => Some(Name::Fence(owner)),
            "fence.new" => Some(Name::NewFence(owner)),
            _ => parse_number(rest).map(|number| Name::Segment(SegmentId { owner, number })),
        }
    }

    /// Whose it is.
    pub fn owner(self) -> OwnerId {
        match self {
            Name::Segment(id) => id.owner,
            Name::Fence(owner) | Name::NewFence(owner) => owner,
        }
    }
}

/// The header of a segment.
pub fn encode_header(info: &SegmentInfo) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    put(&mut bytes, 32, info.id.number.to_le_bytes());
    put(&mut bytes, 40, info.term.0.to_le_bytes());
    put(&mut bytes, 48, info.bytes.to_le_bytes());
    seal(bytes, SEGMENT_MAGIC, info.id.owner)
}

/// What the file of segment `id`, of `file_bytes`, begins with; `bytes` are its first 512, or all it has.
pub fn decode_header(id: SegmentId, bytes: &[u8], file_bytes: u64) -> Head {
    if bytes.iter().all(|byte| *byte == 0) {
        return Head::Remnant;
    }
    if let Err(reason) = check(bytes, SEGMENT_MAGIC) {
        return Head::Damaged(reason);
    }
    let found = SegmentId { owner: OwnerId(u128_at(bytes, 16)), number: u64_at(bytes, 32) };
    let info = SegmentInfo { id, term: Term(u64_at(bytes, 40)), bytes: u64_at(bytes, 48) };
    if found != id {
        return Head::Damaged("it holds another segment");
    }
    if info.bytes == 0 || info.bytes.checked_add(CONTENT_OFFSET).is_none_or(|end| end > file_bytes) {
        return Head::Damaged("the file ends before the bytes reserved");
    }
    Head::Segment(info)
}

/// What a spare's file begins with; `bytes` are its first 512.
pub fn decode_former(bytes: &[u8; HEADER_BYTES]) -> Former {
    if bytes.iter().all(|byte| *byte == 0) {
        return Former::None;
    }
    match check(bytes, SEGMENT_MAGIC) {
        Ok(()) => Former::Segment(SegmentId { owner: OwnerId(u128_at(bytes, 16)), number: u64_at(bytes, 32) }),
        Err(_) => Former::Unknown,
    }
}

/// The fence of a lease.
pub fn encode_fence(lease: Lease) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    put(&mut bytes, 40, lease.term.0.to_le_bytes());
    seal(bytes, FENCE_MAGIC, lease.owner)
}

/// The term in the fence of `owner`.
///
/// # Errors
/// What is wrong with the bytes.
pub fn decode_fence(owner: OwnerId, bytes: &[u8]) -> Result<Term, &'static str> {
    check(bytes, FENCE_MAGIC)?;
    if OwnerId(u128_at(bytes, 16)) != owner {
        return Err("it is another owner's");
    }
    Ok(Term(u64_at(bytes, 40)))
}

/// One text for each number: no leading zeros or signs.
fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Adds what both files begin with, and the checksum.
fn seal(mut bytes: [u8; HEADER_BYTES], magic: [u8; 8], owner: OwnerId) -> [u8; HEADER_BYTES] {
    put(&mut bytes, 0, magic);
    put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
    put(&mut bytes, 16, owner.0.to_le_bytes());
    let crc = crc32c_without(&bytes, CRC_AT);
    put(&mut bytes, CRC_AT, crc.to_le_bytes());
    bytes
}

fn check(bytes: &[u8], magic: [u8; 8]) -> Result<(), &'static str> {
    if bytes.len() != HEADER_BYTES {
        return Err("the file ends within its first part");
    }
    if u32_at(bytes, CRC_AT) != crc32c_without(bytes, CRC_AT) {
        return Err("the checksum of its first part does not match");
    }
    if array_at(bytes, 0) != magic {
        return Err("it is another kind of file");
    }
    match u16_at(bytes, 8) {
        FORMAT_VERSION => Ok(()),
        later if later > FORMAT_VERSION => Err("it needs a newer claystone"),
        _ => Err("its format version is unknown"),
    }
}

#[cfg(test)]
mod tests;
