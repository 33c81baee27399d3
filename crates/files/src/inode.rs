//! The inode record: what the catalog's table `inodes` keeps of a node.
//!
//! 1. The table of docs/formats/disk.md, "Inode record": 96 bytes of fields, then the tail.
//! 2. [`InodeRecord::decode`] takes any bytes: what [`InodeRecord::encode`] cannot have made is [`Malformed`].
//!
//! Left out: runs, and the sectors that a node takes.

#[cfg(test)]
mod tests;

use crate::malformed::Malformed;
use crate::{Attributes, Inode, Kind, Timestamp};

/// What is kept of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InodeRecord {
    /// What it is.
    pub kind: Kind,
    /// The low 12 bits of its mode.
    pub permissions: u16,
    /// Its owner.
    pub owner: u32,
    /// Its owner's group.
    pub owner_group: u32,
    /// Names that it has; of a directory 2 and one for each directory in it, or 0 when it was removed.
    pub names: u32,
    /// Bytes of a file or of a link's target.
    pub bytes: u64,
    /// Says nothing, and stays as it is: 0, but on disks that were made before room was kept for what is promised.
    pub unused: u64,
    /// The number of a device.
    pub device: u64,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When its content was last changed.
    pub modified: Timestamp,
    /// When its attributes were last changed.
    pub changed: Timestamp,
    /// When it was made.
    pub made: Timestamp,
    /// The directory that a directory is in; the root is in itself. `Inode(0)` for other nodes and removed directories.
    pub parent: Inode,
    /// A link's target; a tiny file's content, of which no more than [`TINY_BYTES_MAX`] bytes.
    pub tail: Vec<u8>,
}

/// The most content of a file that lies in its record.
pub(crate) const TINY_BYTES_MAX: usize = 2048;
/// The longest target of a link: one byte less than what the system takes as a path.
pub(crate) const TARGET_BYTES_MAX: usize = 4095;
/// Parent of what has none.
pub(crate) const NO_PARENT: Inode = Inode(0);

/// Bytes before the tail.
const FIELD_BYTES: usize = 96;
const VERSION: u8 = 1;

impl InodeRecord {
    /// The stored bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(FIELD_BYTES + self.tail.len());
        value.extend([VERSION, encode_kind(self.kind)]);
        value.extend(self.permissions.to_le_bytes());
        value.extend(self.owner.to_le_bytes());
        value.extend(self.owner_group.to_le_bytes());
        value.extend(self.names.to_le_bytes());
        value.extend(self.bytes.to_le_bytes());
        value.extend(self.unused.to_le_bytes());
        value.extend(self.device.to_le_bytes());
        for time in [self.accessed, self.modified, self.changed, self.made] {
            value.extend(time.seconds.to_le_bytes());
            value.extend(time.nanoseconds.to_le_bytes());
        }
        value.extend(self.parent.0.to_le_bytes());
        assert_eq!(value.len(), FIELD_BYTES, "the fields fill their table");
        value.extend(&self.tail);
        value
    }

    /// Undoes [`InodeRecord::encode`].
    ///
    /// # Errors
    /// Every variant of [`Malformed`].
    pub(crate) fn decode(value: &[u8]) -> Result<InodeRecord, Malformed> {
        let mut fields = Fields { left: value, bytes: value.len() };
        let [version, kind] = fields.take()?;
        if version != VERSION {
            return Err(Malformed::Version { version });
        }
        let record = InodeRecord {
            kind: decode_kind(kind)?,
            permissions: fields.permissions()?,
            owner: fields.u32()?,
            owner_group: fields.u32()?,
            names: fields.u32()?,
            bytes: fields.u64()?,
            unused: fields.u64()?,
            device: fields.u64()?,
            accessed: fields.time()?,
            modified: fields.time()?,
            changed: fields.time()?,
            made: fields.time()?,
            parent: Inode(fields.u64()?),
            tail: fields.left.to_vec(),
        };
        let bytes_max = FIELD_BYTES + tail_bytes_max(record.kind);
        match value.len() > bytes_max {
            true => Err(Malformed::TooLong { bytes: value.len(), bytes_max }),
            false => Ok(record),
        }
    }

    /// What a caller sees of the node; `sectors` is what it takes of the device.
    pub(crate) fn attributes(&self, inode: Inode, sectors: u64) -> Attributes {
        Attributes {
            inode,
            kind: self.kind,
            permissions: self.permissions,
            owner: self.owner,
            owner_group: self.owner_group,
            names: self.names,
            bytes: self.bytes,
            sectors,
            device: self.device,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            made: self.made,
        }
    }
}

/// The number of a kind.
pub(crate) fn encode_kind(kind: Kind) -> u8 {
    kind as u8
}

/// Undoes [`encode_kind`].
///
/// # Errors
/// [`Malformed::Kind`].
pub(crate) fn decode_kind(kind: u8) -> Result<Kind, Malformed> {
    Ok(match kind {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::Link,
        4 => Kind::BlockDevice,
        5 => Kind::CharacterDevice,
        6 => Kind::Pipe,
        7 => Kind::Socket,
        _ => return Err(Malformed::Kind { kind }),
    })
}

fn tail_bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::File => TINY_BYTES_MAX,
        Kind::Link => TARGET_BYTES_MAX,
        _ => 0,
    }
}

/// The fields of a record that were not read yet.
struct Fields<'v> {
    left: &'v [u8],
    /// Length of the whole record.
    bytes: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let too_short = Malformed::TooShort { bytes: self.bytes, bytes_min: FIELD_BYTES };
        let (field, left) = self.left.split_first_chunk().ok_or(too_short)?;
        self.left = left;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn permissions(&mut self) -> Result<u16, Malformed> {
        let permissions = self.take().map(u16::from_le_bytes)?;
        if permissions > 0o7777 { Err(Malformed::Permissions { permissions }) } else { Ok(permissions) }
    }

    fn time(&mut self) -> Result<Timestamp, Malformed> {
        let seconds = self.take().map(i64::from_le_bytes)?;
        let nanoseconds = self.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(Malformed::Nanoseconds { nanoseconds });
        }
        Ok(Timestamp { seconds, nanoseconds })
    }
}
