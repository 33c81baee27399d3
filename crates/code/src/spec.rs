//! What a code is called and how large it is: `replica:3`, `rs:6+3`, `lrc:12+2+2`, `pc:2x5`, `clay:16+4:19`, `mirror:4x3`,
//! `hybrid:rsm:6+3x2`, `mixed:4+2x3:0+2`.
//!
//! Invariants:
//! 1. `FromStr` accepts exactly what `Display` writes: one text for one spec.
//! 2. A spec that came from `FromStr` is valid; one built by hand is checked by [`CodeSpec::validate`].
//! 3. A code's bytes follow from its spec alone.
//!
//! Left out: how the codes work (`reed_solomon`, `lrc`, `product`, `mergeable`, `clay`, `replicated`, `mirror`, `hybrid`, `mixed`).

use std::{fmt, str::FromStr, sync::Arc};

use thiserror::Error;

use crate::{
    ChunkIndex, ChunkSet, Coded, ErasureCode, Tier, clay,
    grs::Grs,
    hybrid,
    linear::{Generator, Linear},
    long::LongReedSolomon,
    lrc, mergeable, mirror,
    mixed::Mixed,
    product,
    reed_solomon::ReedSolomon,
    replicated::Replicated,
};

/// The name of an erasure code: its family and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeSpec {
    /// `replica:c`: the same bytes `copies` times.
    Replicated {
        /// Chunks of a stripe, the first one included.
        copies: u8,
    },
    /// `rs:k+m`: systematic Reed-Solomon, over GF(2^8) up to 256 chunks and over GF(2^16) above.
    ReedSolomon {
        /// Data chunks, k.
        data: u16,
        /// Parity chunks, m.
        parity: u16,
    },
    /// `isal:k+m`: Reed-Solomon with the bytes of ISA-L's `gf_gen_cauchy1_matrix`. Its `gf_gen_rs_matrix` is not offered:
    /// beyond small sizes some losses within m cannot be recovered under it.
    Isal {
        /// Data chunks, k.
        data: u16,
        /// Parity chunks, m.
        parity: u16,
    },
    /// `klauspost:k+m`: Reed-Solomon with the bytes of klauspost/reedsolomon (default options, up to 256 chunks) and of
    /// the crate reed-solomon-erasure over GF(2^8).
    Klauspost {
        /// Data chunks, k.
        data: u16,
        /// Parity chunks, m.
        parity: u16,
    },
    /// `clay:k+m:d`: a coupled-layer code that repairs one chunk from a part of `helpers` others.
    Clay {
        /// Data chunks, k.
        data: u8,
        /// Parity chunks, m.
        parity: u8,
        /// Helpers of a single repair, d: more than k, at most k + m - 1.
        helpers: u8,
    },
    /// `lrc:k+l+g`: data in equal groups with an XOR parity each, and parities over all data; maximally recoverable.
    Lrc {
        /// Data chunks, k.
        data: u8,
        /// Groups, l: local parity chunks.
        local: u8,
        /// Global parity chunks, g.
        global: u8,
    },
    /// `pc:rxc`: data in rows and columns with an XOR parity each, and one over the parities.
    Product {
        /// Rows of data chunks, r.
        rows: u8,
        /// Columns of data chunks, c.
        columns: u8,
    },
    /// `rsm:k+m`: Reed-Solomon with rows of powers, so that stripes merge by their parities alone.
    Mergeable {
        /// Data chunks, k.
        data: u8,
        /// Parity chunks, m.
        parity: u8,
    },
    /// `mirror:kxc`: each data chunk `copies` times, so that a stripe has the data chunks of `rs:k+m` and yet changes and
    /// is repaired like `replica:c`.
    Mirror {
        /// Data chunks, k.
        data: u8,
        /// Chunks with the bytes of a data chunk, itself included.
        copies: u8,
    },
    /// `hybrid:CODExc`: the chunks of a code and `copies` of each data chunk, so that a stripe is repaired like a replica and is one
    /// of the code when its copies are dropped.
    Hybrid {
        /// The code: `lrc`, `pc` or `rsm`.
        coded: Coded,
        /// Chunks with the bytes of a data chunk, itself included.
        copies: u8,
    },
    /// `mixed:k+mxc:i+j...`: `copies` of the data chunks i, j..., and the parity of `rs:k+m` of the others, so that a part of a stripe
    /// is kept like `mirror:kxc` and the rest like `rs:k+m`.
    Mixed {
        /// Data chunks, k.
        data: u8,
        /// Parity chunks, m.
        parity: u8,
        /// Chunks with the bytes of a mirrored data chunk, itself included.
        copies: u8,
        /// The mirrored data chunks: one at least, and not all.
        mirrored: ChunkSet,
    },
}

/// The size of a code: how many chunks of each kind, and sub-chunks in a chunk's tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Data chunks, k.
    pub data: u16,
    /// Parity chunks, m; for `replica:c` the c - 1 further copies, for `mirror:kxc` k times as many, and for
    /// `hybrid:CODExc` and `mixed:k+mxc:i` copies beside parity.
    pub parity: u16,
    /// Sub-chunks in one tile of a chunk: 1, 2 for long codes over GF(2^16), more for Clay.
    pub alpha: u32,
}

impl Shape {
    /// All chunks of a stripe, n = k + m.
    pub fn chunks(&self) -> u16 {
        self.data + self.parity
    }
}

/// Why a text or a spec names no code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The part before the first colon is no family.
    #[error(
        "unknown code family: expected replica:C, mirror:KxC, hybrid:CODExC, mixed:K+MxC:I+J, rs:K+M, lrc:K+L+G, pc:RxC, rsm:K+M, clay:K+M:D, isal:K+M or klauspost:K+M"
    )]
    UnknownFamily,
    /// The family is known, but the rest does not have its form.
    #[error("malformed code: expected {expected} with plain decimal numbers up to {most}")]
    Malformed {
        /// The form of the family.
        expected: &'static str,
        /// The largest number that the form has room for; most sizes are bounded further.
        most: u16,
    },
    /// `replica:0`, `mirror:4x0`.
    #[error("a replicated code needs at least 1 copy, got 0")]
    NoCopies,
    /// `hybrid:rsm:6+3x1`: without further copies it is the code itself.
    #[error("beside {coded} there are at least 2 copies of a data chunk, itself included, got {copies}")]
    TooFewCopies {
        /// The code.
        coded: CodeSpec,
        /// What was asked for.
        copies: u8,
    },
    /// `mixed:4+2x3:4`, or all of them: all mirrored is `mirror:4x3`, and none `rs:4+2`.
    #[error(
        "of {data} data chunk{} some are to be mirrored and some not, each named once and ascending, counted from 0, of {most} at most",
        if *.data == 1 { "" } else { "s" },
        most = ChunkSet::DATA_MAX
    )]
    NotMixed {
        /// Data chunks asked for.
        data: u16,
    },
    /// No data chunk.
    #[error("a code needs at least 1 data chunk, got 0")]
    NoData,
    /// Too few parity chunks.
    #[error("this code needs at least {least} parity chunk{}, got {parity}", if *.least == 1 { "" } else { "s" })]
    TooFewParity {
        /// What was asked for.
        parity: u16,
        /// 1 for Reed-Solomon, 2 for Clay.
        least: u16,
    },
    /// More chunks than the field has room for.
    #[error("{data}+{parity} makes {chunks} chunks, the limit is {limit}", chunks = u32::from(*.data) + u32::from(*.parity))]
    TooManyChunks {
        /// Data chunks asked for.
        data: u16,
        /// Parity chunks asked for.
        parity: u16,
        /// [`CodeSpec::CHUNKS_MAX`], or [`CodeSpec::LONG_CHUNKS_MAX`] for Reed-Solomon.
        limit: u16,
    },
    /// The parity of a long code, rounded up to a power of two, and the data are more than the field has elements.
    #[error("{data}+{parity} takes {points} points, GF(2^16) has {limit}")]
    TooManyPoints {
        /// Data chunks asked for.
        data: u16,
        /// Parity chunks asked for.
        parity: u16,
        /// Data chunks and the least power of two that is at least the parity chunks.
        points: u32,
        /// [`CodeSpec::POINTS_MAX`].
        limit: u32,
    },
    /// Clay's d is outside k + 1 ..= k + m - 1. With d = k nothing is saved: that code is `rs:k+m`.
    #[error("clay repairs from {least} to {most} helpers for this size, got {helpers}")]
    HelpersOutOfRange {
        /// d asked for.
        helpers: u8,
        /// k + 1.
        least: u16,
        /// k + m - 1.
        most: u16,
    },
    /// Clay's grid (chunks rounded up to a multiple of q = d - k + 1) is wider than the field.
    #[error("clay needs a grid of {nodes} nodes for this size, the limit is {limit}")]
    GridTooWide {
        /// n rounded up to a multiple of q.
        nodes: u16,
        /// [`CodeSpec::CHUNKS_MAX`].
        limit: u16,
    },
    /// Clay's q^t sub-chunks are too many to plan with.
    #[error("clay needs {q}^{t} sub-chunks in a chunk for this size, the limit is {limit}")]
    TooManySubChunks {
        /// d - k + 1.
        q: u16,
        /// Grid nodes / q.
        t: u16,
        /// [`CodeSpec::ALPHA_MAX`].
        limit: u32,
    },
    /// The data of an LRC does not divide into its groups.
    #[error("{data} data chunk{} not divide into {local} equal groups", if *.data == 1 { " does" } else { "s do" })]
    UnequalGroups {
        /// Data chunks asked for.
        data: u8,
        /// Groups asked for.
        local: u8,
    },
    /// No global parities are known that make an LRC of this size maximally recoverable.
    #[error(
        "no maximally recoverable parities are proved for lrc:{data}+{local}+{global}; proved are, where L divides K: {}",
        lrc::PROVED
    )]
    Unproved {
        /// Data chunks asked for.
        data: u8,
        /// Groups asked for.
        local: u8,
        /// Global parity chunks asked for.
        global: u8,
    },
    /// The points of a mergeable code are proved for less data only; for none, if `most` is 0.
    #[error("mergeable parities are proved for at most {most} data chunks with {parity} parity chunks, got {data}")]
    TooWideToMerge {
        /// Data chunks asked for.
        data: u8,
        /// Parity chunks asked for.
        parity: u8,
        /// Most data chunks with so many parity chunks.
        most: u8,
    },
}

impl CodeSpec {
    /// The most chunks in a stripe over GF(2^8), which has that many elements.
    pub const CHUNKS_MAX: u16 = 256;

    /// The most chunks of a Reed-Solomon stripe, whose places are 16 bits wide. Codes of more chunks than
    /// [`Self::CHUNKS_MAX`] are long: over GF(2^16), with tiles of two sub-chunks.
    pub const LONG_CHUNKS_MAX: u16 = u16::MAX;

    /// The most points of a long code, k and the least power of two that is at least m: GF(2^16) has so many elements.
    pub const POINTS_MAX: u32 = 1 << 16;

    /// The most sub-chunks in a tile. `clay:16+4:19` has 1024, `clay:20+4:23` has 4096.
    pub const ALPHA_MAX: u32 = 4096;

    /// The code's size.
    ///
    /// # Panics
    /// For a spec that [`validate`](Self::validate) rejects.
    pub fn shape(&self) -> Shape {
        let (data, parity, alpha) = match *self {
            Self::Replicated { copies } => {
                assert!(copies > 0, "no copies");
                (1, u16::from(copies) - 1, 1)
            }
            Self::ReedSolomon { data, parity } => (data, parity, if self.is_long() { 2 } else { 1 }),
            Self::Isal { data, parity } | Self::Klauspost { data, parity } => (data, parity, 1),
            Self::Clay { data, parity, helpers } => {
                let grid = clay::Grid::new(data, parity, helpers).expect("a validated spec has a grid");
                (data.into(), parity.into(), grid.alpha)
            }
            Self::Lrc { data, local, global } => (data.into(), u16::from(local) + u16::from(global), 1),
            Self::Product { rows, columns } => {
                let (rows, columns) = (u16::from(rows), u16::from(columns));
                (rows * columns, rows + columns + 1, 1)
            }
            Self::Mergeable { data, parity } => (data.into(), parity.into(), 1),
            Self::Mirror { data, copies } => {
                assert!(copies > 0, "no copies");
                (data.into(), u16::from(data) * (u16::from(copies) - 1), 1)
            }
            Self::Hybrid { coded, copies } => {
                assert!(copies > 0, "no copies");
                return coded.shape(copies);
            }
            Self::Mixed { data, .. } => (data.into(), self.mixed().expect("it is one").redundant(), 1),
        };
        Shape { data, parity, alpha }
    }

    fn mixed(&self) -> Option<Mixed> {
        match *self {
            Self::Mixed { data, parity, copies, mirrored } => Some(Mixed { data, parity, copies, mirrored }),
            _ => None,
        }
    }

    /// Whether the code is over GF(2^16).
    fn is_long(&self) -> bool {
        matches!(*self, Self::ReedSolomon { data, parity } if u32::from(data) + u32::from(parity) > u32::from(Self::CHUNKS_MAX))
    }

    /// The code of a stripe without further copies of data chunks: that of a hybrid, else the code itself.
    pub fn without_copies(&self) -> CodeSpec {
        match *self {
            Self::Hybrid { coded, .. } => coded.spec(),
            other => other,
        }
    }

    /// The data chunk that a chunk is a further copy of, if it is one: a stripe without it has the same data and parity.
    ///
    /// # Panics
    /// If it is no chunk, and for a spec that [`validate`](Self::validate) rejects.
    pub fn copied(&self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        let shape = self.shape();
        assert!(chunk.0 < shape.chunks(), "chunk {chunk} of {}", shape.chunks());
        match *self {
            Self::Replicated { .. } | Self::Mirror { .. } => {
                (chunk.0 >= shape.data).then(|| ChunkIndex(chunk.0 % shape.data))
            }
            Self::Hybrid { coded, .. } => hybrid::copied(coded, chunk),
            Self::Mixed { .. } => self.mixed()?.copied(chunk),
            _ => None,
        }
    }

    /// The data chunk with whose copies alone a chunk is lost or not, whatever is left of the rest: of a mirror each has one, of a mixed
    /// stripe those that are mirrored.
    ///
    /// # Panics
    /// If it is no chunk, and for a spec that [`validate`](Self::validate) rejects.
    pub fn lost_with(&self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        match self.mixed() {
            Some(mixed) => mixed.set_of(chunk),
            None if matches!(self, Self::Mirror { .. }) => Some(self.copied(chunk).unwrap_or(chunk)),
            None => None,
        }
    }

    /// How many chunks of a stripe may be lost at once, whichever they are. LRC, product, mirror, hybrid and mixed codes recover most
    /// patterns of some more: [`tolerance_left`](Self::tolerance_left) knows which.
    pub fn tolerance(&self) -> u16 {
        match *self {
            Self::Replicated { copies } | Self::Mirror { copies, .. } => u16::from(copies).saturating_sub(1),
            Self::ReedSolomon { parity, .. } | Self::Isal { parity, .. } | Self::Klauspost { parity, .. } => parity,
            Self::Clay { parity, .. } | Self::Mergeable { parity, .. } => parity.into(),
            Self::Lrc { global, .. } => u16::from(global) + 1,
            Self::Product { .. } => 3,
            // Of what loses a stripe of the code one chunk at least is data, and has all its copies.
            Self::Hybrid { coded, copies } => coded.spec().tolerance() + u16::from(copies).saturating_sub(1),
            Self::Mixed { .. } => self.mixed().expect("it is one").tolerance(),
        }
    }

    /// How many more chunks may be lost, whichever they are, of a stripe without the chunks `lost`. Negative if the rest
    /// does not determine the stripe any more: at least so many of the lost chunks have to come back. Of products with
    /// copies it may be more than is said.
    ///
    /// # Panics
    /// If `lost` names a chunk that is none or names one twice, and for a spec that [`validate`](Self::validate) rejects.
    pub fn tolerance_left(&self, lost: &[ChunkIndex]) -> i32 {
        let mut is_lost = vec![false; self.shape().chunks().into()];
        for chunk in lost {
            assert!(chunk.at() < is_lost.len(), "chunk {chunk} of {}", is_lost.len());
            assert!(!std::mem::replace(&mut is_lost[chunk.at()], true), "chunk {chunk} is lost twice");
        }
        match *self {
            Self::Lrc { data, local, .. } => lrc::tolerance_left(data, local, &is_lost),
            Self::Product { rows, columns } => product::tolerance_left(rows, columns, &is_lost),
            Self::Mirror { data, .. } => mirror::tolerance_left(data, &is_lost),
            Self::Hybrid { coded, copies } => hybrid::tolerance_left(coded, copies, &is_lost),
            Self::Mixed { .. } => self.mixed().expect("it is one").tolerance_left(&is_lost),
            // Any k chunks determine the stripe.
            _ => i32::from(self.tolerance()) - lost.len() as i32,
        }
    }

    /// Whether two chunks of a stripe may lie on one disk. If all pairs on each disk may, then as many disks may be lost as
    /// [`tolerance`](Self::tolerance) says of chunks: each of them costs the stripe no more than one chunk does. So it is
    /// with chunks of a mirror that are copies of different data, with the further copies of a hybrid, and in a mixed stripe with copies
    /// and all that is not of the same data; no other two may.
    ///
    /// # Panics
    /// If they are one chunk or none, and for a spec that [`validate`](Self::validate) rejects.
    pub fn may_share_disk(&self, one: ChunkIndex, other: ChunkIndex) -> bool {
        let chunks = self.shape().chunks();
        assert!(one != other, "chunk {one} twice");
        assert!(one.0 < chunks && other.0 < chunks, "chunks {one} and {other} of {chunks}");
        match *self {
            Self::Mirror { data, .. } => mirror::copied(one, data) != mirror::copied(other, data),
            Self::Hybrid { coded, .. } => match (hybrid::copied(coded, one), hybrid::copied(coded, other)) {
                (Some(one), Some(other)) => one != other,
                _ => false,
            },
            Self::Mixed { .. } => self.mixed().expect("it is one").may_share_disk(one, other),
            _ => false,
        }
    }

    /// The fewest disks on which a stripe tolerates the loss of as many disks as of chunks.
    ///
    /// # Panics
    /// For a spec that [`validate`](Self::validate) rejects.
    pub fn disks_min(&self) -> u16 {
        match *self {
            Self::Mirror { copies, .. } => copies.into(),
            // A disk for each further copy of all data.
            Self::Hybrid { coded, copies } => coded.spec().shape().chunks() + u16::from(copies) - 1,
            Self::Mixed { .. } => self.mixed().expect("it is one").disks_min(),
            _ => self.shape().chunks(),
        }
    }

    /// Checks the numbers against the limits.
    ///
    /// # Errors
    /// All of [`SpecError`] but `UnknownFamily` and `Malformed`.
    pub fn validate(&self) -> Result<(), SpecError> {
        let (data, parity, least) = match *self {
            Self::Replicated { copies: 0 } | Self::Mirror { copies: 0, .. } => return Err(SpecError::NoCopies),
            Self::Replicated { .. } => return Ok(()),
            Self::ReedSolomon { data, parity } | Self::Isal { data, parity } | Self::Klauspost { data, parity } => {
                (data, parity, 1)
            }
            Self::Clay { data, parity, .. } => (u16::from(data), u16::from(parity), 2),
            Self::Lrc { data, local, global } => {
                if global == 0 {
                    return Err(SpecError::TooFewParity { parity: 0, least: 1 });
                }
                (u16::from(data), u16::from(local) + u16::from(global), 1)
            }
            Self::Product { .. } => {
                let Shape { data, parity, .. } = self.shape();
                (data, parity, 1)
            }
            Self::Mergeable { data, parity } => (u16::from(data), u16::from(parity), 1),
            Self::Hybrid { coded, copies } => {
                coded.spec().validate()?;
                if copies < 2 {
                    return Err(SpecError::TooFewCopies { coded: coded.spec(), copies });
                }
                let Shape { data, parity, .. } = self.shape();
                (data, parity, 1)
            }
            Self::Mirror { .. } => {
                let Shape { data, parity, .. } = self.shape();
                (data, parity, 1)
            }
            Self::Mixed { data, parity, copies, .. } => {
                if parity == 0 {
                    return Err(SpecError::TooFewParity { parity: 0, least: 1 });
                }
                if copies < 2 {
                    return Err(SpecError::TooFewCopies {
                        coded: Self::ReedSolomon { data: data.into(), parity: parity.into() },
                        copies,
                    });
                }
                let Shape { data, parity, .. } = self.shape();
                (data, parity, 1)
            }
        };
        if data == 0 {
            return Err(SpecError::NoData);
        }
        if parity < least {
            return Err(SpecError::TooFewParity { parity, least });
        }
        let limit = if let Self::ReedSolomon { .. } = self { Self::LONG_CHUNKS_MAX } else { Self::CHUNKS_MAX };
        if u32::from(data) + u32::from(parity) > u32::from(limit) {
            return Err(SpecError::TooManyChunks { data, parity, limit });
        }
        if self.is_long() {
            let points = LongReedSolomon::points(data, parity);
            if points > Self::POINTS_MAX {
                return Err(SpecError::TooManyPoints { data, parity, points, limit: Self::POINTS_MAX });
            }
        }
        match *self {
            Self::Clay { data, parity, helpers } => clay::Grid::new(data, parity, helpers).map(|_| ()),
            Self::Lrc { data, local, .. } if local == 0 || !data.is_multiple_of(local) => {
                Err(SpecError::UnequalGroups { data, local })
            }
            Self::Lrc { data, local, global } if lrc::global_rows(data, local, global).is_none() => {
                Err(SpecError::Unproved { data, local, global })
            }
            Self::Mergeable { data, parity } if data > mergeable::data_max(parity) => {
                Err(SpecError::TooWideToMerge { data, parity, most: mergeable::data_max(parity) })
            }
            Self::Mixed { .. } => self.mixed().expect("it is one").validate(),
            _ => Ok(()),
        }
    }

    /// Makes the code, for the instruction set that [`Tier::chosen`] names. Keep and share it: Clay compiles its plans here.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn build(&self) -> Result<Arc<dyn ErasureCode>, SpecError> {
        self.build_with_tier(Tier::chosen())
    }

    /// As [`build`](Self::build), for one of [`Tier::available`]; tests compare the tiers.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    ///
    /// # Panics
    /// If this machine has not got the tier.
    pub fn build_with_tier(&self, tier: Tier) -> Result<Arc<dyn ErasureCode>, SpecError> {
        assert!(Tier::available().contains(&tier), "{tier:?} is not available here");
        self.validate()?;
        Ok(match *self {
            Self::Replicated { copies } => Arc::new(Replicated::new(copies, tier)),
            Self::ReedSolomon { data, parity } if self.is_long() => Arc::new(LongReedSolomon::new(data, parity, tier)),
            Self::ReedSolomon { data, parity } => Arc::new(ReedSolomon::new(*self, Grs::cauchy(data, parity), tier)),
            Self::Isal { data, parity } => Arc::new(ReedSolomon::new(*self, Grs::isal(data, parity), tier)),
            Self::Klauspost { data, parity } => Arc::new(ReedSolomon::new(*self, Grs::klauspost(data, parity), tier)),
            Self::Clay { data, parity, helpers } => {
                let grid = clay::Grid::new(data, parity, helpers)?;
                Arc::new(clay::Clay::new(*self, grid, tier))
            }
            Self::Lrc { .. }
            | Self::Product { .. }
            | Self::Mergeable { .. }
            | Self::Mirror { .. }
            | Self::Hybrid { .. }
            | Self::Mixed { .. } => {
                let generator = self.generator().expect("a validated spec of these families");
                Arc::new(Linear::new(*self, generator, tier))
            }
        })
    }
}

impl CodeSpec {
    /// What `linear` makes the code of; `None`: another module does, or it is not valid.
    pub(crate) fn generator(&self) -> Option<Generator> {
        Some(match *self {
            Self::Lrc { data, local, global } => lrc::generator(data, local, global)?,
            Self::Product { rows, columns } => product::generator(rows, columns),
            Self::Mergeable { data, parity } => mergeable::generator(data, parity),
            Self::Mirror { data, copies } => mirror::generator(data, copies),
            Self::Hybrid { coded, copies } => hybrid::generator(&coded.spec().generator()?, copies),
            Self::Mixed { .. } => self.mixed()?.generator(),
            _ => return None,
        })
    }
}

impl fmt::Display for CodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicated { copies } => write!(f, "replica:{copies}"),
            Self::ReedSolomon { data, parity } => write!(f, "rs:{data}+{parity}"),
            Self::Isal { data, parity } => write!(f, "isal:{data}+{parity}"),
            Self::Klauspost { data, parity } => write!(f, "klauspost:{data}+{parity}"),
            Self::Clay { data, parity, helpers } => write!(f, "clay:{data}+{parity}:{helpers}"),
            Self::Lrc { data, local, global } => write!(f, "lrc:{data}+{local}+{global}"),
            Self::Product { rows, columns } => write!(f, "pc:{rows}x{columns}"),
            Self::Mergeable { data, parity } => write!(f, "rsm:{data}+{parity}"),
            Self::Mirror { data, copies } => write!(f, "mirror:{data}x{copies}"),
            Self::Hybrid { coded, copies } => write!(f, "hybrid:{}x{copies}", coded.spec()),
            Self::Mixed { data, parity, copies, mirrored } => {
                write!(f, "mixed:{data}+{parity}x{copies}:")?;
                mirrored
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, chunk)| write!(f, "{}{chunk}", if at == 0 { "" } else { "+" }))
            }
        }
    }
}

impl FromStr for CodeSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (family, rest) = text.split_once(':').ok_or(SpecError::UnknownFamily)?;
        let (expected, most, spec) = match family {
            "replica" => ("replica:C", 255, number(rest).map(|copies| Self::Replicated { copies })),
            "rs" => ("rs:K+M", u16::MAX, sum(rest).map(|(data, parity)| Self::ReedSolomon { data, parity })),
            "isal" => ("isal:K+M", u16::MAX, sum(rest).map(|(data, parity)| Self::Isal { data, parity })),
            "klauspost" => {
                ("klauspost:K+M", u16::MAX, sum(rest).map(|(data, parity)| Self::Klauspost { data, parity }))
            }
            "clay" => (
                "clay:K+M:D",
                255,
                rest.split_once(':').and_then(|(chunks, helpers)| {
                    let (data, parity) = sum(chunks)?;
                    Some(Self::Clay { data, parity, helpers: number(helpers)? })
                }),
            ),
            "lrc" => (
                "lrc:K+L+G",
                255,
                rest.split_once('+').and_then(|(data, parity)| {
                    let (local, global) = sum(parity)?;
                    Some(Self::Lrc { data: number(data)?, local, global })
                }),
            ),
            "pc" => ("pc:RxC", 255, times(rest).map(|(rows, columns)| Self::Product { rows, columns })),
            "rsm" => ("rsm:K+M", 255, sum(rest).map(|(data, parity)| Self::Mergeable { data, parity })),
            "mirror" => ("mirror:KxC", 255, times(rest).map(|(data, copies)| Self::Mirror { data, copies })),
            "hybrid" => ("hybrid:CODExC with a CODE of rsm, lrc or pc", 255, hybrid(rest)?),
            "mixed" => ("mixed:K+MxC:I+J", 255, mixed(rest)?),
            _ => return Err(SpecError::UnknownFamily),
        };
        let spec = spec.ok_or(SpecError::Malformed { expected, most })?;
        spec.validate()?;
        Ok(spec)
    }
}

/// `CODExC`.
fn hybrid(text: &str) -> Result<Option<CodeSpec>, SpecError> {
    let Some((coded, copies)) = text.rsplit_once('x') else { return Ok(None) };
    let Some(copies) = number(copies) else { return Ok(None) };
    // A hybrid of a hybrid would be read as deep as a text is long.
    if coded.starts_with("hybrid:") {
        return Ok(None);
    }
    let coded = Coded::of(coded.parse()?);
    Ok(coded.map(|coded| CodeSpec::Hybrid { coded, copies }))
}

/// `K+MxC:I+J...`.
fn mixed(text: &str) -> Result<Option<CodeSpec>, SpecError> {
    let parts = || {
        let (code, chunks) = text.split_once(':')?;
        let (chunks_of, copies) = code.split_once('x')?;
        let (data, parity) = sum(chunks_of)?;
        let mirrored: Vec<u16> = chunks.split('+').map(number).collect::<Option<_>>()?;
        Some((data, parity, number(copies)?, mirrored))
    };
    let Some((data, parity, copies, mirrored)) = parts() else { return Ok(None) };
    if !mirrored.is_sorted_by(|a, b| a < b) || mirrored.last().is_some_and(|last| *last >= ChunkSet::DATA_MAX) {
        return Err(SpecError::NotMixed { data: u8::into(data) });
    }
    let mirrored = mirrored.into_iter().map(ChunkIndex).collect();
    Ok(Some(CodeSpec::Mixed { data, parity, copies, mirrored }))
}

/// `K+M`.
fn sum<N: FromStr>(text: &str) -> Option<(N, N)> {
    let (data, parity) = text.split_once('+')?;
    Some((number(data)?, number(parity)?))
}

/// `RxC`.
fn times<N: FromStr>(text: &str) -> Option<(N, N)> {
    let (rows, columns) = text.split_once('x')?;
    Some((number(rows)?, number(columns)?))
}

/// A decimal number as `Display` writes it: no sign, no leading zero.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}
