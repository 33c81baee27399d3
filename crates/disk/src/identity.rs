//! Which disk a directory is: the file `claystone.disk`.
//!
//! Invariants:
//! 1. The file is one part of 512 bytes, so that a power cut leaves it whole or absent.
//! 2. A higher format version is recognised whatever else the bytes hold.

use std::fmt;
use std::str::FromStr;

use claystone_chunk::{DiskId, NodeId};
use claystone_env::{Random, WallTime};

use crate::fields::{array_at, crc32c_without, put, u16_at, u32_at, u64_at, u128_at};

/// Name of the identity file.
pub const IDENTITY_FILE: &str = "claystone.disk";
/// Bytes of the identity file.
pub const IDENTITY_BYTES: usize = 512;
/// Version of everything on a disk.
pub const FORMAT_VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"CLAYDISK";
const CRC_AT: usize = 12;
const NAME_AT: usize = 64;
const NAME_BYTES_MAX: usize = 192;
const TEXT_AT: usize = 256;

/// A cluster: the nodes and disks under one set of records. A disk belongs to one for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// An id for a cluster that is made now.
    pub fn new(random: &dyn Random) -> ClusterId {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        ClusterId(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClusterId {
    type Err = claystone_chunk::IdError;
    fn from_str(text: &str) -> Result<ClusterId, claystone_chunk::IdError> {
        let error = |_| claystone_chunk::IdError { text: text.to_owned(), expected: "a cluster id (32 hex digits)" };
        // The same digits as a disk id.
        text.parse::<DiskId>().map(|id| ClusterId(id.0)).map_err(error)
    }
}

/// What a disk says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The disk.
    pub disk: DiskId,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The node where it was formatted; at most 192 bytes are kept.
    pub node: NodeId,
    /// When it was formatted.
    pub created: WallTime,
}

/// Why bytes are no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityError {
    /// Written by a later program.
    Newer {
        /// Its format.
        found: u16,
    },
    /// Not what was written.
    Damaged(&'static str),
}

impl Identity {
    /// The file's bytes.
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        let name = truncated(&self.node.0, NAME_BYTES_MAX).as_bytes();
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 10, (name.len() as u16).to_le_bytes());
        put(&mut bytes, 16, self.disk.0.to_le_bytes());
        put(&mut bytes, 32, self.cluster.0.to_le_bytes());
        put(&mut bytes, 48, self.created.unix_ms.to_le_bytes());
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
        let text = format!(
            "\nThis directory is a disk of a Claystone cluster. Without this file it is refused.\n\
             disk {}\ncluster {}\n",
            self.disk, self.cluster
        );
        bytes[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text.as_bytes());
        let crc = crc32c_without(&bytes, CRC_AT);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// The identity in a file's bytes.
    ///
    /// # Errors
    /// The bytes are from a later program, or not as they were written.
    pub fn decode(bytes: &[u8]) -> Result<Identity, IdentityError> {
        if bytes.len() < 10 || array_at(bytes, 0) != MAGIC {
            return Err(IdentityError::Damaged("it does not begin as one"));
        }
        let found = u16_at(bytes, 8);
        if found > FORMAT_VERSION {
            return Err(IdentityError::Newer { found });
        }
        if bytes.len() != IDENTITY_BYTES {
            return Err(IdentityError::Damaged("its length is not 512 bytes"));
        }
        if u32_at(bytes, CRC_AT) != crc32c_without(bytes, CRC_AT) {
            return Err(IdentityError::Damaged("its checksum does not match"));
        }
        let name_bytes = usize::from(u16_at(bytes, 10));
        if found != FORMAT_VERSION || name_bytes > NAME_BYTES_MAX {
            return Err(IdentityError::Damaged("a field is out of its range"));
        }
        let name = std::str::from_utf8(&bytes[NAME_AT..NAME_AT + name_bytes])
            .map_err(|_| IdentityError::Damaged("the node name is not UTF-8"))?;
        Ok(Identity {
            disk: DiskId(u128_at(bytes, 16)),
            cluster: ClusterId(u128_at(bytes, 32)),
            node: NodeId(name.to_owned()),
            created: WallTime { unix_ms: u64_at(bytes, 48) },
        })
    }
}

fn truncated(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

const _: () = assert!(NAME_AT + NAME_BYTES_MAX == TEXT_AT, "the name ends where the text begins");

#[cfg(test)]
mod tests;
