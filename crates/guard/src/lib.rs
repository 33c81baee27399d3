//! Erasure codes for callers who may be wrong: every argument is checked, nothing panics.
//!
//! `claystone-code` asserts what its callers promise. What stands between it and other languages cannot promise: the C
//! library and the Python package call [`Guard`] instead.
//!
//! ```
//! use claystone_guard::{Guard, Misuse};
//!
//! let code = Guard::new("rs:4+2")?;
//! let (data, mut parity) = ([[1; 512], [2; 512], [3; 512], [4; 512]], [[0; 512]; 2]);
//! let data: Vec<&[u8]> = data.iter().map(|chunk| &chunk[..]).collect();
//! let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|chunk| &mut chunk[..]).collect();
//! code.encode(&data, &mut parity)?;
//!
//! let wrong = code.encode(&data[..3], &mut parity).expect_err("one is missing");
//! assert_eq!(wrong.to_string(), "3 data buffers were given, 4 are needed");
//! assert!(matches!(Guard::new("rs:0+2"), Err(Misuse::Spec(_))));
//! # Ok::<(), Misuse>(())
//! ```
//!
//! Invariants:
//! 1. Whatever the arguments, a method returns; if it returns an error, no buffer was written.
//! 2. A plan is carried out only by the code that made it: [`Plan`] and [`Conversion`] cannot be made otherwise.
//!
//! Left out: what a caller's pointers point to (`capi`, the Python package).

use std::ops::Range;
use std::sync::Arc;

use claystone_code::{
    ChunkIndex, CodeSpec, ConversionGoal, ConversionPlan, Converter, ErasureCode, ForceError, LocateError,
    NoConversion, ReadCosts, ReadPlan, Shape, SpecError, Tier, UnknownTier, Unrecoverable, UpdatePlan, plan_conversion,
};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// A code whose methods check their arguments.
#[derive(Clone, Debug)]
pub struct Guard(Arc<dyn ErasureCode>);

/// What to read, made by one code.
#[derive(Clone, Debug)]
pub struct Plan {
    plan: ReadPlan,
    spec: CodeSpec,
}

/// How stripes of one code become stripes of another, made ready.
#[derive(Debug)]
pub struct Conversion {
    plan: ConversionPlan,
    converter: Converter,
}

/// What was wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Misuse {
    /// The spec names no code.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Too much is lost.
    #[error(transparent)]
    Unrecoverable(#[from] Unrecoverable),
    /// Wrong chunks cannot be named.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// No instruction set has this name.
    #[error(transparent)]
    UnknownTier(#[from] UnknownTier),
    /// Codes cannot run with this instruction set.
    #[error(transparent)]
    Force(#[from] ForceError),
    /// There is no plan from the one code to the other.
    #[error(transparent)]
    NoConversion(#[from] NoConversion),
    /// A wrong number of something.
    #[error("{got} {what} were given, {expected} are needed")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many it takes.
        expected: usize,
    },
    /// A buffer of another length than the others.
    #[error("{what} {at} has {got} bytes, {expected} are needed")]
    Length {
        /// Which kind of buffer.
        what: &'static str,
        /// Which of them.
        at: usize,
        /// Its bytes.
        got: usize,
        /// The bytes it takes.
        expected: usize,
    },
    /// A tile that does not divide into sub-chunks.
    #[error("a tile of {bytes} bytes does not divide into {alpha} sub-chunks")]
    Tile {
        /// Its bytes.
        bytes: usize,
        /// Sub-chunks of the code.
        alpha: u32,
    },
    /// A chunk that the code has not.
    #[error("there is no {what} {chunk}: the code has {count}, counted from {first}")]
    NoSuchChunk {
        /// Chunk, data chunk or parity chunk.
        what: &'static str,
        /// What was asked for.
        chunk: u16,
        /// The first one.
        first: u16,
        /// How many there are.
        count: u16,
    },
    /// A chunk that is named twice.
    #[error("chunk {chunk} is {what} twice")]
    Twice {
        /// Wanted or lost.
        what: &'static str,
        /// The chunk.
        chunk: u16,
    },
    /// A number that must not be 0.
    #[error("{what} must not be 0")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// A plan of another code.
    #[error("this plan was made by {made_by}, not by {code}")]
    ForeignPlan {
        /// Its code.
        made_by: CodeSpec,
        /// The code that was asked.
        code: CodeSpec,
    },
    /// Bytes that are written are in two buffers.
    #[error("written buffer {written} overlaps {what} buffer {other}: {bytes} bytes are in both, counted from 0")]
    Overlap {
        /// Which of the buffers to be written.
        written: usize,
        /// Whether the other one is read or written.
        what: &'static str,
        /// Which of those.
        other: usize,
        /// Bytes that are in both.
        bytes: usize,
    },
    /// The code has no such deltas.
    #[error("{code} changes its parity by encoding the tile again, not by differences")]
    NoDelta {
        /// The code.
        code: CodeSpec,
    },
}

/// Has all codes of this process run with this instruction set, such as `scalar`, whatever faster ones there are. To be called before
/// one is made, or a conversion. Asking again for what is in use is fine.
///
/// # Errors
/// [`Misuse::UnknownTier`], [`Misuse::Force`].
pub fn force_tier(name: &str) -> Result<(), Misuse> {
    Ok(name.parse::<Tier>()?.force()?)
}

impl Guard {
    /// Makes a code of its name, such as `clay:4+2:5`.
    ///
    /// # Errors
    /// [`Misuse::Spec`].
    pub fn new(spec: &str) -> Result<Guard, Misuse> {
        Ok(Guard(spec.parse::<CodeSpec>()?.build()?))
    }

    /// The code's name.
    pub fn spec(&self) -> CodeSpec {
        self.0.spec()
    }

    /// The code's size.
    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// The instruction set that it runs with.
    pub fn tier(&self) -> Tier {
        self.0.tier()
    }

    /// Computes all parity of one tile.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Misuse> {
        let shape = self.shape();
        count("data buffers", data.len(), shape.data.into())?;
        count("parity buffers", parity.len(), shape.parity.into())?;
        let tile = data.first().map_or(0, |data| data.len());
        self.check_tile(tile)?;
        lengths("data buffer", data.iter().map(|data| data.len()), tile)?;
        lengths("parity buffer", parity.iter().map(|parity| parity.len()), tile)?;
        if tile > 0 {
            self.0.encode(data, parity);
        }
        Ok(())
    }

    /// Adds the data chunks from `first` on to the parity of one tile.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`], [`Misuse::NoSuchChunk`].
    pub fn encode_add(&self, first: u16, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), Misuse> {
        let shape = self.shape();
        count("parity buffers", parity.len(), shape.parity.into())?;
        if first >= shape.data {
            return Err(no_such("data chunk", first, 0, shape.data));
        }
        let room = usize::from(shape.data - first);
        if data.len() > room {
            return Err(Misuse::Count { what: "data buffers from there on", got: data.len(), expected: room });
        }
        let Some(tile) = data.first().map(|data| data.len()) else { return Ok(()) };
        self.check_tile(tile)?;
        lengths("data buffer", data.iter().map(|data| data.len()), tile)?;
        lengths("parity buffer", parity.iter().map(|parity| parity.len()), tile)?;
        if tile > 0 {
            self.0.encode_add(ChunkIndex(first), data, parity);
        }
        Ok(())
    }

    /// Plans to get the chunks in `want`; `costs` has one entry per chunk, `None` where it cannot be read.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::NoSuchChunk`], [`Misuse::Twice`], [`Misuse::Zero`],
    /// [`Misuse::Unrecoverable`].
    pub fn plan_read(&self, want: &[u16], costs: &[Option<u32>], sub_bytes: u32, granule: u32) -> Result<Plan, Misuse> {
        let chunks = self.shape().chunks();
        count("costs", costs.len(), chunks.into())?;
        let want = distinct("wanted", want, chunks)?;
        for (what, number) in [("sub_bytes", sub_bytes), ("granule", granule)] {
            if number == 0 {
                return Err(Misuse::Zero { what });
            }
        }
        let plan = self.0.plan_read(&want, &ReadCosts { chunks: costs, sub_bytes, granule })?;
        Ok(Plan { plan, spec: self.spec() })
    }

    /// Carries out a plan on one tile: `fetched[i]` is what `plan.reads[i]` names, `out[j]` receives `plan.want[j]`.
    ///
    /// # Errors
    /// [`Misuse::ForeignPlan`], [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`].
    pub fn recover(&self, plan: &Plan, fetched: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), Misuse> {
        if plan.spec != self.spec() {
            return Err(Misuse::ForeignPlan { made_by: plan.spec, code: self.spec() });
        }
        let reads = &plan.plan.reads;
        count("fetched buffers", fetched.len(), reads.len())?;
        count("out buffers", out.len(), plan.plan.want.len())?;
        let Some(tile) = out.first().map(|out| out.len()) else { return Ok(()) };
        self.check_tile(tile)?;
        lengths("out buffer", out.iter().map(|out| out.len()), tile)?;
        let sub_bytes = tile / self.shape().alpha as usize;
        for (at, (read, fetched)) in reads.iter().zip(fetched).enumerate() {
            let expected = read.sub_chunks_total() as usize * sub_bytes;
            if fetched.len() != expected {
                return Err(Misuse::Length { what: "fetched buffer", at, got: fetched.len(), expected });
            }
        }
        if tile > 0 {
            self.0.recover(&plan.plan, fetched, out);
        }
        Ok(())
    }

    /// How a change of a data chunk reaches the parity.
    ///
    /// # Errors
    /// [`Misuse::NoSuchChunk`].
    pub fn plan_update(&self, chunk: u16) -> Result<UpdatePlan, Misuse> {
        let data = self.shape().data;
        if chunk >= data {
            return Err(no_such("data chunk", chunk, 0, data));
        }
        Ok(self.0.plan_update(ChunkIndex(chunk)))
    }

    /// Brings `parity`, bytes of the parity chunk `parity_chunk`, up to date after the data chunk `chunk` changed by
    /// `delta` (old bytes XOR new bytes) at the same place.
    ///
    /// # Errors
    /// [`Misuse::NoSuchChunk`], [`Misuse::Length`], [`Misuse::Tile`], [`Misuse::NoDelta`].
    pub fn apply_delta(&self, chunk: u16, parity_chunk: u16, delta: &[u8], parity: &mut [u8]) -> Result<(), Misuse> {
        let shape = self.shape();
        if !(shape.data..shape.chunks()).contains(&parity_chunk) {
            return Err(no_such("parity chunk", parity_chunk, shape.data, shape.parity));
        }
        let UpdatePlan::Delta(parities) = self.plan_update(chunk)? else {
            return Err(Misuse::NoDelta { code: self.spec() });
        };
        lengths("parity buffer", [parity.len()].into_iter(), delta.len())?;
        self.check_tile(delta.len())?;
        let touched = parities.iter().find(|(touched, _)| touched.0 == parity_chunk);
        if let Some((_, coefficient)) = touched.filter(|_| !delta.is_empty()) {
            self.0.apply_delta(*coefficient, delta, parity);
        }
        Ok(())
    }

    /// Names the chunks whose bytes are wrong though nobody said so; `chunks[z]` is `None` where it cannot be read. Of no
    /// bytes none is wrong.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`], [`Misuse::Locate`].
    pub fn locate(&self, chunks: &[Option<&[u8]>]) -> Result<Vec<ChunkIndex>, Misuse> {
        count("chunks", chunks.len(), self.shape().chunks().into())?;
        let tile = chunks.iter().flatten().next().map_or(0, |chunk| chunk.len());
        self.check_tile(tile)?;
        lengths("chunk", chunks.iter().map(|chunk| chunk.map_or(tile, <[u8]>::len)), tile)?;
        if tile == 0 && chunks.iter().any(Option::is_some) {
            return Ok(Vec::new());
        }
        Ok(self.0.locate(chunks)?)
    }

    /// How many more chunks may be lost, whichever they are, of a stripe without the chunks `lost`; negative if the rest
    /// does not determine the stripe any more.
    ///
    /// # Errors
    /// [`Misuse::NoSuchChunk`], [`Misuse::Twice`].
    pub fn tolerance_left(&self, lost: &[u16]) -> Result<i32, Misuse> {
        let lost = distinct("lost", lost, self.shape().chunks())?;
        Ok(self.spec().tolerance_left(&lost))
    }

    fn check_tile(&self, bytes: usize) -> Result<(), Misuse> {
        check_tile(bytes, self.shape().alpha)
    }
}

impl Conversion {
    /// Plans a conversion of the codes of these names.
    ///
    /// # Errors
    /// [`Misuse::Spec`], [`Misuse::NoConversion`].
    pub fn new(from: &str, to: &str, goal: ConversionGoal) -> Result<Conversion, Misuse> {
        let plan = plan_conversion(from.parse()?, to.parse()?, goal)?;
        let converter = Converter::new(&plan)?;
        Ok(Conversion { plan, converter })
    }

    /// The plan as data.
    pub fn plan(&self) -> &ConversionPlan {
        &self.plan
    }

    /// Makes `written[i]`, the chunk `writes[i]` of the plan, of `fetched[j]`, the chunks `reads[j]`: whole tiles of the new
    /// code, all equally long.
    ///
    /// # Errors
    /// [`Misuse::Count`], [`Misuse::Length`], [`Misuse::Tile`].
    pub fn apply(&self, fetched: &[&[u8]], written: &mut [&mut [u8]]) -> Result<(), Misuse> {
        count("fetched buffers", fetched.len(), self.plan.reads.len())?;
        count("written buffers", written.len(), self.plan.writes.len())?;
        let tile = written.first().map_or(0, |written| written.len());
        check_tile(tile, self.plan.to.shape().alpha)?;
        lengths("written buffer", written.iter().map(|written| written.len()), tile)?;
        lengths("fetched buffer", fetched.iter().map(|fetched| fetched.len()), tile)?;
        if tile > 0 {
            self.converter.apply(fetched, written);
        }
        Ok(())
    }
}

impl Plan {
    /// The plan as data.
    pub fn data(&self) -> &ReadPlan {
        &self.plan
    }

    /// Bytes that a plan reads of a tile when a store reads whole granules.
    ///
    /// # Errors
    /// [`Misuse::Zero`].
    pub fn bytes_read(&self, sub_bytes: u32, granule: u32) -> Result<u64, Misuse> {
        if granule == 0 {
            return Err(Misuse::Zero { what: "granule" });
        }
        Ok(self.plan.bytes_read(sub_bytes, granule))
    }
}

/// Checks that no byte of `written` is in another range, of either kind; ranges are addresses.
///
/// # Errors
/// [`Misuse::Overlap`].
pub fn check_apart(read: &[Range<usize>], written: &[Range<usize>]) -> Result<(), Misuse> {
    let kinds = [(read, false), (written, true)];
    let mut ranges: Vec<Buffer> = kinds
        .iter()
        .flat_map(|(ranges, is_written)| {
            let buffers = ranges.iter().enumerate();
            buffers.map(|(at, range)| Buffer { start: range.start, end: range.end, is_written: *is_written, at })
        })
        .filter(|buffer| buffer.start < buffer.end)
        .collect();
    ranges.sort_unstable();
    // Of those seen, and of those of them to be written, the one that goes furthest.
    let (mut seen, mut seen_written): (Option<Buffer>, Option<Buffer>) = (None, None);
    for buffer in ranges {
        let before = if buffer.is_written { seen } else { seen_written };
        if let Some(before) = before.filter(|before| buffer.start < before.end) {
            let (written, other) = if buffer.is_written { (buffer, before) } else { (before, buffer) };
            let what = if other.is_written { "written" } else { "read" };
            let bytes = before.end.min(buffer.end) - buffer.start;
            return Err(Misuse::Overlap { written: written.at, what, other: other.at, bytes });
        }
        let further = |before: Option<Buffer>| before.filter(|before| before.end >= buffer.end).or(Some(buffer));
        seen = further(seen);
        if buffer.is_written {
            seen_written = further(seen_written);
        }
    }
    Ok(())
}

/// Where a buffer lies, and which of its kind it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Buffer {
    start: usize,
    end: usize,
    is_written: bool,
    at: usize,
}

fn check_tile(bytes: usize, alpha: u32) -> Result<(), Misuse> {
    if bytes.is_multiple_of(alpha as usize) { Ok(()) } else { Err(Misuse::Tile { bytes, alpha }) }
}

/// Chunks by their numbers, each of which is one of so many and comes once.
fn distinct(what: &'static str, chunks: &[u16], of: u16) -> Result<Vec<ChunkIndex>, Misuse> {
    let mut seen = vec![false; of.into()];
    for chunk in chunks {
        let Some(seen) = seen.get_mut(usize::from(*chunk)) else { return Err(no_such("chunk", *chunk, 0, of)) };
        if std::mem::replace(seen, true) {
            return Err(Misuse::Twice { what, chunk: *chunk });
        }
    }
    Ok(chunks.iter().copied().map(ChunkIndex).collect())
}

fn count(what: &'static str, got: usize, expected: usize) -> Result<(), Misuse> {
    if got == expected { Ok(()) } else { Err(Misuse::Count { what, got, expected }) }
}

fn lengths(what: &'static str, lengths: impl Iterator<Item = usize>, expected: usize) -> Result<(), Misuse> {
    match lengths.enumerate().find(|(_, got)| *got != expected) {
        Some((at, got)) => Err(Misuse::Length { what, at, got, expected }),
        None => Ok(()),
    }
}

fn no_such(what: &'static str, chunk: u16, first: u16, count: u16) -> Misuse {
    Misuse::NoSuchChunk { what, chunk, first, count }
}
