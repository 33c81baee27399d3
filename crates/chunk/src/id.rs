//! Names of stripes, chunks, disks and nodes.

use std::fmt;
use std::str::FromStr;

use claystone_code::ChunkIndex;
use claystone_env::{Random, WallTime};

/// A text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct IdError {
    /// What was given.
    pub text: String,
    /// What was expected, for people.
    pub expected: &'static str,
}

/// A stripe. Ordered by time of creation: 48 bits of milliseconds, then 80 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeId(pub u128);

impl StripeId {
    /// A new id for a stripe that is written now.
    pub fn new(now: WallTime, random: &dyn Random) -> StripeId {
        let mut low = [0; 16];
        random.fill(&mut low[6..]);
        StripeId((u128::from(now.unix_ms) << 80) | u128::from_be_bytes(low))
    }

    /// When the stripe was written, by the writer's clock.
    pub fn created(self) -> WallTime {
        WallTime { unix_ms: (self.0 >> 80) as u64 }
    }
}

impl fmt::Display for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for StripeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StripeId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<StripeId, IdError> {
        hex_u128(text, "a stripe id (32 hex digits)").map(StripeId)
    }
}

/// How often a chunk of a stripe was built anew; part of its name, so that a rebuilt chunk never meets the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u32);

/// A chunk: one column of a stripe, in one generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// The stripe it belongs to.
    pub stripe: StripeId,
    /// Its column: data first, then parity.
    pub index: ChunkIndex,
    /// Its generation.
    pub generation: Generation,
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.stripe, self.index.0, self.generation.0)
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ChunkId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<ChunkId, IdError> {
        let error = || IdError { text: text.to_owned(), expected: "a chunk id (STRIPE.INDEX.GENERATION)" };
        let mut parts = text.split('.');
        let (Some(stripe), Some(index), Some(generation), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(error());
        };
        let id = ChunkId {
            stripe: stripe.parse().map_err(|_| error())?,
            index: ChunkIndex(index.parse().map_err(|_| error())?),
            generation: Generation(generation.parse().map_err(|_| error())?),
        };
        // One text per id: no leading zeros or signs.
        if id.to_string() == text { Ok(id) } else { Err(error()) }
    }
}

/// A disk, for ever: written on it when it is formatted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u128);

impl DiskId {
    /// An id for a disk that is formatted now.
    pub fn new(random: &dyn Random) -> DiskId {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        DiskId(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DiskId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<DiskId, IdError> {
        hex_u128(text, "a disk id (32 hex digits)").map(DiskId)
    }
}

/// A node: a failure domain that holds disks. Chunks of one stripe go to distinct nodes where there are enough.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub String);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex_u128(text: &str, expected: &'static str) -> Result<u128, IdError> {
    let error = || IdError { text: text.to_owned(), expected };
    let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !digits {
        return Err(error());
    }
    u128::from_str_radix(text, 16).map_err(|_| error())
}
